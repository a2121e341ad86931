"""What a session of ours is set to, and what it refuses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater.spark
from headwater.core.errors import RequestError
from headwater.spark.sessions.class_archive import find_archive
from headwater.spark.sessions.java import find_java
from headwater.spark.sessions.session import (
    UNIX_SOCKETS,
    _for_a_machine,
    parse_master,
    require_pyspark,
)

pytestmark = pytest.mark.spark


def test_a_session_counts_rows_through_python_workers(spark: SparkSession) -> None:
    rows = spark.range(1_000).mapInArrow(lambda batches: batches, "id long").count()
    assert rows == 1_000


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.sql.execution.arrow.pyspark.enabled", "true"),
        ("spark.sql.python.filterPushdown.enabled", "true"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.ui.enabled", "false"),
    ],
)
def test_a_session_is_set_up_for_one_machine(spark: SparkSession, setting: str, value: str) -> None:
    assert spark.conf.get(setting) == value


def test_workers_talk_through_sockets_that_only_the_user_can_reach(spark: SparkSession) -> None:
    assert spark.conf.get(f"{UNIX_SOCKETS}.enabled") == "true"
    directory = Path(str(spark.conf.get(f"{UNIX_SOCKETS}.dir")))
    assert directory.stat().st_mode & 0o077 == 0
    assert spark.range(10).mapInArrow(lambda batches: batches, "id long").count() == 10
    assert any(path.is_socket() for path in directory.iterdir())


def test_a_cache_too_far_down_for_a_socket_or_another_machine_means_tcp(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert f"{UNIX_SOCKETS}.enabled" not in _for_a_machine(parse_master("spark://far:7077"), {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("long" * 20)))
    assert f"{UNIX_SOCKETS}.enabled" not in _for_a_machine(parse_master("local[2]"), {})
    assert not (tmp_path / ("long" * 20)).exists()


def test_workers_run_the_interpreter_that_runs_here(spark: SparkSession) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_the_checkpoint_manager_of_the_setting_exists(spark: SparkSession) -> None:
    name = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert spark._jvm is not None
    assert spark._jvm.java.lang.Class.forName(name).getName() == name


def test_the_class_data_archive_is_really_mapped(spark: SparkSession) -> None:
    """Java says nothing when it does not like an archive; the memory map of the process does."""
    archive = find_archive(find_java(), require_pyspark())
    assert spark._jvm is not None
    machine = spark._jvm.java.lang.ProcessHandle.current().pid()
    with open(f"/proc/{machine}/maps", encoding="utf-8") as maps:
        assert str(archive) in maps.read()


def test_a_second_call_gives_the_session_that_runs(spark: SparkSession) -> None:
    again = headwater.spark.session("other", "local[2]", spark_sql_shuffle_partitions=3)
    try:
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_another_master_in_the_same_process_is_refused(spark: SparkSession) -> None:
    with pytest.raises(RequestError, match=r"a Spark session on local\[2\] runs in this process"):
        headwater.spark.session("other", "local[1]")


def test_without_pyspark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(RequestError, match=r'pip install "headwater\[spark\]"'):
        headwater.spark.session("none")
