"""A file that is shown: its heading, its fields in a row each, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from headwater.cli.output import printable, say, say_json, shown_path
from headwater.cli.show.file_kinds import FileKind
from headwater.format.layout import Layout

Problem = tuple[str, int]
"""What is wrong, and at which byte."""


class FieldRow(NamedTuple):
    field: str
    offset: int
    type: str
    value: Any


@dataclass(frozen=True, slots=True)
class ShownFile:
    path: PurePath
    kind: FileKind
    buffer: memoryview
    as_json: bool
    at: int
    """Shown from this byte on."""
    limit: int | None

    @property
    def summary(self) -> dict[str, Any]:
        return {"file": str(self.path), "kind": self.kind.value, "bytes": len(self.buffer)}

    def say_head(self, state: str = "", /, **facts: Any) -> None:
        """One line with its state; for programs the object that comes first, with the facts."""
        if self.as_json:
            say_json({**self.summary, **facts})
        else:
            more = f", {state}" if state else ""
            size = len(self.buffer)
            say(f"{shown_path(self.path)}: {self.kind.value}, {size:,} bytes{more}")


def layout_rows(layout: Layout, buffer: bytes | memoryview, at: int) -> Iterator[FieldRow]:
    """The fixed part of a structure, without padding; values as they are."""
    values = layout.unpack(buffer, at)
    for (name, offset), field in zip(layout.offsets(), layout.fields, strict=True):
        if name in values:
            yield FieldRow(name, at + offset, field.code, values[name])


def say_rows(heading: str, rows: Iterable[FieldRow], name_width: int) -> None:
    """A part of a file for people."""
    say()
    say(heading)
    for row in rows:
        name = f"{row.field:<{name_width}}"
        say(f"{row.offset:>12}  {name}  {row.type:<4}  {row.value}".rstrip())


def unreadable(start: int, size: int, reason: str | None) -> str:
    return printable(f"UNREADABLE from byte {start}, {size:,} bytes: {reason}")
