"""From a job and its options to a session, a bar, a report on the terminal, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from headwater.cli.output import complain, printable, say_json
from headwater.cli.pipeline.flags import RunOptions
from headwater.core.clock import SystemClock
from headwater.core.errors import AccessError
from headwater.disk import PosixDisk, replace_file
from headwater.engine.maintenance.reports import keep_report
from headwater.spark.jobs.job import NoProgress, Report
from headwater.spark.jobs.job import Progress as JobProgress
from headwater.spark.sessions.spark_errors import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OptionsT = TypeVar("OptionsT")
ReportT = TypeVar("ReportT", bound=Report)


def run_job(
    name: str,
    job: Callable[[SparkSession, OptionsT, JobProgress | None], ReportT],
    options: OptionsT,
    run_options: RunOptions,
    show: Callable[[ReportT], None],
) -> None:
    """Run it, show its report, and exit with 0 only when all is well."""
    with explained(), progress_bar(name) as progress:
        progress.say("starting Spark")
        with session_for(name, run_options) as spark:
            progress.say(name)
            report = job(spark, options, progress)
    keep_run(name, report, options)
    finish_job(name, report, run_options, show)


def finish_job(
    name: str, report: ReportT, run_options: RunOptions, show: Callable[[ReportT], None]
) -> None:
    """Print a job's report, in the form that was requested."""
    if run_options.report is not None:
        _write_report(report, run_options)
    if run_options.as_json:
        say_json(report.as_json())
    else:
        show(report)
    if not report.ok:
        complain(f"{name}: not all is well; the report says what")
        raise typer.Exit(report.exit_code)


@contextmanager
def session_for(name: str, run_options: RunOptions) -> Iterator[SparkSession]:
    """A session for one job; it is over with the block, however that ends."""
    from headwater.spark.sessions.session import start

    spark = start(
        f"headwater {name}", run_options.master, dict(run_options.settings()), use_launcher=True
    )
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def progress_bar(name: str) -> Iterator[JobProgress]:
    """A progress bar on stderr while the job runs, when stderr is a terminal."""
    if not sys.stderr.isatty():
        yield NoProgress()
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        yield _Bar(bar, name)


class _Bar:
    def __init__(self, bar: Progress, name: str) -> None:
        self._bar = bar
        self._task = bar.add_task(name, total=None)

    def total(self, count: int) -> None:
        self._bar.update(self._task, total=count)

    def advance(self, count: int) -> None:
        self._bar.advance(self._task, count)

    def say(self, text: str) -> None:
        # Names of topics are in it, and rich would read their brackets.
        self._bar.update(self._task, description=printable(text).replace("[", "\\["))


def keep_run(name: str, report: Report, options: object) -> None:
    """For the dashboard, when the job worked on a data directory that a server has served."""
    path = getattr(getattr(options, "place", options), "path", None)
    if path is not None:
        at_ms = SystemClock().wall_ms()
        keep_report(PosixDisk(), PurePath(path), f"pipeline-{name}", at_ms, report.as_json())


def _write_report(report: Report, run_options: RunOptions) -> None:
    assert run_options.report is not None
    text = msgspec.json.format(msgspec.json.encode(report.as_json()), indent=2)
    try:
        replace_file(PosixDisk(), run_options.report.absolute(), text + b"\n")
    except OSError as error:
        why = (error.strerror or "").lower()
        raise AccessError(
            f"the report cannot be written ({why})", path=run_options.report
        ) from error
