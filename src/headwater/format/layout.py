"""One table per on-disk structure; everything else about its bytes is derived from the table.

From a `Layout` come the packer, the offsets, the numpy type for reading many at once, the table
in `docs/format.md` and what `headwater show` prints. A field is declared once, here or nowhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from headwater.core.arrays import numpy
from headwater.core.errors import FormatError

# code -> (struct letter, numpy kind, bytes)
_CODES: Final[dict[str, tuple[str, str, int]]] = {
    "u8": ("B", "u1", 1),
    "u16": ("H", "u2", 2),
    "u32": ("I", "u4", 4),
    "u64": ("Q", "u8", 8),
    "u128": ("16s", "V16", 16),  # a hash: compared, never calculated with
}


@dataclass(frozen=True)
class Field:
    """One fixed-width integer: its name, its width and what it means."""

    name: str
    code: str
    meaning: str

    @property
    def width(self) -> int:
        if self.code.startswith("pad"):
            return int(self.code[3:])
        return _CODES[self.code][2]


@dataclass(frozen=True)
class Layout:
    """A packed run of fields. `tail` tells in words what of variable length follows."""

    name: str
    fields: tuple[Field, ...]
    tail: tuple[tuple[str, str, str], ...] = ()
    """(size, name, meaning) of what follows the fixed part."""
    big_endian: bool = False

    @cached_property
    def packer(self) -> struct.Struct:
        letters = [
            f"{field.width}x" if field.code.startswith("pad") else _CODES[field.code][0]
            for field in self.fields
        ]
        return struct.Struct((">" if self.big_endian else "<") + "".join(letters))

    @property
    def size(self) -> int:
        return self.packer.size

    @cached_property
    def dtype(self) -> numpy.dtype[Any]:
        """The same bytes as a packed numpy record, for reading many without a loop."""
        order = ">" if self.big_endian else "<"
        named = [field for field in self.fields if not field.code.startswith("pad")]
        offsets = dict(self.offsets())
        return numpy.dtype(
            {
                "names": [field.name for field in named],
                "formats": [order + _CODES[field.code][1] for field in named],
                "offsets": [offsets[field.name] for field in named],
                "itemsize": self.size,
            }
        )

    def offsets(self) -> Iterator[tuple[str, int]]:
        at = 0
        for field in self.fields:
            yield field.name, at
            at += field.width

    def offset_of(self, name: str) -> int:
        return dict(self.offsets())[name]

    def unpack(self, buffer: bytes | bytearray | memoryview, offset: int = 0) -> dict[str, int]:
        """The fields by name. Bytes that are too few are a FormatError, never a struct.error."""
        if offset < 0 or len(buffer) - offset < self.size:
            raise FormatError(f"{self.name} needs {self.size} bytes", offset)
        named = [field.name for field in self.fields if not field.code.startswith("pad")]
        return dict(zip(named, self.packer.unpack_from(buffer, offset), strict=True))

    def markdown(self) -> str:
        """The table for people."""
        rows = ["| offset | size | field | type | meaning |", "|---|---|---|---|---|"]
        for (name, at), field in zip(self.offsets(), self.fields, strict=True):
            shown = "zero" if field.code.startswith("pad") else field.code
            rows.append(f"| {at} | {field.width} | {name} | {shown} | {field.meaning} |")
        for index, (size, name, meaning) in enumerate(self.tail):
            at_text = str(self.size) if index == 0 else ""
            rows.append(f"| {at_text} | {size} | {name} | | {meaning} |")
        return "\n".join(rows)
