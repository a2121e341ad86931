"""A program with a session of its own: `python -m tests.spark.quiet_session DIRECTORY`.

It reads a topic and ends without stopping its session, as scripts do. Before that it prints how
many workers plan for it, before and after its listener is told that the end has come.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import headwater.spark
from headwater.spark import quiet_end


def planners() -> int:
    """Workers whose parent is a daemon that plans, below this process; dead ones do not count."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    javas = {pid for pid, parent, *_ in rows if int(parent) == os.getpid()}
    planning = [row for row in rows if "pyspark.daemon pyspark.sql.worker." in row[-1]]
    daemons = {pid for pid, parent, *_ in planning if parent in javas}
    return sum(1 for _, parent, stat, _ in planning if parent in daemons and stat[0] != "Z")


def main(directory: str) -> None:
    spark = headwater.spark.session("quiet", "local[1]", spark_driver_memory="1g")
    reader = spark.read.format("headwater").options(path=directory, topic="orders")
    rows = reader.load().where("seq > 1").count()
    before = planners()
    assert quiet_end.end_quietly(spark), "the listener cannot be made with this Spark"
    gateway: Any = getattr(spark.sparkContext, "_gateway")  # noqa: B009 - not in its type
    quiet_end.listener(gateway).onApplicationEnd(None)
    sys.stdout.write(f"{rows} {before} {planners()}\n")


if __name__ == "__main__":
    main(sys.argv[1])
