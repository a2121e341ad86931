"""One Spark session for all tests of a run that need one: a session is dear, so it is shared.

The class-data archive in the user's cache is made once for a machine. It takes half a minute and
gives it back within a few starts of a JVM, of which a run has many.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import headwater.spark
from headwater.spark.archive import find_archive, make_archive
from headwater.spark.java import find_java
from headwater.spark.sessions import require_pyspark

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
    yield session
    session.stop()
