"""The words the tables of messages are written in.

A message is a tuple of fields. A field has a kind, the versions it is in, the versions in which
it may be null, and the value it has where it is not said. From these tables `decoding` and
`encoding` make one plain function for each message and version.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

NEWEST: Final = 32_767
"""Until the newest version there is, whatever that is."""
NEVER: Final = (NEWEST + 1, NEWEST)
NO_UUID: Final = bytes(16)


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
        return self in _FIXED


_FIXED: Final = frozenset(
    (
        FieldType.BOOL,
        FieldType.INT8,
        FieldType.INT16,
        FieldType.INT32,
        FieldType.INT64,
        FieldType.UUID,
    )
)
_DEFAULTS: Final[dict[FieldType, Any]] = {
    FieldType.BOOL: False,
    FieldType.UUID: NO_UUID,
    FieldType.STRING: "",
    FieldType.BYTES: b"",
    FieldType.RECORDS: None,
}


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
    def can_be_null(self) -> bool:
        return self.null_since <= self.null_until


Fields = tuple[MessageField, ...]

_UNSAID: Final = object()


def one(
    name: str,
    kind: FieldType,
    since: int = 0,
    until: int = NEWEST,
    *,
    null: int | tuple[int, int] = NEVER,
    default: Any = _UNSAID,
    tag: int | None = None,
) -> MessageField:
    """A field of one value. `null` is the first version in which it may be none, or a range."""
    null_since, null_until = null if isinstance(null, tuple) else (null, NEWEST)
    if default is _UNSAID:
        default = None if null_since <= null_until else _DEFAULTS.get(kind, 0)
    return MessageField(
        name, kind, since=since, until=until, null_since=null_since, null_until=null_until,
        default=default, tag=tag,
    )  # fmt: skip


def many(
    name: str,
    what: FieldType | Fields,
    since: int = 0,
    until: int = NEWEST,
    *,
    null: int | tuple[int, int] = NEVER,
    tag: int | None = None,
) -> MessageField:
    """A field of any number of values, or of rows of fields."""
    null_since, null_until = null if isinstance(null, tuple) else (null, NEWEST)
    kind, rows = (what, ()) if isinstance(what, FieldType) else (None, what)
    return MessageField(
        name, kind, rows, many=True, since=since, until=until, null_since=null_since,
        null_until=null_until, default=(), tag=tag,
    )  # fmt: skip


def row(name: str, fields: Fields, since: int = 0, *, tag: int) -> MessageField:
    """A row of fields that is only sent where it is not the default."""
    default = {each.name: each.default for each in fields}
    return MessageField(name, None, fields, since=since, default=default, tag=tag)


@dataclass(frozen=True, slots=True)
class Message:
    """A request and its response, in all their versions."""

    request: Fields
    response: Fields
    flexible_since: int = NEWEST
    """The first version with compact lengths and tagged fields."""

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since
