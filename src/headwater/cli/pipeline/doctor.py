"""`headwater pipeline doctor`: what is there for Spark, does a small job run, is a topic read?

The last part writes a topic and reads it as jobs do, in a directory that is made for it and
removed. Executors on other machines see it only where `--path` names a directory that all share,
and never a server on this machine's loopback address; what cannot be tried there is reported, and
is no failure.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

import headwater
from headwater.cli.doctor import (
    BAD,
    NOTE,
    DoctorCheck,
    bad_ones,
    checks_as_json,
    fail_when_bad,
    say_checks,
)
from headwater.cli.option_groups import JsonOption
from headwater.cli.output import say_json
from headwater.cli.pipeline.flags import ConfFlag, MasterFlag, RunOptions
from headwater.cli.pipeline.job_run import progress_bar, session_for
from headwater.core.clock import SystemClock
from headwater.core.errors import HeadwaterError, RequestError
from headwater.core.units import GIB, US_PER_S
from headwater.disk.cache import scratch_directory
from headwater.spark.runtime.optimizations import optimize
from headwater.spark.sessions.class_archive import find_archive, make_archive
from headwater.spark.sessions.java import Java, JavaMissingError, Passed, find_java
from headwater.spark.sessions.package_zip import hosts_that_miss
from headwater.spark.sessions.session import INSTALL
from headwater.spark.sessions.spark_errors import JobFailedError, explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.sessions.package_zip import Executor


TASKS = 4


def doctor(
    master: MasterFlag = "local[*]",
    conf: ConfFlag = None,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare",
            help="Make the class-data archive too: about half a minute once, then Spark starts "
            "in half the time.",
        ),
    ] = False,
    run: Annotated[
        bool,
        typer.Option("--run/--no-run", help="Run a small job, write and read a topic."),
    ] = True,
    path: Annotated[
        Path | None,
        typer.Option(
            "--path",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Where the topic is written and removed: a directory that all executors see. "
            "Temporary files go there unless said.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what the pipeline finds here: Java, Spark, table libraries, cores and memory.

    Then a small job is run on the master, its executors say what they have, and a topic is written
    and read: as batch, as stream, by the sink. Exit code 2 when something that jobs need is
    missing or fails.
    """
    run_options = RunOptions(master=master, conf=conf, as_json=as_json)
    checks = [*_software(), _machine()]
    java = _java(checks)
    if java is not None and not bad_ones(checks):
        checks.append(_archive(java, prepare=prepare))
        if run:
            checks += _job(run_options, path)
    elif run:
        checks.append(DoctorCheck("small job", "not run: something above is missing", BAD))
    if as_json:
        say_json(checks_as_json(checks))
    else:
        say_checks(checks)
    fail_when_bad(checks, RequestError.exit_code)


def _software() -> list[DoctorCheck]:
    checks = [DoctorCheck("python", f"{platform.python_version()}, {sys.executable}")]
    for package in ("pyspark", "pyarrow", "numpy", "pandas"):
        installed = _version(package)
        if installed is None:
            checks.append(DoctorCheck(package, "missing", BAD, f"run `{INSTALL}`"))
        else:
            checks.append(DoctorCheck(package, installed))
    for package, format_name in (("deltalake", "Delta"), ("pyiceberg", "Iceberg")):
        installed = _version(package)
        if installed is None:
            advice = f"for {format_name} tables: run `{INSTALL}`"
            checks.append(DoctorCheck(package, "missing", NOTE, advice))
        else:
            checks.append(DoctorCheck(package, installed))
    return checks


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _machine() -> DoctorCheck:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    return DoctorCheck("machine", f"{cores} cores, {memory / GIB:,.1f} GiB of memory")


def _java(checks: list[DoctorCheck]) -> Java | None:
    passed: list[Passed] = []
    try:
        java = find_java(passed=passed)
    except JavaMissingError as error:
        checks.append(DoctorCheck("java", "none that Spark runs on", BAD, str(error)))
        return None
    line = f"{java.version} from {java.origin}, {java.real_home}"
    seen = "; ".join(f"{each.program}: {each.why}" for each in passed)
    checks.append(
        DoctorCheck("java", line, NOTE if seen else "ok", f"not taken: {seen}" if seen else "")
    )
    return java


