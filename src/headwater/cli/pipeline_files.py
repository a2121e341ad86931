"""Flags of the jobs that work on files themselves: a data directory and its cold tier."""

from __future__ import annotations

from typing import Annotated

import typer

COLD_HELP = "The cold tier: a directory, or s3://bucket/prefix."

ColdFlag = Annotated[str | None, typer.Option("--cold", metavar="PLACE", help=COLD_HELP)]
DirectoryFlag = Annotated[
    str, typer.Option("--path", metavar="DIR", help="The data directory, in use or not.")
]
StoppedFlag = Annotated[
    str,
    typer.Option("--path", metavar="DIR", help="The data directory; no process may have it open."),
]
