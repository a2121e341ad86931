"""`headwater pipeline backfill`: rows of files, tables, Kafka topics become records of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import printable, say, say_table
from headwater.cli.pipeline.flags import (
    ON_THIS_MACHINE,
    PlaceOptions,
    RunOptions,
)
from headwater.cli.pipeline.job_run import run_job
from headwater.cli.remote import TokenOption
from headwater.core.errors import RequestError

if TYPE_CHECKING:
    from headwater.spark.jobs.backfill import BackfillReport

# By how the location ends, where no format is given.
FORMATS = {
    (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst"): "json",
    (".csv", ".csv.gz", ".csv.zst"): "csv",
    (".parquet",): "parquet",
}


LocationArgument = Annotated[
    str,
    typer.Argument(
        metavar="ORIGIN", help="A file, a directory, a pattern, a table, kafka://HOST:PORT/TOPIC."
    ),
]
TopicFlag = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="The topic that gets the records.")
]
ServerFlag = Annotated[str | None, typer.Option("--url", metavar="URL", help="Its server.")]
DirectoryFlag = Annotated[
    str | None,
    typer.Option("--path", metavar="DIR", help="With --straight: the stopped data directory."),
]
StraightFlag = Annotated[
    bool,
    typer.Option(
        "--straight", help="No server: into segments of a topic that is new in --path DIR."
    ),
]
FormatFlag = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="json|csv|parquet|delta|kafka",
        help="What ORIGIN is; json means one record a line. Known by the name's ending else.",
    ),
]
FieldsFlag = Annotated[
    str | None,
    typer.Option(
        "--fields",
        metavar="DDL",
        help="Columns of a CSV file with types, as in 'user string, amount long'; without it "
        "they are those of its first line, all text.",
    ),
]
DataFlag = Annotated[
    str | None,
    typer.Option("--data", metavar="COLUMN", help="The column with the payload; all columns else."),
]
TagFlag = Annotated[
    str | None,
    typer.Option("--tag", metavar="COLUMN", help="The column or JSON field with the tag."),
]
NodeFlag = Annotated[
    str | None,
    typer.Option("--node", metavar="COLUMN", help="The column or JSON field with the node."),
]
OrderFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--order-by",
        metavar="COLUMN",
        help="The topic gets the rows in this order; $.name is a field of a JSON payload.",
    ),
]
InOrderFlag = Annotated[
    bool, typer.Option("--in-order", help="Files by name, rows as they stand there.")
]
DurabilityFlag = Annotated[
    str | None,
    typer.Option("--durability", metavar="CLASS", help="Of the topic, if it is new: fsync, disk."),
]
WriteIdFlag = Annotated[
    str | None,
    typer.Option(
        "--write-id",
        metavar="NAME",
        help="Names the write: one that is there is not written again. Made of the rows else.",
    ),
]


def backfill(
    location: LocationArgument,
    topic: TopicFlag,
    url: ServerFlag = None,
    path: DirectoryFlag = None,
    straight: StraightFlag = False,
    token: TokenOption = None,
    origin_format: FormatFlag = None,
    fields: FieldsFlag = None,
    data: DataFlag = None,
    tag: TagFlag = None,
    node: NodeFlag = None,
    order_by: OrderFlag = None,
    in_order: InOrderFlag = False,
    durability: DurabilityFlag = None,
    write_id: WriteIdFlag = None,
    run_options: RunOptions = ON_THIS_MACHINE,
) -> None:
    """Write rows of files, of a table or of a Kafka topic to a topic, each exactly once.

    Every row is checked first: with one that can be no record, nothing is written and the exit
    code is 2. The same command again finishes what was interrupted and writes nothing twice.
    With --straight the topic is there whole when the command is done, or not at all.
    """
    from headwater.spark.jobs import backfill as job
    from headwater.spark.jobs.origins import Origin

    options = job.BackfillOptions(
        place=PlaceOptions(path, url, token, [topic]).find(),
        origin=Origin(
            format=origin_format or _format_of(location),
            location=location,
            fields=fields,
            data=data,
            tag=tag,
            node=node,
        ),
        order_by=tuple(order_by or ()),
        in_order=in_order,
        write_id=write_id,
        durability=durability,
        straight=straight,
    )
    run_job("backfill", job.run, options, run_options, _show)


def _format_of(location: str) -> str:
    if location.startswith(("kafka://", "kafkas://")):
        return "kafka"
    for endings, name in FORMATS.items():
        if location.lower().rstrip("/").endswith(endings):
            return name
    raise RequestError(
        f"say what {location!r} is with --format: json (one record a line), csv, parquet or delta"
    )


def _show(report: BackfillReport) -> None:
    if report.unfit:
        rows = [[row.file, row.text, row.why] for row in report.unfit_rows]
        say_table(["file", "first row that does not fit", "why"], rows)
        say(f"{report.unfit:,} rows can be no records; nothing was written")
        return
    rate = report.records / max(report.seconds, 0.001)
    say(
        f"{report.records:,} records from {report.files:,} files are in "
        f"{printable(report.topic)} ({report.seconds:.1f} s, {rate:,.0f} a second)"
    )
    if report.write_id:
        say(f"the write is called {report.write_id}; the same again changes nothing")
