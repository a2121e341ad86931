"""Payload fields with types: parsed by msgspec, a batch at a time, put together as Arrow columns.

A generated struct has just the fields that are asked for; what else a payload holds is skipped.
Payloads that are plain objects are parsed in one call for the whole batch. A payload that does
not fit is found by parsing one by one, and becomes what the option `invalid` says.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy
import pyarrow
import pyarrow.compute
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from headwater.core.errors import RequestError
from headwater.wire.frame_rows import Column

_BYTES_OF: Final[dict[type[DataType], int]] = {
    ByteType: 1,
    ShortType: 2,
    IntegerType: 4,
    LongType: 8,
}
_SIMPLE: Final[dict[type[DataType], Any]] = {
    StringType: str,
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    DateType: datetime.date,
    TimestampType: datetime.datetime,
}
_OPEN, _CLOSE = ord("{"), ord("}")
_join = pyarrow.compute.binary_join_element_wise


def attribute(position: int) -> str:
    """The field's name in the generated struct: a payload's own may be no word of Python."""
    return f"f{position}"


def python_type(kind: DataType) -> Any:
    """What msgspec should read, null included."""
    if type(kind) in _BYTES_OF:
        bits = 8 * _BYTES_OF[type(kind)]
        bound = msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)
        return Annotated[int, bound] | None
    if type(kind) in _SIMPLE:
        return _SIMPLE[type(kind)] | None
    if isinstance(kind, ArrayType):
        return list[python_type(kind.elementType)] | None  # type: ignore[misc]
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return dict[str, python_type(kind.valueType)] | None  # type: ignore[misc]
    if isinstance(kind, StructType):
        return struct_type(kind) | None
    raise RequestError(
        f"a payload's field cannot be {kind.simpleString()}; "
        "use text, numbers, boolean, date, timestamp, or arrays, maps and structs of them"
    )


def struct_type(kind: StructType) -> Any:
    fields = [
        (
            attribute(position),
            python_type(field.dataType),
            msgspec.field(name=field.name, default=None),
        )
        for position, field in enumerate(kind.fields)
    ]
    return msgspec.defstruct("Fields", fields, gc=False)


@dataclass(frozen=True, slots=True)
class Parsed:
    values: list[Any]
    """A struct for each payload; None for one that does not fit."""
    reasons: dict[int, str]
    """Why, for those."""


class FieldParser:
    """Fields of payloads. Made on the executor: decoders cannot be sent."""

    def __init__(self, fields: StructType) -> None:
        self.fields = fields

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(struct_type(self.fields))

    def parse(self, payloads: Column) -> Parsed:
        """`payloads` is a binary column without nulls."""
        if not len(payloads):
            return Parsed([], {})
        together = self._together(payloads)
        if together is not None:
            return Parsed(together, {})
        values: list[Any] = []
        reasons: dict[int, str] = {}
        decode = self._decoder.decode
        for position, payload in enumerate(payloads.to_pylist()):
            try:
                values.append(decode(payload))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                values.append(None)
                reasons[position] = str(error) or type(error).__name__
        return Parsed(values, reasons)

    def _together(self, payloads: Column) -> list[Any] | None:
        """All at once, or None when one of them is odd.

        Each payload begins with `{` and ends with `}`, and a newline stands between two. No value
        can then reach from one payload into the next: behind a `}` inside an object or array only
        a comma or a bracket may come, and a newline inside a string is not JSON. So each payload
        holds at least one value, and as many values as payloads means one in each.
        """
        if not _are_objects(payloads):
            return None
        joined = _join(payloads, pyarrow.scalar(b"\n", pyarrow.binary()), b"")
        start, end = _first_and_last(joined)
        try:
            structs = self._decoder.decode_lines(memoryview(joined.buffers()[2])[start:end])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return structs if len(structs) == len(payloads) else None

    def columns(self, values: Sequence[Any], arrow_types: Sequence[Any]) -> list[Column]:
        """One column for each field; a payload that did not fit has nulls."""
        return _children(values, self.fields, arrow_types)

    def struct(self, values: Sequence[Any], arrow_type: Any) -> Column:
        """All of them as one struct column."""
        return column_of(values, self.fields, arrow_type)


def _offsets(column: Column) -> Any:
    return numpy.frombuffer(column.buffers()[1], numpy.int32)[
        column.offset : column.offset + len(column) + 1
    ]


def _first_and_last(column: Column) -> tuple[int, int]:
    offsets = _offsets(column)
    return int(offsets[0]), int(offsets[-1])


def _are_objects(payloads: Column) -> bool:
    offsets = _offsets(payloads)
    starts, ends = offsets[:-1], offsets[1:]
    if (ends - starts < 2).any():
        return False
    values = numpy.frombuffer(payloads.buffers()[2], numpy.uint8)
    return bool((values[starts] == _OPEN).all() and (values[ends - 1] == _CLOSE).all())


def column_of(values: Sequence[Any], kind: DataType, arrow_type: Any) -> Column:
    """Values as msgspec gave them, as one column."""
    build = _BUILDERS.get(type(kind))
    return pyarrow.array(values, arrow_type) if build is None else build(values, kind, arrow_type)


def _missing(values: Sequence[Any]) -> Any:
    return pyarrow.array([value is None for value in values], pyarrow.bool_())


def _children(values: Sequence[Any], kind: StructType, arrow_types: Sequence[Any]) -> list[Column]:
    names = [attribute(position) for position in range(len(kind))]
    if None in values:
        picked = [
            [None if value is None else getattr(value, name) for value in values] for name in names
        ]
    else:
        picked = [list(map(attrgetter(name), values)) for name in names]
    return [
        column_of(some, field.dataType, arrow_type)
        for some, field, arrow_type in zip(picked, kind.fields, arrow_types, strict=True)
    ]


def _struct_column(values: Sequence[Any], kind: Any, arrow_type: Any) -> Column:
    children = _children(values, kind, [field.type for field in arrow_type])
    return pyarrow.StructArray.from_arrays(children, fields=list(arrow_type), mask=_missing(values))


def _list_column(values: Sequence[Any], kind: Any, arrow_type: Any) -> Column:
    if not _is_nested(kind.elementType):
        return pyarrow.array(values, arrow_type)
    flat = [element for value in values if value is not None for element in value]
    inner = column_of(flat, kind.elementType, arrow_type.value_type)
    return pyarrow.ListArray.from_arrays(
        _list_offsets(values), inner, type=arrow_type, mask=_missing(values)
    )


def _map_column(values: Sequence[Any], kind: Any, arrow_type: Any) -> Column:
    present = [value for value in values if value is not None]
    keys = pyarrow.array([key for value in present for key in value], pyarrow.string())
    flat = [element for value in present for element in value.values()]
    items = column_of(flat, kind.valueType, arrow_type.item_type)
    entries = pyarrow.StructArray.from_arrays(
        [keys, items], fields=[arrow_type.key_field, arrow_type.item_field]
    )
    lists = pyarrow.ListArray.from_arrays(_list_offsets(values), entries, mask=_missing(values))
    return pyarrow.MapArray.from_buffers(
        arrow_type, len(lists), lists.buffers()[:2], lists.null_count, 0, [entries]
    )


def _list_offsets(values: Sequence[Any]) -> Any:
    lengths = numpy.array([0 if value is None else len(value) for value in values], numpy.int32)
    offsets = numpy.zeros(len(values) + 1, numpy.int32)
    numpy.cumsum(lengths, out=offsets[1:])
    return pyarrow.array(offsets)


def _time_column(values: Sequence[Any], _kind: Any, arrow_type: Any) -> Column:
    utc = datetime.UTC
    zoned = [
        value.replace(tzinfo=utc) if value is not None and value.tzinfo is None else value
        for value in values
    ]
    return pyarrow.array(zoned, arrow_type)


def _is_nested(kind: DataType) -> bool:
    return type(kind) in _BUILDERS


_BUILDERS: Final[dict[type[DataType], Callable[[Sequence[Any], Any, Any], Column]]] = {
    StructType: _struct_column,
    ArrayType: _list_column,
    MapType: _map_column,
    TimestampType: _time_column,
}
