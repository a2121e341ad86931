"""One call for a Spark session in which everything is set.

Java is found, workers run the interpreter that runs now, everything stays on the loopback
address unless a cluster elsewhere is named, Arrow and filter pushdown are on, times are in UTC,
the source is registered. Whatever is given as `conf` wins over what is set here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headwater.core.errors import RequestError
from headwater.core.units import GIB, MIB
from headwater.disk.cache import cache_directory, make_directories, read_cached, write_cached
from headwater.spark.runtime import fork_server
from headwater.spark.sessions.class_archive import find_archive, options_to_use
from headwater.spark.sessions.java import Java, find_java, with_launcher
from headwater.spark.sessions.package_zip import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_ELSEWHERE: Final = re.compile(r"spark://\S+|yarn|k8s://\S+|mesos://\S+")
_LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True, slots=True)
class Master:
    name: str
    on_this_machine: bool
    """Every executor is here, so that nothing needs to be reached from elsewhere."""
    in_this_process: bool
    """There are no executors of their own: no package has to be sent anywhere."""
    cores: int | None
    """How many tasks run at once, where the name says so."""


def parse_master(name: str) -> Master:
    """What `name` means, or an error that shows what may be written."""
    local = _LOCAL.fullmatch(name)
    if local is not None:
        threads = local[1] or "1"
        return Master(name, True, True, _cores() if threads == "*" else int(threads))
    cluster = _LOCAL_CLUSTER.fullmatch(name)
    if cluster is not None:
        return Master(name, True, False, int(cluster[1]) * int(cluster[2]))
    if _ELSEWHERE.fullmatch(name) is None:
        raise RequestError(
            f"{name!r} is no Spark master; write local[*], local[4], spark://HOST:PORT, yarn "
            "or k8s://URL"
        )
    hosts = name.removeprefix("spark://").split(",") if name.startswith("spark://") else []
    here = bool(hosts) and all(
        urlsplit(f"spark://{host}").hostname in _LOOPBACK_NAMES for host in hosts
    )
    return Master(name, here, False, None)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


LOOPBACK: Final = "127.0.0.1"
INSTALL: Final = 'pip install "headwater[spark]"'
DRIVER_MEMORY_LEAST: Final = 1 * GIB
DRIVER_MEMORY_MOST: Final = 4 * GIB
DRIVER_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
EXECUTOR_JAVA_OPTIONS: Final = "spark.executor.extraJavaOptions"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket"
SOCKET_DIRECTORY_BYTES_MAX: Final = 60
"""Systems want the path of a socket in about a hundred bytes, and Spark's names take 43."""

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
# Written by Headwater: only what is wrong, on stderr.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex
# Otherwise Spark would say at every start how to set the level.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# Python gets the exception of a task that failed.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
"""
_QUIET_JOBS: Final = (
    _QUIET
    + b"""\
