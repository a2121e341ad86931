"""The small job that tests run on every kind of master: `python -m tests.spark.small_job MASTER`.

A process of its own, because a process has one Spark. Prints what it found as one line of JSON.
"""

from __future__ import annotations

import sys

import msgspec

import headwater.spark
from headwater.spark.probe import Executor, probe
from tests.spark.conftest import QUICK

TASKS = 4


class Found(msgspec.Struct):
    application: str
    java: str
    """Where the driver's Java lives."""
    executors: list[Executor]


def main(master: str, *settings: str) -> None:
    given = dict(each.split("=", 1) for each in settings)
    quick = {"spark.driver.extraJavaOptions": QUICK, "spark.executor.extraJavaOptions": QUICK}
    memory = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    spark = headwater.spark.session("small job", master, **{**quick, **memory, **given})
    executors = probe(spark, TASKS)
    assert spark._jvm is not None
    java = spark._jvm.System.getProperty("java.home")
    found = Found(spark.sparkContext.applicationId, java, executors)
    spark.stop()
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
