"""What the tables of messages are made of, and how they are read.

A message is a tuple of fields. A field has a kind, the versions it is in, the versions in which
it may be null, and the value it has where it is not said. From these tables `decoding` and
`encoding` make one plain function for each message and version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final, TypeVar

from headwater.core.errors import InvariantError
from headwater.wire.kafka.apis import ProtocolError

_BYTES_MAX: Final = 5
_SMALL: Final = tuple(bytes((number,)) for number in range(128))
S = TypeVar("S")

NEWEST: Final = 32_767
"""Until the newest version there is, whatever that is."""
NEVER: Final = (NEWEST + 1, NEWEST)
NOT_REQUESTED: Final = -(2**31)
"""Stands for "authorised operations were not requested"."""


def read_unsigned(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at this offset and where it ends. Past the end of the bytes: IndexError."""
    byte = buffer[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    for index in range(at + 1, at + _BYTES_MAX):
        byte = buffer[index]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > 0xFFFFFFFF:
                break
            return number, index + 1
        shift += 7
    raise ProtocolError(f"a number at byte {at} has more than 32 bits")


def unsigned(number: int) -> bytes:
    if number < 0x80:
        return _SMALL[number]
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


class FieldType(Enum):
    """What a field holds. Kinds with a letter have a fixed length, and are packed together."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"

    @property
    def is_fixed(self) -> bool:
        return self not in (FieldType.STRING, FieldType.BYTES, FieldType.RECORDS)


_DEFAULTS: Final[dict[FieldType, Any]] = {
    FieldType.BOOL: False,
    FieldType.UUID: bytes(16),
    FieldType.STRING: "",
    FieldType.BYTES: b"",
    FieldType.RECORDS: None,
}
_VALUES: Final[dict[str, Any]] = {"true": True, '""': "", "not_requested": NOT_REQUESTED}


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message or of a row in it."""

    name: str
    kind: FieldType | None
    """None for a row or rows of fields."""
    rows: tuple[MessageField, ...] = ()
    many: bool = False
    since: int = 0
    until: int = NEWEST
    null_since: int = NEVER[0]
    null_until: int = NEVER[1]
    default: Any = None
    tag: int | None = None
    """Of a field that is only sent where it differs from its default."""

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable_in(self, version: int) -> bool:
        return self.null_since <= version <= self.null_until

    @property
    def is_packed(self) -> bool:
        """One value of fixed length: read and written together with its neighbours."""
        return self.kind is not None and self.kind.is_fixed and not self.many


Fields = tuple[MessageField, ...]


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A request and its response, in all their versions."""

    request: Fields
    response: Fields
    flexible_since: int = NEWEST
    """The first version with compact lengths and tagged fields."""

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since


def compile_steps(
    fields: Fields,
    version: int,
    flexible: bool,
    packed: Callable[[list[MessageField]], S],
    named: Callable[[MessageField, int, bool], S],
    tagged: Callable[[list[MessageField], int], S],
) -> list[S]:
    """What reads or writes these fields in a version: neighbours of fixed length in one step, the
    others one by one, then those with tags."""
    present = [field for field in fields if field.is_in(version)]
    steps: list[S] = []
    untagged = [field for field in present if field.tag is None]
    for is_packed, together in groupby(untagged, attrgetter("is_packed")):
        if is_packed:
            steps.append(packed(list(together)))
        else:
            steps.extend(named(field, version, flexible) for field in together)
    with_tag = [field for field in present if field.tag is not None]
    if flexible:
        steps.append(tagged(with_tag, version))
    elif with_tag:
        raise InvariantError(f"tagged fields in a version without them: {version}")
    return steps


# -- reading the tables

_VERSIONS: Final = r"(\d+)(?:\+|-(\d+))"
_HEADING: Final = re.compile(r"(\w+)(?: flexible (\d+)\+)?")
_FIELD: Final = re.compile(
    rf"(\w+) (\w+)(\[\])?(?: {_VERSIONS})?(?: null {_VERSIONS})?(?: tag (\d+))?(?: = (\S+))?"
)


def read_schemas(text: str) -> dict[str, MessageSchema]:
    """The messages of a table, by name; an empty line stands between two of them."""
    schemas = {}
    for block in text.strip().split("\n\n"):
        heading, *lines = block.splitlines()
        name, flexible_since = _match(_HEADING, heading).groups()
        border = lines.index("  response")
        request, response = _read_fields(lines[1:border]), _read_fields(lines[border + 1 :])
        schemas[name] = MessageSchema(request, response, int(flexible_since or NEWEST))
    return schemas


def _match(pattern: re.Pattern[str], line: str) -> re.Match[str]:
    match = pattern.fullmatch(line.strip())
    if match is None:
        raise InvariantError(f"no line of a table of messages: {line!r}")
    return match


def _read_fields(lines: list[str]) -> Fields:
    """Fields one below another; lines that are indented deeper belong to the field above them."""
    depths = [len(line) - len(line.lstrip()) for line in lines]
    starts = [at for at, depth in enumerate(depths) if depth == depths[0]]
    return tuple(
        _read_field(lines[start], _read_fields(lines[start + 1 : end]))
        for start, end in pairwise([*starts, len(lines)])
    )


def _read_field(line: str, rows: Fields) -> MessageField:
    name, word, array, since, until, null_since, null_until, tag, said = _match(
        _FIELD, line
    ).groups()
    kind = None if word in ("row", "rows") else FieldType[word.upper()]
    many = word == "rows" or array is not None
    default: Any
    if many:
        default = ()
    elif kind is None:
        default = {each.name: each.default for each in rows}
    elif said is not None:
        default = _VALUES[said] if said in _VALUES else int(said)
    else:
        default = None if null_since is not None else _DEFAULTS.get(kind, 0)
    return MessageField(
        name,
        kind,
        rows,
        many,
        since=int(since or 0),
        until=int(until or NEWEST),
        null_since=int(null_since or NEVER[0]),
        null_until=int(null_until or NEVER[1]),
        default=default,
        tag=None if tag is None else int(tag),
    )
