"""The verbs, put together. A new verb is a module with a function, and one line here."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater import __version__
from headwater.cli import context as saved
from headwater.cli import topic as topics
from headwater.cli.backup import backup
from headwater.cli.bench import bench
from headwater.cli.delete import delete
from headwater.cli.doctor import doctor
from headwater.cli.door import FriendlyGroup
from headwater.cli.output import say
from headwater.cli.pipeline import pipeline
from headwater.cli.read import read, tail, watch
from headwater.cli.restore import restore
from headwater.cli.serve import serve
from headwater.cli.show import show
from headwater.cli.stats import stats
from headwater.cli.verify import verify
from headwater.cli.wal_dump import dump
from headwater.cli.wal_repair import repair
from headwater.cli.wal_verify import verify as verify_wal
from headwater.cli.write import write

app = typer.Typer(
    name="headwater",
    cls=FriendlyGroup,
    help="One durable event log for one machine.",
    epilog="Exit codes: 0 fine, 2 the request was wrong, 3 try again later, 4 the directory is "
    "in use, 5 a file or disk needs you, 70 a bug in Headwater.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
wal = typer.Typer(
    cls=FriendlyGroup,
    help="Look into the write-ahead log of a data directory, and mend it.",
    rich_markup_mode="markdown",
)


topic = typer.Typer(
    cls=FriendlyGroup,
    help="Make, list, look at and drop topics of a server.",
    rich_markup_mode="markdown",
)
context = typer.Typer(
    cls=FriendlyGroup,
    help="Remember servers by name, with their keys.",
    rich_markup_mode="markdown",
)


@app.callback(invoke_without_command=True)
def _headwater(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    if version:
        say(f"headwater {__version__}")
        raise typer.Exit
    _help_when_alone(context)


@wal.callback(invoke_without_command=True)
@topic.callback(invoke_without_command=True)
@context.callback(invoke_without_command=True)
@pipeline.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    _help_when_alone(context)


def _help_when_alone(context: typer.Context) -> None:
    """A forgotten verb gets the list of verbs, and an exit code that scripts notice."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            say(text)
        raise typer.Exit(2)


app.command("serve")(serve)
app.add_typer(topic, name="topic")
topic.command("create")(topics.create)
topic.command("list")(topics.listed)
topic.command("show")(topics.show)
topic.command("delete")(topics.drop)
app.command("write")(write)
app.command("read")(read)
app.command("tail")(tail)
app.command("watch")(watch)
app.command("delete")(delete)
app.command("stats")(stats)
app.command("bench")(bench)
app.command("doctor")(doctor)
app.add_typer(context, name="context")
context.command("add")(saved.add)
context.command("use")(saved.use)
context.command("list")(saved.show)
context.command("remove")(saved.remove)
app.add_typer(wal, name="wal")
wal.command("verify")(verify_wal)
wal.command("dump")(dump)
wal.command("repair")(repair)
app.add_typer(pipeline, name="pipeline")
app.command("backup")(backup)
app.command("restore")(restore)
app.command("verify")(verify)
app.command("show")(show)


def main() -> None:
    app(prog_name="headwater")
