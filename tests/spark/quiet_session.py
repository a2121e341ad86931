"""A program with a session of its own: `python -m tests.spark.quiet_session DIRECTORY`.

It reads a topic and hangs up on all workers, as Spark does by itself on those that were idle for a
minute. It prints what it read, how many daemons there are, and ends when their workers have.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from typing import Any

import headwater.spark
from headwater.spark.runtime import java_classes

HANG_UP = """\
import java.lang.reflect.Field;
import java.lang.reflect.Method;

public class HangUp {
  private static Object value(Class owner, String name, Object of) throws Exception {
    Field field = owner.getDeclaredField(name);
    field.setAccessible(true);
    return field.get(of);
  }

  public void run() throws Exception {
    // By fields: looking at the methods would load classes that are not there.
    Class owner = Class.forName("org.apache.spark.SparkEnv$");
    Object environment = value(owner, "env", value(owner, "MODULE$", null));
    Class kind = Class.forName("org.apache.spark.SparkEnv");
    Object workers = value(kind, "pythonWorkers", environment);
    scala.collection.Iterator factories =
      ((scala.collection.mutable.HashMap) workers).valuesIterator();
    while (factories.hasNext()) {
      Object factory = factories.next();
      Method[] methods = factory.getClass().getMethods();
      for (int i = 0; i < methods.length; i++) {
        if (methods[i].getName().endsWith("cleanupIdleWorkers")) {
          methods[i].invoke(factory, new Object[0]);
        }
      }
    }
  }
}
"""
WAIT_S = 60


def workers() -> list[int]:
    """Workers of Spark's own daemons below this process; dead ones do not count."""
    listed = subprocess.run(
        ["ps", "-wweo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    javas = {pid for pid, parent, *_ in rows if int(parent) == os.getpid()}
    own = [row for row in rows if "pyspark.daemon pyspark.sql.worker." in row[-1]]
    daemons = {pid for pid, parent, *_ in own if parent in javas}
    return [int(pid) for pid, parent, stat, _ in own if parent in daemons and stat[0] != "Z"]


def main(directory: str) -> None:
    spark = headwater.spark.session("quiet", "local[1]", spark_driver_memory="1g")
    reader = spark.read.format("headwater").options(path=directory, topic="orders")
    rows = reader.load().where("seq > 1").count()
    waiting = {pid: os.pidfd_open(pid) for pid in workers()}
    context: Any = spark.sparkContext
    java_classes.new(context._gateway, HANG_UP, "HangUp").run()
    for ended in waiting.values():
        select.select([ended], [], [], WAIT_S)
    sys.stdout.write(f"{rows} {len(waiting)} {len(workers())}\n")


if __name__ == "__main__":
    main(sys.argv[1])
