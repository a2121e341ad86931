"""`headwater pipeline doctor`: what is there for Spark, does a small job run, is a topic read?"""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.doctor import BAD, NOTE, Check
from headwater.cli.output import complain, printable, say, say_json, say_table
from headwater.cli.pipeline_flags import ConfFlag, MasterFlag, Running
from headwater.cli.pipeline_running import session_for, watching
from headwater.cli.place import JsonOption
from headwater.core.clock import SystemClock
from headwater.core.errors import HeadwaterError, RequestError
from headwater.core.units import GIB, US_PER_S
from headwater.spark.sessions.class_archive import find_archive, make_archive
from headwater.spark.sessions.java import Java, JavaMissingError, Passed, find_java
from headwater.spark.sessions.session import INSTALL
from headwater.spark.sessions.spark_errors import explained

if TYPE_CHECKING:
    from headwater.spark.sessions.executor_probe import Executor

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
    running = Running(master=master, conf=conf, as_json=as_json)
    checks = [*_software(), _machine()]
    java = _java(checks)
    if java is not None and not _bad(checks):
        checks.append(_archive(java, prepare=prepare))
        if run:
            checks += _job(running, path)
    elif run:
        checks.append(Check("small job", "not run: something above is missing", BAD))
    _tell(checks, as_json=as_json)


def _bad(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.verdict == BAD]


def _tell(checks: list[Check], *, as_json: bool) -> None:
    bad = _bad(checks)
    # Several packages are missed for the same reason.
    advice = list(dict.fromkeys(check.advice for check in checks if check.advice))
    if as_json:
        found: list[dict[str, Any]] = [
            {"what": c.what, "found": c.found, "verdict": c.verdict, "advice": c.advice}
            for c in checks
        ]
        say_json({"ok": not bad, "checks": found})
    else:
        say_table(["check", "found", ""], [[c.what, c.found, c.verdict] for c in checks])
        for line in advice:
            say(f"- {printable(line)}")
    if bad:
        complain(f"{bad[0].what}: {bad[0].found}")
        raise typer.Exit(RequestError.exit_code)


def _software() -> list[Check]:
    checks = [Check("python", f"{platform.python_version()}, {sys.executable}")]
    for package in ("pyspark", "pyarrow", "numpy", "pandas"):
        found = _version(package)
        if found is None:
            checks.append(Check(package, "missing", BAD, f"run `{INSTALL}`"))
        else:
            checks.append(Check(package, found))
    for package, format_name in (("deltalake", "Delta"), ("pyiceberg", "Iceberg")):
        found = _version(package)
        if found is None:
            advice = f"for {format_name} tables: run `{INSTALL}`"
            checks.append(Check(package, "missing", NOTE, advice))
        else:
            checks.append(Check(package, found))
    return checks


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _machine() -> Check:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0))
    return Check("machine", f"{cores} cores, {memory / GIB:,.1f} GiB of memory")


def _java(checks: list[Check]) -> Java | None:
    passed: list[Passed] = []
    try:
        java = find_java(passed=passed)
    except JavaMissingError as error:
        checks.append(Check("java", "none that Spark runs on", BAD, str(error)))
        return None
    told = f"{java.version} from {java.origin}, {java.real_home}"
    seen = "; ".join(f"{each.program}: {each.why}" for each in passed)
    checks.append(Check("java", told, NOTE if seen else "ok", f"not taken: {seen}" if seen else ""))
    return java


def _archive(java: Java, *, prepare: bool) -> Check:
    spark_version = _version("pyspark") or ""
    found = find_archive(java, spark_version)
    if found is None and prepare:
        with watching("pipeline doctor") as progress:
            progress.say("making the class-data archive")
            found = make_archive(java, spark_version)
    if found is None:
        advice = "`headwater pipeline doctor --prepare` makes Spark start in half the time"
        return Check("class-data archive", "none", NOTE, advice)
    return Check("class-data archive", str(found))


def _job(running: Running, shared: Path | None) -> list[Check]:
    from headwater.cli.pipeline_trial import optimizations, try_topic
    from headwater.spark.sessions.executor_probe import probe

    clock = SystemClock()
    started_us = clock.monotonic_us()
    try:
        with explained(), watching("pipeline doctor") as progress:
            progress.say("starting Spark")
            with session_for("doctor", running) as spark:
                ready_us = clock.monotonic_us()
                progress.say("running a small job")
                executors = probe(spark, TASKS)
                ended_us = clock.monotonic_us()
                progress.say("writing and reading a topic")
                hosts = {each.host for each in executors}
                more = [optimizations(spark), *try_topic(spark, shared, hosts, TASKS)]
    except HeadwaterError as error:
        return [Check("small job", "failed", BAD, str(error))]
    told = (
        f"on {running.master}: session in {(ready_us - started_us) / US_PER_S:.1f} s, "
        f"{TASKS} tasks in {(ended_us - ready_us) / US_PER_S:.1f} s"
    )
    return [Check("small job", told), *_executors(executors), *more]


def _executors(executors: list[Executor]) -> list[Check]:
    checks = [Check("executor", told) for told in dict.fromkeys(map(_told, executors))]
    missing = {name for each in executors for name, found in each.modules.items() if not found}
    if missing:
        advice = "install them for the Python of every executor, or set PYSPARK_PYTHON"
        checks.append(Check("executor modules", f"missing: {sorted(missing)}", BAD, advice))
    return checks


def _told(executor: Executor) -> str:
    modules = ", ".join(f"{name} {found}" for name, found in executor.modules.items() if found)
    return f"{executor.host}: python {executor.python}, headwater in {executor.package}, {modules}"
