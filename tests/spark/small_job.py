"""The small job that tests run on every kind of master: it counts the records of a topic by tag.

`python -m tests.spark.small_job MASTER DIRECTORY TOPIC [KEY=VALUE...]`: a process of its own,
because a process has one Spark. Prints what it found as one line of JSON.
"""

from __future__ import annotations

import sys

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import headwater.spark
from headwater.spark.sessions.package_zip import Executor, probe
from tests.spark.conftest import QUICK

TASKS = 4


class SmallJobResult(msgspec.Struct):
    application: str
    java: str
    """Where the driver's Java lives."""
    executors: list[Executor]
    tags: dict[str, tuple[int, int, int]]
    """Tag -> how many records, bytes of payload, sum of a field."""


def count(spark: SparkSession, directory: str, topic: str) -> dict[str, tuple[int, int, int]]:
    reader = spark.read.format("headwater").option("path", directory).option("topic", topic)
    rows = reader.option("fields", "n long").option("rowsPerPartition", "100").load()
    result = rows.groupBy("tag").agg(
        f.count("*"), f.sum(f.octet_length("data")).alias("bytes"), f.sum("n")
    )
    return {tag: (records, size, total) for tag, records, size, total in result.collect()}


def main(master: str, directory: str, topic: str, *settings: str) -> None:
    given = dict(each.split("=", 1) for each in settings)
    quick = {"spark.driver.extraJavaOptions": QUICK, "spark.executor.extraJavaOptions": QUICK}
    memory = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    spark = headwater.spark.session("small job", master, **{**quick, **memory, **given})
    executors = probe(spark, TASKS)
    assert spark._jvm is not None
    java = spark._jvm.System.getProperty("java.home")
    tags = count(spark, directory, topic)
    result = SmallJobResult(spark.sparkContext.applicationId, java, executors, tags)
    spark.stop()
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
