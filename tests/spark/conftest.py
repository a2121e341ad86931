"""One Spark session for all tests of a run that need one: a session is dear, so it is shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import headwater.spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two threads of this process, made for short jobs."""
    session = headwater.spark.session(
        "headwater tests",
        "local[2]",
        spark_driver_memory="1g",
        # Jobs of a second end before the slow compiler has earned its keep.
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1",
    )
    yield session
    session.stop()