def _archive(java: Java, *, prepare: bool) -> DoctorCheck:
    spark_version = _version("pyspark") or ""
    archive = find_archive(java, spark_version)
    if archive is None and prepare:
        with progress_bar("pipeline doctor") as progress:
            progress.say("making the class-data archive")
            archive = make_archive(java, spark_version)
    if archive is None:
        advice = "`headwater pipeline doctor --prepare` makes Spark start in half the time"
        return DoctorCheck("class-data archive", "none", NOTE, advice)
    return DoctorCheck("class-data archive", str(archive))


def _job(run_options: RunOptions, shared: Path | None) -> list[DoctorCheck]:
    from headwater.spark.sessions.package_zip import probe

    clock = SystemClock()
    started_us = clock.monotonic_us()
    try:
        with explained(), progress_bar("pipeline doctor") as progress:
            progress.say("starting Spark")
            with session_for("doctor", run_options) as spark:
                ready_us = clock.monotonic_us()
                progress.say("running a small job")
                executors = probe(spark, TASKS)
                ended_us = clock.monotonic_us()
                progress.say("writing and reading a topic")
                hosts = {each.host for each in executors}
                more = [optimizations(spark), *try_topic(spark, shared, hosts, TASKS)]
    except HeadwaterError as error:
        return [DoctorCheck("small job", "failed", BAD, str(error))]
    line = (
        f"on {run_options.master}: session in {(ready_us - started_us) / US_PER_S:.1f} s, "
        f"{TASKS} tasks in {(ended_us - ready_us) / US_PER_S:.1f} s"
    )
    return [DoctorCheck("small job", line), *_executors(executors), *more]


def _executors(executors: list[Executor]) -> list[DoctorCheck]:
    checks = [
        DoctorCheck("executor", line) for line in dict.fromkeys(map(_executor_line, executors))
    ]
    missing = {name for each in executors for name, version in each.modules.items() if not version}
    if missing:
        advice = "install them for the Python of every executor, or set PYSPARK_PYTHON"
        checks.append(DoctorCheck("executor modules", f"missing: {sorted(missing)}", BAD, advice))
    return checks


def _executor_line(executor: Executor) -> str:
    modules = ", ".join(
        f"{name} {version}" for name, version in executor.modules.items() if version
    )
    return f"{executor.host}: python {executor.python}, headwater in {executor.package}, {modules}"


RECORDS: Final = 300
WAIT_S: Final = 120
BATCH: Final = "topic as batch"
STREAM: Final = "topic as stream"
SINK: Final = "topic by the sink"
_TOPIC: Final = "doctor"
_WRITTEN: Final = "doctor-sink"
_VIEW: Final = "headwater_doctor"
_FIELDS: Final = "n long"

Row = tuple[str, int]


def optimizations(spark: SparkSession) -> DoctorCheck:
    """What is faster on this Spark by its insides, and what is not."""
    optimized = optimize(spark)
    active = ", ".join(name for name, is_active in optimized.items() if is_active) or "none"
    missing = ", ".join(name for name, is_active in optimized.items() if not is_active)
    result = f"on Spark {spark.version}: {active}"
    if not missing:
        return DoctorCheck("optimizations", result)
    advice = f"queries are right and slower: this session has no {missing}"
    return DoctorCheck("optimizations", f"{result}; not active: {missing}", NOTE, advice)


