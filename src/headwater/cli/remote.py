"""Which server a verb talks to: --url, HEADWATER_URL, a saved context, or this machine's own.

Saved contexts have name, address and token, in a file that only the user can read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Final

import msgspec
import typer

from headwater.cli.files import read_text_file
from headwater.cli.option_groups import AnswerOptions
from headwater.client.blocking import Client
from headwater.client.operations import DEFAULT_URL
from headwater.client.retry import Retry
from headwater.core.errors import AccessError, RequestError
from headwater.disk import Disk, PosixDisk, replace_file

FILE_NAME = "contexts.json"


class Context(msgspec.Struct):
    url: str
    token: str | None = None
    ca_file: str | None = None


class Contexts(msgspec.Struct):
    current: str | None = None
    contexts: dict[str, Context] = {}


def contexts_path() -> PurePath:
    """$XDG_CONFIG_HOME/headwater/contexts.json, in ~/.config when that is not set."""
    base = os.environ.get("XDG_CONFIG_HOME", "").strip()
    return (PurePath(base) if base else Path.home() / ".config") / "headwater" / FILE_NAME


def load_contexts() -> Contexts:
    path = contexts_path()
    try:
        if not PosixDisk().exists(path):
            return Contexts()
    except OSError:
        return Contexts()
    try:
        return msgspec.json.decode(read_text_file(str(path)), type=Contexts)
    except msgspec.MsgspecError as error:
        raise RequestError(f"{path} cannot be read ({error}); mend it or remove it") from error


def save_contexts(contexts: Contexts) -> None:
    """Whole or not at all, mode 0600."""
    path = contexts_path()
    disk = PosixDisk()
    try:
        _make_directories(disk, path.parent)
        text = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
        replace_file(disk, path, text + b"\n")
    except OSError as error:
        why = (error.strerror or "").lower()
        raise AccessError(f"contexts cannot be saved ({why})", path=path) from error


def _make_directories(disk: Disk, path: PurePath) -> None:
    if not disk.is_directory(path):
        if path.parent != path:
            _make_directories(disk, path.parent)
        disk.make_directory(path)


GIVE_UP_AFTER_S = 10.0
"""Short: a user waits in front of a terminal."""

TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="SECRET",
        help="An API key. Better in HEADWATER_TOKEN or a context: others see command lines.",
    ),
]


@dataclass(frozen=True)
class ServerOptions:
    """How a verb finds its server."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="The server, also as HEADWATER_URL; else the saved context in use, else "
            "http://127.0.0.1:4000.",
        ),
    ] = None
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="A saved server, see `headwater context`.",
        ),
    ] = None
    token: TokenOption = None

    def find(self) -> Context:
        """What the command line says, then the environment, then the context in use.

        A context brings its own token: one meant for another server is not sent there.
        """
        url, context = self.url, self.context
        if url is not None and context is not None:
            raise RequestError("give --url or --context, not both")
        if url is None and context is None:
            url = os.environ.get("HEADWATER_URL") or None
        saved = load_contexts()
        if url is None:
            context = context or os.environ.get("HEADWATER_CONTEXT") or saved.current
        server = Context(DEFAULT_URL if url is None else _with_scheme(url))
        if context is not None:
            if context not in saved.contexts:
                known = ", ".join(sorted(saved.contexts)) or "none"
                raise RequestError(f"there is no context {context!r}; saved are: {known}")
            server = saved.contexts[context]
        token = self.token or server.token or os.environ.get("HEADWATER_TOKEN") or None
        return Context(server.url, token, server.ca_file)

    def connect(self, *, give_up_after_s: float = GIVE_UP_AFTER_S) -> Client:
        server = self.find()
        return Client(
            server.url,
            token=server.token,
            ca_file=server.ca_file,
            retry=Retry(give_up_after_s=give_up_after_s),
        )


@dataclass(frozen=True)
class ServerCall(AnswerOptions, ServerOptions):
    """A verb's call of a server: of which one, and how the answer is printed."""


ANY_SERVER: Final = ServerCall()


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"
