"""Where a verb's machines are: a server, or with --dir a data directory that is not open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headwater.api.machines import Machines
from headwater.cli.remote import connect
from headwater.core.errors import RequestError

DirectoryOption = Annotated[
    str | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="A data directory instead of a server; no other process may have it open.",
    ),
]
InstanceArgument = Annotated[str, typer.Argument(metavar="ID", help="The instance.")]
RepeatOption = Annotated[
    str | None,
    typer.Option("--key", metavar="TEXT", help="Idempotency key: a repeat does nothing."),
]


@contextmanager
def open_machines(
    url: str | None,
    context: str | None,
    token: str | None,
    directory: str | None,
    *,
    may_begin: bool = False,
) -> Iterator[Machines]:
    """Only a verb that may begin makes a directory that is not there: others would answer for the
    one that was meant."""
    if directory is None:
        with connect(url, context, token) as client:
            yield client.machines
        return
    if url is not None or context is not None:
        raise RequestError("give --dir, or --url or --context, not both")
    import headwater  # late: most verbs talk to a server
    from headwater.cli.log_directory import find_log
    from headwater.disk import PosixDisk

    if not may_begin:
        find_log(PosixDisk(), Path(directory))
    with headwater.open(directory) as database:
        yield database.machines


def json_object(text: str | None, what: str) -> dict[str, Any] | None:
    """A JSON object from the command line."""
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(f"{what} must be a JSON object")
    return value


def compact_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
