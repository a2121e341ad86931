"""`headwater pipeline replay`: instances of machines as of an offset or a time, from their log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.machine import MachinesPlace
from headwater.cli.output import printable, say, say_table, shown_path
from headwater.cli.pipeline.flags import (
    ON_THIS_MACHINE,
    DirectoryFlag,
    RunOptions,
)
from headwater.cli.pipeline.job_run import run_job
from headwater.cli.progress import parse_time
from headwater.cli.remote import ServerOptions, TokenOption
from headwater.core.errors import RequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.job import Progress
    from headwater.spark.jobs.machine_replay import LiveState, ReplayOptions, ReplayReport

OffsetFlag = Annotated[
    int | None,
    typer.Option("--at-offset", min=0, metavar="X", help="As of the entry there."),
]
TimeFlag = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="As of then: 2026-01-31T12:00:00Z."),
]
TableFlag = Annotated[
    str | None,
    typer.Option("--table", metavar="LOCATION", help="Write the rows there; shown else."),
]
FormatFlag = Annotated[
    str, typer.Option("--format", metavar="delta|parquet|iceberg", help="What the table is.")
]
CheckFlag = Annotated[
    bool,
    typer.Option(
        "--check", help="Compare with the live state: of --url, or of the directory, if stopped."
    ),
]
UrlFlag = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="With --check: the running server.")
]
LimitFlag = Annotated[
    int, typer.Option("--limit", min=0, metavar="N", help="Without --table: show so many.")
]


def replay(
    path: DirectoryFlag,
    at_offset: OffsetFlag = None,
    at: TimeFlag = None,
    table: TableFlag = None,
    table_format: FormatFlag = "delta",
    check: CheckFlag = False,
    url: UrlFlag = None,
    token: TokenOption = None,
    limit: LimitFlag = 100,
    run_options: RunOptions = ON_THIS_MACHINE,
) -> None:
    """Replay the log of state machines into a table of instances.

    As of the end of the log, or of an earlier offset or time, as far as it was not compacted away.
    A damaged log is refused with file and offset. With --check every difference from the live
    state is reported, and the exit code is 5 when there is one.
    """
    from headwater.spark.jobs import machine_replay as job

    if url is not None and not check:
        raise RequestError("--url is for --check; the log itself is read from --path")
    options = job.ReplayOptions(
        path=str(Path(path).absolute()),
        at_offset=at_offset,
        at_ms=None if at is None else parse_time(at),
        table=table if table is None or "://" in table else str(Path(table).absolute()),
        format=table_format,
        show=limit,
    )
    live = _live_state(path, url, token) if check else None

    def run(
        spark: SparkSession, replay_options: ReplayOptions, progress: Progress | None
    ) -> ReplayReport:
        return job.run(spark, replay_options, progress, live)

    run_job("replay", run, options, run_options, _show)


def _live_state(path: str, url: str | None, token: str | None) -> LiveState:
    from headwater.spark.jobs.machine_replay import live_state

    place = MachinesPlace(path if url is None else None, ServerOptions(url, token=token))
    with place.open() as machines:
        return live_state(machines)


def _show(report: ReplayReport) -> None:
    if report.rows:
        columns = ("instance_id", "machine", "version", "state", "ctx", "updated_at", "wal_offset")
        rows = [[*(str(row[name]) for name in columns), _marks(row)] for row in report.rows]
        say_table([*columns, ""], rows)
    if report.listed:
        rows = [[each.instance_id, each.what] for each in report.listed]
        say_table(["instance", "difference"], rows)
    counts = [
        [each.machine, str(each.version), each.state, f"{each.instances:,}"]
        for each in report.states
    ]
    if counts:
        say_table(["machine", "version", "state", "instances"], counts, "instances")
    where = "" if report.table is None else f" in {printable(report.table)}"
    say(
        f"{shown_path(report.source)}: {report.instances:,} instances{where}, "
        f"{report.deleted:,} deleted, as of {report.as_of}, from {report.entries:,} entries"
        f"{'' if report.snapshot is None else f' and {report.snapshot}'}, {report.seconds:,.1f} s"
    )
    if report.compared:
        say(
            f"{report.differences:,} of {report.compared:,} differ from the live state; "
            f"{report.changed_since:,} changed meanwhile"
        )


def _marks(row: dict[str, object]) -> str:
    return " ".join(name for name in ("deleted", "doubtful") if row[name])
