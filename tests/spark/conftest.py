"""One Spark session for all tests of a run that need one: a session is dear, so it is shared.

The class-data archive in the user's cache is made once for a machine. It takes half a minute and
gives it back within a few starts of a JVM, of which a run has many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headwater.spark
from headwater.cli.app import app
from headwater.cli.pipeline import job_run as pipeline_run
from headwater.spark.sessions.class_archive import find_archive, make_archive
from headwater.spark.sessions.java import find_java
from headwater.spark.sessions.session import require_pyspark

QUICK = "-XX:TieredStopAtLevel=1"
"""Jobs of a second end before Java's second compiler has earned its keep."""


@pytest.fixture(scope="session")
def class_data_archive() -> None:
    """Starting Spark twice as fast, for every test that does."""
    if find_archive(find_java(), require_pyspark()) is None:
        make_archive(find_java(), require_pyspark())


@pytest.fixture(autouse=True)
def _with_the_archive(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark") is not None:
        request.getfixturevalue("class_data_archive")


@pytest.fixture(scope="session")
def spark(class_data_archive: None) -> Iterator[SparkSession]:
    """A session on two threads of this process, made for short jobs."""
    session = headwater.spark.session(
        "headwater tests",
        "local[2]",
        spark_driver_memory="1g",
        spark_driver_extraJavaOptions=QUICK,
    )
    wanted = os.environ.get("SPARK_WANTED")
    assert wanted in (None, session.version), "the tests must not run on another Spark unseen"
    yield session
    session.stop()


@pytest.fixture
def headwater_pipeline(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """The command line, with the session that is there instead of one of its own."""

    @contextmanager
    def session_for(name: str, running: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(pipeline_run, "session_for", session_for)

    def run(*words: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["pipeline", *map(str, words)])
        return result.exit_code, result.output

    return run
