"""From a table of fields to a function that reads them.

A decoded message is a dict with every field of its table: fields that are not in a version have
their default, so a handler of a request need not check its version. Neighbours of fixed
length are read in one step. Record batches are views into the buffer, never copies.

Nothing is believed: lengths and counts are compared with the bytes that are there before anything
is made of them, and the rows of all arrays together have a limit, since an empty row takes a
byte or two to send and hundreds to hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from headwater.wire.kafka.apis import ProtocolError
from headwater.wire.kafka.fields import (
    Fields,
    FieldType,
    MessageField,
    compile_steps,
    read_unsigned,
)

Buffer = bytes | memoryview
Row = dict[str, Any]
Budget = list[int]
"""One number: how many more rows may be read."""
Decode = Callable[[Buffer, int, Budget], tuple[Any, int]]
Step = Callable[[Buffer, int, Budget, Row], int]

_INT16: Final = struct.Struct(">h").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from


def compile_decoder(fields: Fields, version: int, *, flexible: bool) -> Decode:
    """A function that reads these fields as they are in one version."""
    defaults = {field.name: field.default for field in fields}
    steps = compile_steps(fields, version, flexible, _fixed_step, _named_step, _tagged_step)

    def decode(buffer: Buffer, at: int, budget: Budget) -> tuple[Row, int]:
        row = defaults.copy()
        for step in steps:
            at = step(buffer, at, budget, row)
        return row, at

    return decode


def _fixed_step(fields: list[MessageField]) -> Step:
    """Some neighbours of fixed length, read at once."""
    layout = struct.Struct(">" + "".join(field.kind.value for field in fields if field.kind))
    unpack, size = layout.unpack_from, layout.size
    names = [field.name for field in fields]
    if len(names) == 1:
        (name,) = names

        def step_of_one(buffer: Buffer, at: int, _budget: Budget, row: Row) -> int:
            (row[name],) = unpack(buffer, at)
            return at + size

        return step_of_one

    def step(buffer: Buffer, at: int, _budget: Budget, row: Row) -> int:
        row.update(zip(names, unpack(buffer, at), strict=True))
        return at + size

    return step


def _named_step(field: MessageField, version: int, flexible: bool) -> Step:
    name = field.name
    decode = _decoder_of(field, version, flexible)

    def step(buffer: Buffer, at: int, budget: Budget, row: Row) -> int:
        row[name], at = decode(buffer, at, budget)
        return at

    return step


def _decoder_of(field: MessageField, version: int, flexible: bool) -> Decode:
    """What reads the value of one field."""
    nullable = field.is_nullable_in(version)
    length = _length(field, flexible, nullable)
    if field.many:
        if field.kind is not None and field.kind.is_fixed:
            return _numbers(field.kind, length)
        each = (
            compile_decoder(field.rows, version, flexible=flexible)
            if field.kind is None
            else _sized(field.kind, _length(_bare(field), flexible, nullable=False))
        )
        return _array(each, length)
    if field.kind is None:
        return compile_decoder(field.rows, version, flexible=flexible)
    if field.kind.is_fixed:
        return _fixed(field.kind)
    return _sized(field.kind, length)


def _bare(field: MessageField) -> MessageField:
    return MessageField(field.name, field.kind)


Length = Callable[[Buffer, int], tuple[int, int]]
"""How many bytes or rows follow, -1 for null, and where they begin."""


def _length(field: MessageField, flexible: bool, nullable: bool) -> Length:
    name = field.name
    short = field.kind is FieldType.STRING and not field.many
    unpack, size = (_INT16, 2) if short else (_INT32, 4)
    least = -1 if nullable else 0

    def compact(buffer: Buffer, at: int) -> tuple[int, int]:
        number, at = read_unsigned(buffer, at)
        if number - 1 < least:
            raise ProtocolError(f"{name} is null where it must not be, at byte {at}")
        return number - 1, at

    def plain(buffer: Buffer, at: int) -> tuple[int, int]:
        (number,) = unpack(buffer, at)
        if number < least:
            raise ProtocolError(f"{name} has a length of {number}, at byte {at}")
        return number, at + size

    return compact if flexible else plain


def _fixed(kind: FieldType) -> Decode:
    layout = struct.Struct(f">{kind.value}")

    def decode(buffer: Buffer, at: int, _budget: Budget) -> tuple[Any, int]:
        (value,) = layout.unpack_from(buffer, at)
        return value, at + layout.size

    return decode


def _text(buffer: Buffer, at: int, end: int) -> str:
    return str(buffer[at:end], "utf-8")


def _copied(buffer: Buffer, at: int, end: int) -> bytes:
    return bytes(buffer[at:end])


def _viewed(buffer: Buffer, at: int, end: int) -> memoryview:
    return memoryview(buffer)[at:end]


_CUTS: Final[dict[FieldType, Callable[[Buffer, int, int], Any]]] = {
    FieldType.STRING: _text,
    FieldType.BYTES: _copied,
    FieldType.RECORDS: _viewed,
}


def _sized(kind: FieldType, length: Length) -> Decode:
    """Text or bytes that follow their length."""
    cut = _CUTS[kind]

    def decode(buffer: Buffer, at: int, _budget: Budget) -> tuple[Any, int]:
        size, at = length(buffer, at)
        if size < 0:
            return None, at
        end = at + size
        if end > len(buffer):
            raise ProtocolError(f"{size} bytes are said to follow byte {at}, and do not")
        return cut(buffer, at, end), end

    return decode


def _numbers(kind: FieldType, length: Length) -> Decode:
    """An array of values of fixed length, read at once."""
    size = struct.calcsize(f">{kind.value}")

    def decode(buffer: Buffer, at: int, budget: Budget) -> tuple[list[Any] | None, int]:
        count, at = length(buffer, at)
        if count < 0:
            return None, at
        _spend(budget, count, count * size, len(buffer) - at)
        return list(struct.unpack_from(">" + kind.value * count, buffer, at)), at + count * size

    return decode


def _array(each: Decode, length: Length) -> Decode:
    def decode(buffer: Buffer, at: int, budget: Budget) -> tuple[list[Any] | None, int]:
        count, at = length(buffer, at)
        if count < 0:
            return None, at
        _spend(budget, count, count, len(buffer) - at)
        row = []
        for _ in range(count):
            value, at = each(buffer, at, budget)
            row.append(value)
        return row, at

    return decode


def _spend(budget: Budget, count: int, size_min: int, left: int) -> None:
    """Refuse an array before anything is made of it: each row takes a byte at least."""
    if size_min > left:
        raise ProtocolError(f"an array of {count} rows in {left} bytes")
    budget[0] -= count
    if budget[0] < 0:
        raise ProtocolError("more rows than are taken in one request")


def _tagged_step(fields: list[MessageField], version: int) -> Step:
    """The fields that are sent with a number each, in any order. Unknown ones are passed over."""
    known = {field.tag: (field.name, _decoder_of(field, version, True)) for field in fields}

    def step(buffer: Buffer, at: int, budget: Budget, row: Row) -> int:
        if buffer[at] == 0:  # none, which is what nearly every message has
            return at + 1
        count, at = read_unsigned(buffer, at)
        _spend(budget, count, count, len(buffer) - at)
        for _ in range(count):
            tag, at = read_unsigned(buffer, at)
            size, at = read_unsigned(buffer, at)
            end = at + size
            if end > len(buffer):
                raise ProtocolError(f"{size} bytes are said to follow byte {at}, and do not")
            if tag in known:
                name, decode = known[tag]
                row[name], at = decode(buffer, at, budget)
                if at != end:
                    raise ProtocolError(f"{name} does not fill its {size} bytes, at byte {at}")
            at = end
        return at

    return step
