"""`headwater machine`, and the log of the machines: `wal read`, `wal stats` and `compact`.

The machines are those of a server, or with --dir of a data directory that is not open.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from headwater.api.machines import Machines
from headwater.cli.files import read_text_file
from headwater.cli.option_groups import AnswerOptions
from headwater.cli.output import printable, say, say_table, write
from headwater.cli.remote import ServerOptions
from headwater.core.errors import RequestError
from headwater.wire.machine_requests import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX

InstanceArgument = Annotated[str, typer.Argument(metavar="ID", help="The instance.")]
RepeatOption = Annotated[
    str | None,
    typer.Option("--key", metavar="TEXT", help="Idempotency key: a repeat does nothing."),
]


@dataclass(frozen=True)
class MachinesPlace:
    """Whose machines a verb is about."""

    directory: Annotated[
        str | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="A data directory instead of a server; no other process may have it open.",
        ),
    ] = None
    server: ServerOptions = field(default_factory=ServerOptions)

    @contextmanager
    def open(self, *, may_begin: bool = False) -> Iterator[Machines]:
        """Only a verb that may begin makes a directory that is not there: others would answer for
        the one that was meant."""
        if self.directory is None:
            with self.server.connect() as client:
                yield client.machines
            return
        if self.server.url is not None or self.server.context is not None:
            raise RequestError("give --dir, or --url or --context, not both")
        import headwater  # late: most verbs talk to a server
        from headwater.cli.log_directory import find_log
        from headwater.disk import PosixDisk

        if not may_begin:
            find_log(PosixDisk(), Path(self.directory))
        with headwater.open(self.directory) as database:
            yield database.machines


@dataclass(frozen=True)
class MachinesCall(AnswerOptions, MachinesPlace):
    """A verb's call of machines: of whose, and how the answer is printed."""


OF_A_SERVER: Final = MachinesCall()


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


MachineArgument = Annotated[str, typer.Argument(metavar="MACHINE", help="Its name.")]
VersionArgument = Annotated[
    int | None, typer.Argument(metavar="VERSION", min=1, help="The newest without it.")
]


def put(
    machine: MachineArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="A whole number.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON with the definition; - reads it from stdin.")
    ],
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Define a version of a machine. Versions never change; the same again is fine."""
    text = sys.stdin.read() if file == "-" else read_text_file(file)
    definition = json_object(text, "the definition")
    assert definition is not None
    with call.open(may_begin=True) as machines:
        made = machines.put_machine(machine, version, definition)
    what = "defined" if made.created else "was defined like that before"
    call.say(made, f"{printable(made.machine)} version {made.version} {what}")


def get(
    machine: MachineArgument,
    version: VersionArgument = None,
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Show the definition of a machine, as JSON."""
    with call.open() as machines:
        answer = machines.get_machine(machine, version)
    shown = msgspec.json.format(msgspec.json.encode(answer.definition), indent=2).decode()
    call.say(answer, shown)


def listed(call: MachinesCall = OF_A_SERVER) -> None:
    """List machines and their versions."""
    with call.open() as machines:
        found = machines.list_machines().items
    if not call.say_json(*found):
        rows = [[each.machine, ", ".join(map(str, each.versions))] for each in found]
        say_table(["machine", "versions"], rows)


def draw(
    machine: MachineArgument,
    version: VersionArgument = None,
    svg: Annotated[bool, typer.Option("--svg", help="SVG instead of Mermaid text.")] = False,
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="ID", help="Mark the state this instance is in."),
    ] = None,
    call: MachinesPlace = OF_A_SERVER,
) -> None:
    """Draw a machine: Mermaid text, or SVG for a file (`> order.svg`)."""
    form = "svg" if svg else "mermaid"
    with call.open() as machines:
        if instance is not None and version is None:
            version = machines.get_instance(instance).version
        write(machines.draw(machine, version, form=form, instance_id=instance))


def read(
    from_offset: Annotated[
        int | None,
        typer.Option(
            "--from-offset", min=0, metavar="X", help="Begin here. Without it: the last ones."
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-l", min=1, max=LIST_LIMIT_MAX, metavar="N", help="So many."),
    ] = LIST_LIMIT_DEFAULT,
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Read entries of the machines' log, the last ones there are. With --json one object a line."""
    with call.open() as machines:
        page = machines.read_wal(from_offset or 0, limit=limit, newest=from_offset is None)
    if call.say_json(*page.entries):
        return
    for each in page.entries:
        say(printable(f"{each.offset}  {each.type}  {compact_json(each.data)}"))
    for bad in page.damaged:
        say(f"(damaged: {bad.offset} up to {bad.resume})")
    if page.has_more:
        say(f"more with --from-offset {page.next_offset}")


def stats(call: MachinesCall = OF_A_SERVER) -> None:
    """Show how large the machines' log is, and what it has done."""
    with call.open() as machines:
        answer = machines.wal_stats()
    values = msgspec.to_builtins(answer)
    if call.say_json(values):
        return
    values.pop("performance", None)
    values |= values.pop("io_stats")
    rows = [
        # An offset is for pasting into --from-offset, so nothing stands between its digits.
        [name.replace("_", " "), str(value) if "offset" in name else _amount(value)]
        for name, value in values.items()
        if not name.endswith("_text")
    ]
    say_table(["what", "value"], rows, "value")


def _amount(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def compact(call: MachinesCall = OF_A_SERVER) -> None:
    """Take a snapshot of all machines and instances, and drop the log before it."""
    with call.open() as machines:
        done = machines.compact()
    line = (
        f"{done.snapshot_id}: {done.instance_count:,} instances in {done.snapshot_bytes:,} bytes; "
        f"{done.segments_deleted} log files deleted"
    )
    call.say(done, line)
