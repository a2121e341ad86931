"""Flags that pipeline jobs have in common, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.remote import ServerOptions, TokenOption
from headwater.core.errors import RequestError
from headwater.spark.jobs.job import Place

TopicFlag = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="A topic; may be given several times."),
]
MasterFlag = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where the work is done: local[*] is this machine, spark://HOST:PORT a cluster.",
    ),
]
ConfFlag = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's own; several times."),
]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job runs and reports, for every kind of job."""

    master: MasterFlag = "local[*]"
    conf: ConfFlag = None
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write the report there too, as JSON."),
    ] = None
    as_json: JsonOption = False

    def settings(self) -> dict[str, str]:
        settings: dict[str, str] = {}
        for text in self.conf or []:
            key, sign, value = text.partition("=")
            if not sign or not key.startswith("spark."):
                raise RequestError(f"--conf {text!r} is not KEY=VALUE, as in spark.ui.enabled=true")
            settings[key] = value
        return settings


ON_THIS_MACHINE: Final = RunOptions()


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """Where the topics are that a job is about."""

    path: Annotated[
        str | None,
        typer.Option(
            "--path", metavar="DIR", help="The data directory, in use or not; a cold tier."
        ),
    ] = None
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The server, instead of --path.")
    ] = None
    token: TokenOption = None
    topic: TopicFlag = None

    def find(self) -> Place:
        """A key for the server comes from the environment too, as elsewhere."""
        if (self.path is None) == (self.url is None):
            raise RequestError(
                "name a data directory with --path or a server with --url, one of them"
            )
        topics = tuple(self.topic or ())
        if self.path is not None:
            if self.token is not None:
                raise RequestError("--token is for a server; files need none")
            # Executors may run elsewhere: "here" is where the command was typed.
            location = self.path if "://" in self.path else str(Path(self.path).absolute())
            return Place(path=location, topics=topics)
        server = ServerOptions(self.url, token=self.token).find()
        return Place(url=server.url, token=server.token, topics=topics)


NOWHERE: Final = PlaceOptions()

COLD_HELP = "The cold tier: a directory, or s3://bucket/prefix."

ColdFlag = Annotated[str | None, typer.Option("--cold", metavar="PLACE", help=COLD_HELP)]
DirectoryFlag = Annotated[
    str, typer.Option("--path", metavar="DIR", help="The data directory, in use or not.")
]
StoppedFlag = Annotated[
    str,
    typer.Option("--path", metavar="DIR", help="The data directory; no process may have it open."),
]
