"""Columns of a table against columns that are wanted: what is added, widened, kept, or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from headwater.core.errors import RequestError

Widens = Callable[[Any, Any], bool]
VARIANT_TYPE: Final = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""A VARIANT column as files have it."""
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
_LADDERS: Final = (_INTEGERS, _FLOATS)


def is_wider(kind: Any, other: Any) -> bool:
    """Can every value of `other` be one of `kind`, and more?"""
    for ladder in _LADDERS:
        if kind in ladder and other in ladder:
            return ladder.index(kind) > ladder.index(other)
    return False


def merged(there: Any | None, wanted: Any, widens: Widens, table: str) -> Any:
    """The columns a table will have: those it has, in their order, then the new ones.

    A column keeps its type unless the format can widen it. A narrower one is wanted: then its
    values are written as the wider type. Anything else is a clash, refused before it begins.
    """
    if there is None:
        return wanted
    fields = []
    for field in there:
        position = wanted.get_field_index(field.name)
        if position < 0 or wanted.field(position).type == field.type:
            fields.append(field)
            continue
        kind = wanted.field(position).type
        if is_wider(kind, field.type):
            fields.append(field.with_type(kind) if widens(field.type, kind) else field)
        elif is_wider(field.type, kind) or _same(kind, field.type):
            fields.append(field)
        else:
            raise RequestError(
                f"column {field.name!r} of {table} is {field.type}, and {kind} is wanted: a "
                f"column keeps its type. Give the field another name, or write to another table"
            )
    known = set(there.names)
    fields += [field for field in wanted if field.name not in known]
    return pa.schema(fields)


def _same(kind: Any, other: Any) -> bool:
    """Alike but for the names and nullability inside, which formats spell each in their way."""
    if pa.types.is_list(kind) and pa.types.is_list(other):
        return _same(kind.value_type, other.value_type)
    if pa.types.is_map(kind) and pa.types.is_map(other):
        return _same(kind.key_type, other.key_type) and _same(kind.item_type, other.item_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        ours = {field.name: field.type for field in kind}
        theirs = {field.name: field.type for field in other}
        return ours.keys() == theirs.keys() and all(_same(ours[n], theirs[n]) for n in ours)
    return bool(kind == other)


def plain(schema: Any) -> Any:
    """The same columns without what a library adds: ids, large strings, names of elements."""
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: Any) -> Any:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        if {field.name for field in kind} == {"metadata", "value"}:
            return VARIANT_TYPE
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind


def new_names(there: Any, schema: Any) -> list[Any]:
    """The fields a table lacks."""
    return [field for field in schema if field.name not in set(there.names)]


def check_partitions(schema: Any, partition_by: Sequence[str]) -> None:
    for name in partition_by:
        if schema.get_field_index(name) < 0:
            raise RequestError(
                f"there is no column {name!r} to partition by; there are {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            raise RequestError(f"column {name!r} is {kind}: no table can be partitioned by that")
