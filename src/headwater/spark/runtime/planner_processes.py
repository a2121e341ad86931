"""Processes that plan for a session end without printing a traceback.

Spark plans with Python sources in processes of its own kind beside the driver, which wait for more
work when a query is done. It hangs up on them when they were idle for a minute and at its own end,
and they print a traceback about a broken pipe on the user's terminal. Those that load this package
end quietly by that; the one that only lists installed sources, once, is ended after it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from headwater.spark.runtime.fork_server import polite
from headwater.spark.runtime.java_classes import errors, new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMON: Final = "pyspark.daemon"
LOOKUP: Final = "pyspark.sql.worker.lookup_data_sources"
_ENDING: Final = "HeadwaterEnding"
_HANDLE: Final = "java.lang.ProcessHandle"

_JAVA: Final = """\
public class HeadwaterEnding {
  private final ProcessHandle own;
  public HeadwaterEnding(ProcessHandle own) { this.own = own; }

  // The workers of the daemon that was started with these as its last words.
  public int workersOf(String daemon, String work) {
    int ended = 0;
    Object[] children = own.children().toArray();
    for (int i = 0; i < children.length; i++) {
      ProcessHandle child = (ProcessHandle) children[i];
      String[] words = (String[]) child.info().arguments().orElse(new String[0]);
      int last = words.length - 1;
      if (last < 1 || !words[last - 1].equals(daemon) || !words[last].equals(work)) continue;
      Object[] workers = child.children().toArray();
      for (int j = 0; j < workers.length; j++) {
        if (((ProcessHandle) workers[j]).destroyForcibly()) ended++;
      }
    }
    return ended;
  }
}
"""


def be_polite() -> None:
    """In a worker of Spark's own daemon: from its next task on, end quietly when hung up on."""
    main: Any = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", None) == DAEMON:
        main.worker = polite(main.worker)


def end_lookup(spark: SparkSession) -> int:
    """End the worker that looked for sources; gives how many there were.

    Spark lists them once for each JVM, at the latest when a source is registered.
    """
    gateway = getattr(spark.sparkContext, "_gateway", None)
    if gateway is None:
        return 0
    try:
        own = gateway.jvm.java.lang.ProcessHandle.current()
        return int(new(gateway, _JAVA, _ENDING, (_HANDLE, own)).workersOf(DAEMON, LOOKUP))
    except errors():
        return 0
