"""`headwater write`: records from arguments, lines of stdin or a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, BinaryIO

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headwater.cli.output import complain, printable
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.cli.topic import TopicArgument
from headwater.client.blocking import Client
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import HeadwaterError, InvalidRequestError, RequestError
from headwater.core.limits import BATCH_RECORDS_MAX
from headwater.core.units import KIB, MIB, US_PER_S

BATCH_BYTES_MAX = 4 * MIB
CHUNK_BYTES = 256 * KIB
Line = tuple[str, bytes]
"""Where it stands, for messages, and what it says."""


def write(
    topic: TopicArgument,
    records: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JSON]...", help="Records; without any, lines of stdin."),
    ] = None,
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option("--file", "-f", metavar="FILE", help="Lines of a file; - is stdin."),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Take records as plain text, not as JSON.")
    ] = False,
    tag: Annotated[str | None, typer.Option(help="A tag for each record.")] = None,
    node: Annotated[str | None, typer.Option(help="Who writes.")] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=BATCH_RECORDS_MAX, metavar="N", help="Records a request.")
    ] = 500,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Write records: each argument, or each line of stdin or of a file, is one.

    A record is JSON: 42, '"words"', '{"total": 42}'. With --text it is taken as it is. Lines are
    sent as they arrive, in batches while they come fast; empty lines are passed over. Each batch
    is written whole or not at all, and never twice.
    """
    if records and file is not None:
        raise RequestError("give records or --file, not both")
    if records:
        batches: Iterable[list[Line]] = [
            [(f"record {number}", record.encode()) for number, record in enumerate(records, 1)]
        ]
    else:
        batches = read_lines(_input(file))
    with call.connect() as client:
        writer = BatchWriter(client, topic, batch, tag, node, SystemClock(), as_text=text)
        try:
            with _progress(writer):
                for lines in batches:
                    writer.take(lines)
        except HeadwaterError:
            if writer.count:
                complain(f"{writer.summary()} before this:")
            raise
    nothing = "nothing to write: the input was empty"
    call.say(writer.as_json(), writer.summary() if writer.count else nothing)


class BatchWriter:
    """Lines in, batches out, counting."""

    def __init__(
        self,
        client: Client,
        topic: str,
        batch: int,
        tag: str | None,
        node: str | None,
        clock: Clock,
        *,
        as_text: bool,
    ) -> None:
        self._client = client
        self._topic = topic
        self._batch = batch
        self._common = {} if tag is None else {"tag": tag}
        self._node = node
        self._clock = clock
        self._as_text = as_text
        self._started_us = clock.monotonic_us()
        self.count = 0
        self.requests = 0
        self.first_seq = 0
        self.last_seq = 0
        self.on_sent: Callable[[], None] = _quietly

    def take(self, lines: list[Line]) -> None:
        """Send all of them. What comes before a bad one is sent too."""
        pending: list[dict[str, Any]] = []
        size = 0
        try:
            for where, line in lines:
                pending.append({"data": self._data(where, line), **self._common})
                size += len(line)
                if len(pending) >= self._batch or size >= BATCH_BYTES_MAX:
                    full, pending, size = pending, [], 0
                    self._send(full)
        finally:
            if pending and not isinstance(sys.exc_info()[1], KeyboardInterrupt):
                self._send(pending)

    def _data(self, where: str, line: bytes) -> Any:
        if self._as_text:
            return line.decode("utf-8", "replace")
        try:
            msgspec.json.decode(line)
            line.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(
                f"{where} is not JSON ({error}); put words in quotes, or use --text"
            ) from error
        return msgspec.Raw(line)

    def _send(self, records: list[dict[str, Any]]) -> None:
        written = self._client.append(self._topic, records, node=self._node)
        self.first_seq = self.first_seq or written.first_seq
        self.last_seq = written.last_seq
        self.count += len(written.seqs)
        self.requests += 1
        self.on_sent()

    @property
    def seconds(self) -> float:
        return (self._clock.monotonic_us() - self._started_us) / US_PER_S

    def summary(self) -> str:
        records = "1 record" if self.count == 1 else f"{self.count:,} records"
        seqs = f"seq {self.first_seq}"
        if self.last_seq != self.first_seq:
            seqs = f"seqs {self.first_seq} to {self.last_seq}"
        speed = ""
        if self.requests > 1:
            speed = (
                f" in {self.seconds:.1f} s, {self.count / max(self.seconds, 1e-6):,.0f} a second"
            )
        return f"wrote {records} to {printable(self._topic)}, {seqs}{speed}"

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "count": self.count,
            "first_seq": self.first_seq,
            "last_seq": self.last_seq,
            "requests": self.requests,
            "seconds": round(self.seconds, 3),
        }


def _quietly() -> None:
    """The default of `on_sent`: does nothing."""


def _input(file: BinaryIO | None) -> BinaryIO:
    if file is not None:
        return file
    if sys.stdin.isatty():
        raise RequestError("nothing to write: give records, or lines on stdin, or --file")
    return sys.stdin.buffer


def read_lines(source: BinaryIO) -> Iterator[list[Line]]:
    """The lines that are there, as soon as they are there: a slow source is not waited for."""
    read = getattr(source, "read1", source.read)
    rest = b""
    number = 0
    while True:
        chunk = read(CHUNK_BYTES)
        *whole, rest = (rest + chunk).split(b"\n")
        if not chunk:
            whole, rest = [rest], b""
        lines = []
        for line in whole:
            number += 1
            if line.strip():
                lines.append((f"line {number}", line.strip(b"\r")))
        if lines:
            yield lines
        if not chunk:
            return


@contextmanager
def _progress(writer: BatchWriter) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("Writing", total=None)
        writer.on_sent = lambda: bar.update(task, completed=writer.count)
        yield