def try_topic(
    spark: SparkSession, shared: Path | None, hosts: set[str], tasks: int
) -> list[DoctorCheck]:
    """Write a topic, read it each way, compare; `hosts` are those of the executors."""
    with scratch_directory("headwater-doctor-", shared) as made:
        directory = Path(made).absolute()
        trial = _Trial(spark, directory)
        written = _tried("topic written", trial.write)
        if written.verdict == BAD:
            return [written]
        missed = hosts_that_miss(spark, trial.marker, tasks)
        if missed:
            result = f"not tried: {directory} is not seen on {', '.join(sorted(missed))}"
            advice = "to try a topic on these executors, name a directory all see with --path DIR"
            return [
                written,
                *(DoctorCheck(what, result, NOTE, advice) for what in (BATCH, STREAM, SINK)),
            ]
        checks = [written, _tried(BATCH, trial.batch), _tried(STREAM, trial.stream)]
        elsewhere = hosts - {platform.node()}
        if elsewhere:
            result = f"not tried: {', '.join(sorted(elsewhere))} cannot reach a server on loopback"
            return [*checks, DoctorCheck(SINK, result, NOTE)]
        return [*checks, _tried(SINK, trial.sink)]


def _tried(what: str, work: Callable[[], str]) -> DoctorCheck:
    clock = SystemClock()
    started_us = clock.monotonic_us()
    try:
        with explained():
            result = work()
    except Exception as error:  # any failure is what the doctor reports
        return DoctorCheck(what, "failed", BAD, f"{what}: {type(error).__name__}: {error}")
    return DoctorCheck(what, f"{result} in {(clock.monotonic_us() - started_us) / US_PER_S:.1f} s")


class _Trial:
    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._data = directory / "data"
        self.marker = directory / "seen"
        self._expected: list[Row] = sorted((f"t{n % 3}", n) for n in range(RECORDS))

    def write(self) -> str:
        self.marker.touch()
        with headwater.open(self._data) as db:
            db.append(_TOPIC, [{"data": {"n": n}, "tag": f"t{n % 3}"} for n in range(RECORDS)])
        return f"{RECORDS} records, by the library"

    def batch(self) -> str:
        whole = self._load(_TOPIC)
        self._compare(whole)
        half = RECORDS // 2
        if (count := whole.where(f"seq > {half}").count()) != RECORDS - half:
            raise JobFailedError(f"{count} records instead of {RECORDS - half} are behind {half}")
        return f"{RECORDS} records"

    def stream(self) -> str:
        options = {"path": str(self._data), "topic": _TOPIC, "fields": _FIELDS}
        rows = self._spark.readStream.format("headwater").options(**options).load()
        memory = rows.select("tag", "n").writeStream.format("memory").queryName(_VIEW)
        location = (self._directory / "checkpoint").as_uri()
        query = memory.option("checkpointLocation", location).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(WAIT_S):
                raise JobFailedError(f"the query did not end within {WAIT_S} s")
        finally:
            query.stop()
        self._compare(self._spark.table(_VIEW))
        return f"{RECORDS} records, availableNow"

    def sink(self) -> str:
        rows = self._load(_TOPIC).select("tag", "data")
        with _server(self._data) as url:
            rows.write.format("headwater").mode("append").options(url=url, topic=_WRITTEN).save()
            self._compare(self._load(_WRITTEN))
        return f"{RECORDS} records to a server, and back"

    def _load(self, topic: str) -> DataFrame:
        options = {"path": str(self._data), "topic": topic, "fields": _FIELDS}
        return self._spark.read.format("headwater").options(**options).load()

    def _compare(self, rows: DataFrame) -> None:
        read = sorted((row["tag"], row["n"]) for row in rows.select("tag", "n").collect())
        if read != self._expected:
            alike = len(set(read) & set(self._expected))
            raise JobFailedError(
                f"of {RECORDS} records that were written {alike} were read, in {len(read)} rows"
            )


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    """A server over this directory, without the settings in the user's environment."""
    words = [sys.executable, "-m", "headwater", "serve", "--data-dir", str(directory)]
    words += ["--port", "0", "--rcpx-port", "off", "--kafka-port", "off"]
    clean = {name: text for name, text in os.environ.items() if not name.startswith("HEADWATER_")}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(words, env=clean, text=True, **pipes)  # type: ignore[call-overload]
    try:
        yield _address(process.stdout)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(lines: Iterator[str]) -> str:
    said = []
    for line in lines:
        said.append(line.strip())
        if line.startswith("listening on "):
            return f"http://127.0.0.1:{line.split()[2].rpartition(':')[2]}"
    raise JobFailedError(f"the server did not start: {' | '.join(said[-4:])}")
