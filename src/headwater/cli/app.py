"""The verbs, put together. A new verb is a module with a function, and one line here."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater import __version__
from headwater.cli.backup import backup
from headwater.cli.door import FriendlyGroup
from headwater.cli.output import say
from headwater.cli.restore import restore
from headwater.cli.serve import serve
from headwater.cli.show import show
from headwater.cli.verify import verify
from headwater.cli.wal_dump import dump
from headwater.cli.wal_repair import repair
from headwater.cli.wal_verify import verify as verify_wal

app = typer.Typer(
    name="headwater",
    cls=FriendlyGroup,
    help="One durable event log for one machine.",
    epilog="Exit codes: 0 fine, 2 the request was wrong, 3 try again later, 4 the directory is "
    "in use, 5 a file or disk needs you, 70 a bug in Headwater.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
wal = typer.Typer(
    cls=FriendlyGroup,
    help="Look into the write-ahead log of a data directory, and mend it.",
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
def _wal(context: typer.Context) -> None:
    _help_when_alone(context)


def _help_when_alone(context: typer.Context) -> None:
    """A forgotten verb gets the list of verbs, and an exit code that scripts notice."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            say(text)
        raise typer.Exit(2)


app.command("serve")(serve)
app.add_typer(wal, name="wal")
wal.command("verify")(verify_wal)
wal.command("dump")(dump)
wal.command("repair")(repair)
app.command("backup")(backup)
app.command("restore")(restore)
app.command("verify")(verify)
app.command("show")(show)


def main() -> None:
    app(prog_name="headwater")
