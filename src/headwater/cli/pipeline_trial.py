"""A topic that is written and read as jobs do it: what `pipeline doctor` tries in the end.

Everything happens in a directory that is made for it and removed. Executors on other machines see
it only where `--path` names a directory that all share, and never a server on this machine's
loopback address; what cannot be tried there is said, and is no failure.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import headwater
from headwater.cli.doctor import BAD, NOTE, DoctorCheck
from headwater.core.clock import SystemClock
from headwater.core.units import US_PER_S
from headwater.disk.cache import scratch_directory
from headwater.spark.sessions.executor_probe import hosts_that_miss
from headwater.spark.sessions.optimizations import optimize
from headwater.spark.sessions.spark_errors import JobFailedError, explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
