"""What a job's runner does around it: progress, the report in its forms, the exit code."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession

from headwater.cli.pipeline.flags import PlaceOptions, RunOptions
from headwater.cli.pipeline.job_run import finish_job
from headwater.core.errors import AccessError, RequestError
from headwater.spark.jobs.job import NoProgress, Place, Report, tasks_shown
from headwater.testing import ManualClock


class Found(Report, frozen=True, kw_only=True):
    place: Path
    names: tuple[str, ...] = ()


class Recorder:
    """What shows the progress, and remembers."""

    def __init__(self) -> None:
        self.most = 0
        self.done = 0
        self.threads: set[str] = set()

    def total(self, count: int) -> None:
        self.most = count

    def advance(self, count: int) -> None:
        self.done += count
        self.threads.add(threading.current_thread().name)

    def say(self, text: str) -> None:
        pass


@pytest.mark.spark
def test_every_task_of_a_job_is_told_to_who_watches(spark: SparkSession) -> None:
    watcher = Recorder()
    with tasks_shown(spark, watcher):
        spark.range(0, 1_000, 1, 6).mapInArrow(lambda batches: batches, "id long").count()
    assert watcher.most >= 6
    assert watcher.done == watcher.most
    assert watcher.threads == {"spark-tasks"}


@pytest.mark.spark
def test_an_action_that_is_over_between_two_looks_is_told_too(spark: SparkSession) -> None:
    watcher = Recorder()
    # This clock stands still: after the first look comes only the one at the end.
    with tasks_shown(spark, watcher, ManualClock()):
        spark.range(0, 1_000, 1, 5).mapInArrow(lambda batches: batches, "id long").count()
    assert watcher.most >= 5
    assert watcher.done == watcher.most


@pytest.mark.spark
def test_nobody_is_asked_when_nobody_watches(spark: SparkSession) -> None:
    for nobody in (None, NoProgress()):
        with tasks_shown(spark, nobody):
            assert "spark-tasks" not in {thread.name for thread in threading.enumerate()}


def test_a_report_that_is_well_ends_quietly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Found(ok=True, place=tmp_path, names=("a",))
    file = tmp_path / "report.json"
    shown: list[Found] = []
    finish_job("job", report, RunOptions(report=file), shown.append)
    assert shown == [report]
    wanted = {"ok": True, "place": str(tmp_path), "names": ["a"]}
    assert json.loads(file.read_text()) == wanted
    finish_job("job", report, RunOptions(as_json=True), shown.append)
    assert json.loads(capsys.readouterr().out) == wanted
    assert shown == [report], "with --json only JSON is printed"


def test_a_report_that_is_not_well_has_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    report = Found(ok=False, place=Path("x"))
    with pytest.raises(typer.Exit) as caught:
        finish_job("job", report, RunOptions(as_json=True), lambda _: None)
    assert caught.value.exit_code == 5
    told = capsys.readouterr()
    assert json.loads(told.out)["ok"] is False
    assert told.err == "headwater: job: not all is well; the report says what\n"


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="the report cannot be written"):
        finish_job(
            "job",
            Found(ok=True, place=tmp_path),
            RunOptions(report=tmp_path / "no" / "report.json"),
            lambda _: None,
        )


@pytest.mark.parametrize("text", ["spark.ui.enabled", "ui=true", "=x"])
def test_a_setting_that_is_none_of_sparks_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"is not KEY=VALUE"):
        RunOptions(conf=[text]).settings()


def test_settings_may_have_equal_signs_in_their_values() -> None:
    given = ["spark.executorEnv.A=b=c", "spark.x=1"]
    assert RunOptions(conf=given).settings() == {"spark.executorEnv.A": "b=c", "spark.x": "1"}


def test_a_job_reads_a_directory_or_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_TOKEN", "secret")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    here = str(Path("data").absolute())
    assert PlaceOptions("data", None, None, ["a"]).find() == Place(path=here, topics=("a",))
    assert PlaceOptions("s3://bucket/data", None, None, None).find().path == "s3://bucket/data"
    server = PlaceOptions(None, "host:4000", None, None).find()
    assert (server.url, server.token) == ("http://host:4000", "secret")
    assert server.reading() == {
        "url": "http://host:4000",
        "token": "secret",
        "topicPattern": ".*",
    }
    for path, url in ((None, None), ("data", "http://host")):
        with pytest.raises(RequestError, match="one of them"):
            PlaceOptions(path, url, None, None).find()
    with pytest.raises(RequestError, match="--token is for a server"):
        PlaceOptions("data", None, "secret", None).find()
