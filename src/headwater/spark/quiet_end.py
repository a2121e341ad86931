"""A session ends without a word from the processes that planned for it.

Spark plans with Python sources in processes of its own kind beside the driver, which wait for more
work when a query is done. At its end Spark hangs up on them before it ends them, and one that is
quick enough to notice prints a traceback about a broken pipe on the user's terminal. So they are
ended first, when Spark says that it is about to end and nobody plans any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.spark.java_classes import errors, new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTENER: Final = "HeadwaterQuietEnd"

_JAVA: Final = """\
import org.apache.spark.scheduler.SparkListenerApplicationEnd;

public class HeadwaterQuietEnd extends org.apache.spark.scheduler.SparkListener {
  private final ProcessHandle own;
  public HeadwaterQuietEnd(ProcessHandle own) { this.own = own; }

  public void onApplicationEnd(SparkListenerApplicationEnd end) {
    Object[] children = own.children().toArray();
    for (int i = 0; i < children.length; i++) {
      if (!plans((ProcessHandle) children[i])) continue;
      Object[] workers = ((ProcessHandle) children[i]).children().toArray();
      for (int j = 0; j < workers.length; j++) ((ProcessHandle) workers[j]).destroyForcibly();
    }
  }

  // Started as: python -m pyspark.daemon pyspark.sql.worker.WHAT_IT_DOES
  private static boolean plans(ProcessHandle process) {
    String[] words = (String[]) process.info().arguments().orElse(new String[0]);
    int last = words.length - 1;
    return last > 0 && words[last - 1].equals("pyspark.daemon")
      && words[last].startsWith("pyspark.sql.worker.");
  }
}
"""


def end_quietly(spark: SparkSession) -> bool:
    """Have it so for this session; false where that cannot be."""
    context: Any = spark.sparkContext
    gateway = getattr(context, "_gateway", None)
    if gateway is None:
        return False
    try:
        context._jsc.sc().addSparkListener(listener(gateway))
    except errors():
        return False
    return True


def listener(gateway: Any) -> Any:
    """What is told that the session ends."""
    handle = "java.lang.ProcessHandle"
    return new(gateway, _JAVA, _LISTENER, (handle, gateway.jvm.java.lang.ProcessHandle.current()))
