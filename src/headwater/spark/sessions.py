"""One call for a Spark session in which everything is set.

Java is found, workers run the interpreter that runs now, everything stays on the loopback
address unless a cluster elsewhere is named, Arrow and filter pushdown are on, times are in UTC,
the source is registered. Whatever is given as `conf` wins over what is set here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headwater.core.errors import RequestError
from headwater.core.units import GIB, MIB
from headwater.disk.cache import cache_directory, read_cached, write_cached
from headwater.spark.archive import archive_options
from headwater.spark.java import find_java
from headwater.spark.masters import Master, parse_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE_MODULE: Final = "headwater.spark.source"
SOURCE_CLASS: Final = "HeadwaterDataSource"
LOOPBACK: Final = "127.0.0.1"
INSTALL: Final = 'pip install "headwater[spark]"'
DRIVER_MEMORY_LEAST: Final = 1 * GIB
DRIVER_MEMORY_MOST: Final = 4 * GIB
DRIVER_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_ALWAYS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # A rename instead of the file-context dance: about 60 ms less for every micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_QUIET: Final = b"""\
# Written by Headwater: only what is wrong, one line each, on stderr.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex
"""

Setting = str | int | float | bool | None


def session(name: str, master: str = "local[*]", **conf: Setting) -> SparkSession:
    """A session with everything set, or the one that runs already.

    `conf` has Spark's own settings, with dots (`**{"spark.ui.enabled": True}`) or with
    underscores for dots (`spark_ui_enabled=True`); None takes a setting of ours away. Started by
    spark-submit, its master and its Java count.
    """
    require_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    wanted = {_dotted(key): value for key, value in conf.items()}
    running = SparkContext._active_spark_context
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if running is None and not submitted:
        settings = _settings(parse_master(master), wanted)
    else:
        if running is not None and not submitted and running.master != master:
            raise RequestError(
                f"a Spark session on {running.master} runs in this process, so there can be none "
                f"on {master}; stop that one first, or ask for its master"
            )
        settings = {**_ALWAYS, **_texts(wanted)}
    builder = SparkSession.builder.appName(name)
    if not submitted:
        builder = builder.master(master)
    for key, value in settings.items():
        if value is not None:
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make the session know the format "headwater"."""
    if importlib.util.find_spec(SOURCE_MODULE) is not None:
        spark.dataSource.register(getattr(importlib.import_module(SOURCE_MODULE), SOURCE_CLASS))


def require_pyspark() -> str:
    """The version of PySpark, or an error that says how to get it."""
    try:
        import pyspark
    except ImportError as error:
        raise RequestError(
            f"the pipeline needs PySpark, which is not installed here: run `{INSTALL}`"
        ) from error
    return str(pyspark.__version__)


def _settings(master: Master, wanted: Mapping[str, Setting]) -> dict[str, str | None]:
    """What a new session starts with. Sets the environment its processes inherit."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    texts = _texts(wanted)
    ours = dict(_ALWAYS)
    ours["spark.driver.memory"] = f"{_driver_memory() // MIB}m"
    if master.on_this_machine:
        ours["spark.driver.host"] = LOOPBACK
        ours["spark.driver.bindAddress"] = LOOPBACK
    if master.cores is not None:
        # A shuffle of a laptop's size gains nothing from Spark's 200 pieces.
        ours["spark.sql.shuffle.partitions"] = str(max(2, master.cores))
    options = [f"-Dlog4j2.configurationFile={_quiet_logging()}"]
    options.append(archive_options(java, require_pyspark()))
    options.append(texts.get(DRIVER_JAVA_OPTIONS) or "")
    return {**ours, **texts, DRIVER_JAVA_OPTIONS: " ".join(filter(None, options))}


def _driver_memory() -> int:
    """A quarter of the machine, within bounds: the rest is for Python workers and file caches."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(memory // 4, DRIVER_MEMORY_LEAST), DRIVER_MEMORY_MOST)


def _quiet_logging() -> str:
    path = cache_directory("spark", "log4j2.properties")
    if read_cached(path) != _QUIET:
        write_cached(path, _QUIET)
    return str(path)


def _dotted(key: str) -> str:
    return key if "." in key else key.replace("_", ".")


def _texts(settings: Mapping[str, Setting]) -> dict[str, str | None]:
    """As Spark spells them: true, not True."""
    return {key: None if value is None else _text(value) for key, value in settings.items()}


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
