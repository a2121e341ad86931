"""What a session of ours is set to."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_session_counts_rows_through_python_workers(spark: SparkSession) -> None:
    rows = spark.range(1_000).mapInArrow(lambda batches: batches, "id long").count()
    assert rows == 1_000
