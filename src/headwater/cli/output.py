"""What reaches the terminal: text that cannot move the cursor, tables, JSON.

Names, payloads and reasons come from disks and strangers. Nothing of them is printed before
`printable` has replaced what a terminal would obey, and nothing is read as rich markup.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any, Final

from headwater.core.errors import StorageError

PREVIEW_CHARACTERS: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OutputClosedError(Exception):
    """The reader of our output has gone away. Not an OSError, so that no handler takes it for an
    error of a log file."""


class _Nowhere(io.StringIO):
    """Replaces an output without a reader, so that the last flush does not fail."""

    def write(self, text: str) -> int:
        return len(text)


def accept_any_character() -> None:
    """A terminal that cannot show a character gets its escape, not an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except OSError as error:
        raise _output_failed(error) from error


def say(line: str = "") -> None:
    write(line + "\n")


def say_json(value: Mapping[str, Any]) -> None:
    """One object on one line. ASCII only, so control characters are escaped by JSON itself."""
    say(json.dumps(value, ensure_ascii=True, separators=(",", ":")))


def finish() -> None:
    """Flush, so that a full disk or a closed pipe shows here and not after the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _output_failed(error) from error


def _output_failed(error: OSError) -> Exception:
    sys.stdout = _Nowhere()
    if isinstance(error, BrokenPipeError):
        return OutputClosedError()
    return StorageError(f"the output cannot be written: {error.strerror}")


def complain(message: str) -> None:
    sys.stderr.write(f"headwater: {printable(message)}\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """The same text with everything a terminal obeys written as an escape. Stays on one line."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def preview(data: bytes, characters: int = PREVIEW_CHARACTERS) -> str:
    """The beginning of a payload, safe for a terminal. Bytes that are not UTF-8 show as \\x.."""
    start = data[: characters * 4].replace(b"\\", b"\\\\")
    text = printable(start.decode("utf-8", "backslashreplace"))
    if len(text) > characters or len(data) > characters * 4:
        return text[: characters - 1] + "…"
    return text


def when(ts_ms: int) -> str:
    """A commit time for people; a number no calendar knows stays a number."""
    if ts_ms == 0:
        return "-"
    try:
        return (_EPOCH + timedelta(milliseconds=ts_ms)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError):
        return str(ts_ms)


def shown_path(path: PurePath | str) -> str:
    return printable(str(path))


def on_terminal() -> bool:
    return sys.stdout.isatty()


def say_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: str = "") -> None:
    """A table on a terminal, aligned words in a pipe. `numbers` names the headings that are."""
    right = frozenset(numbers.split())
    if on_terminal():
        write(_drawn(headings, rows, right))
    else:
        for line in _aligned(headings, rows, right):
            say(line)


def terminal_width() -> int:
    from rich.console import Console  # late, see `_drawn`

    return Console(file=sys.stdout).width


def _drawn(headings: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str]) -> str:
    # Late: a server and a command in a pipe draw no tables.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    for heading in headings:
        justify = "right" if heading in right else "left"
        table.add_column(Text(heading), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(file=sys.stdout)
    with console.capture() as drawn:
        console.print(table)
    return drawn.get()


def _aligned(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str]
) -> Iterator[str]:
    cells = [list(headings), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(
            cell.rjust(width) if heading in right else cell.ljust(width)
            for heading, cell, width in zip(headings, row, widths, strict=True)
        ).rstrip()
