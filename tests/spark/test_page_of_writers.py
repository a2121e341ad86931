"""What docs/spark.md shows of writing to topics and tables is what happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater.spark
from tests.rig.server_process import ServerProcess
from tests.spark.test_page import PAGE, blocks

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
SHOWN = "http://127.0.0.1:4000"
SAYS = {
    'session("writing")': "[{'total': 6}, {'total': 7}, {'total': 8}, {'total': 9}]",
    'session("copying")': "10",
    'session("to a table")': "10",
    'session("landing")': "10 1\n[(45,)]\n9\n10",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


@pytest.mark.parametrize("sign", SAYS)
def test_the_examples_of_the_page_that_write_run(
    spark: SparkSession,
    server: ServerProcess,
    sign: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def session(*_: Any, **__: Any) -> SparkSession:
        return spark

    monkeypatch.setattr(headwater.spark, "session", session)
    (block,) = [text for text in blocks() if sign in text]
    block = block.replace(SHOWN, server.url).replace("/tmp/shop-data", "shop-data")
    block = block.replace("shop-data", str(tmp_path / "shop-data"))
    exec(compile(block, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.strip() == SAYS[sign]