# A job waits for its queries, and reports what ended one in fewer words.
logger.queries.name = org.apache.spark.sql.execution.streaming.runtime
logger.queries.level = off
"""
)

Setting = str | int | float | bool | None


def session(name: str, master: str = "local[*]", **conf: Setting) -> SparkSession:
    """A session with everything set, or the one that runs already.

    `conf` has Spark's own settings, with dots (`**{"spark.ui.enabled": True}`) or with
    underscores for dots (`spark_ui_enabled=True`); None takes a setting of ours away. Started by
    spark-submit, its master and its Java count.
    """
    return start(name, master, conf)


def start(
    name: str,
    master: str,
    conf: Mapping[str, Setting],
    *,
    use_archive: bool = True,
    use_launcher: bool = False,
) -> SparkSession:
    """The same for our own programs, which may go through the launcher to be spared a warning,
    and which report their errors themselves, not through Spark's log."""
    require_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    wanted = _texts({_dotted(key): value for key, value in conf.items()})
    running = SparkContext._active_spark_context
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings: dict[str, str | None] = {**_ALWAYS, **wanted}
    if running is not None and not submitted and running.master != master:
        raise RequestError(
            f"a Spark session on {running.master} runs in this process, so there can be none "
            f"on {master}; stop that one first, or name its master"
        )
    if running is None and not submitted:
        java = find_java()
        java = with_launcher(java) if use_launcher else java
        where = parse_master(master)
        _set_environment(java, where, wanted)
        settings = {**_for_a_machine(where, wanted), **settings}
        settings[DRIVER_JAVA_OPTIONS] = _options(
            f"-Dlog4j2.configurationFile={_quiet_logging(for_a_job=use_launcher)}",
            _archive_option(java, use_archive),
            wanted.get(DRIVER_JAVA_OPTIONS),
        )
        if where.on_this_machine and not where.in_this_process:
            settings[EXECUTOR_JAVA_OPTIONS] = _options(
                _archive_option(java, use_archive), wanted.get(EXECUTOR_JAVA_OPTIONS)
            )
    builder = SparkSession.builder.appName(name)
    if not submitted:
        builder = builder.master(master)
    for key, value in settings.items():
        if value is not None:
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if running is None:
        context = spark.sparkContext
        where = parse_master(str(context.master))
        ship(context, wanted, has_executors=not where.in_this_process)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make the session know the formats "headwater" and "headwater-table"."""
    from headwater.spark.runtime.optimizations import optimize
    from headwater.spark.runtime.planner_processes import end_lookup
    from headwater.spark.source.data_source import source_class
    from headwater.spark.tables.sink import TableDataSource

    spark.dataSource.register(source_class(spark))
    spark.dataSource.register(TableDataSource)
    end_lookup(spark)
    optimize(spark)


def require_pyspark() -> str:
    """The version of PySpark, or an error that says how to get it."""
    try:
        import pyspark
    except ImportError as error:
        raise RequestError(
            f"the pipeline needs PySpark, which is not installed here: run `{INSTALL}`"
        ) from error
    return str(pyspark.__version__)


def _set_environment(java: Java, master: Master, wanted: Mapping[str, str | None]) -> None:
    """What the JVM and the Python workers inherit. Spark reads these nowhere else."""
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    given = wanted.get("spark.pyspark.python")
    if given or master.on_this_machine:
        # Elsewhere there need not be an interpreter in the same place; the cluster has its own.
        os.environ["PYSPARK_PYTHON"] = given or sys.executable


def _for_a_machine(master: Master, wanted: Mapping[str, str | None]) -> dict[str, str]:
    """What depends on where the work is done."""
    ours = {"spark.driver.memory": f"{_driver_memory() // MIB}m"}
    if master.on_this_machine:
        ours["spark.driver.host"] = LOOPBACK
        ours["spark.driver.bindAddress"] = LOOPBACK
    if master.cores is not None:
        # A shuffle of a laptop's size gains nothing from Spark's 200 partitions.
        ours["spark.sql.shuffle.partitions"] = str(max(2, master.cores))
    if master.in_this_process and not wanted.get("spark.pyspark.python"):
        # Only where the workers surely have this package before anything is sent to them.
        ours["spark.python.daemon.module"] = fork_server.MODULE
    if master.in_this_process:
        ours |= _unix_sockets()
    return ours


def _unix_sockets() -> dict[str, str]:
    """Rows go from workers to Java without the work of TCP, and only this user can reach them."""
    directory = cache_directory("spark", "sockets")
    if len(os.fsencode(directory)) > SOCKET_DIRECTORY_BYTES_MAX:
        return {}
    make_directories(directory)
    return {f"{UNIX_SOCKETS}.enabled": "true", f"{UNIX_SOCKETS}.dir": str(directory)}


def _options(*parts: str | None) -> str | None:
    """Ours first: Java obeys the last of two options that contradict each other."""
    return " ".join(filter(None, parts)) or None


def _archive_option(java: Java, use_archive: bool) -> str | None:
    archive = find_archive(java, require_pyspark()) if use_archive else None
    return None if archive is None else options_to_use(java, archive)


def _driver_memory() -> int:
    """A quarter of the machine, within bounds: the rest is for Python workers and file caches."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(memory // 4, DRIVER_MEMORY_LEAST), DRIVER_MEMORY_MOST)


def _quiet_logging(*, for_a_job: bool) -> str:
    name, text = ("jobs", _QUIET_JOBS) if for_a_job else ("log4j2", _QUIET)
    path = cache_directory("spark", f"{name}.properties")
    if read_cached(path) != text:
        write_cached(path, text)
    return str(path)


def _dotted(key: str) -> str:
    return key if "." in key else key.replace("_", ".")


def _texts(settings: Mapping[str, Setting]) -> dict[str, str | None]:
    """As Spark spells them: true, not True."""
    return {key: None if value is None else _text(value) for key, value in settings.items()}


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
