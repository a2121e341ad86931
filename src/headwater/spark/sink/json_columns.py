"""Arrow columns as JSON texts: one text for each value, null where there is none.

Everything a column can be done to at once is done at once; only texts that need escaping, bytes
and variants are converted one by one. As in Spark's own `to_json`, fields that are null are left
out of an object, and numbers JSON has no words for become texts.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_UNSAFE: Final = r'["\\\x00-\x1f]'
_join = partial(pc.binary_join_element_wise, null_handling="emit_null")
_encode = msgspec.json.Encoder().encode


def json_texts(column: Any) -> Any:
    """The values of a column as JSON; null stays null."""
    for fits, write in _WRITERS:
        if fits(column.type):
            return write(column)
    return _one_by_one(column)


def json_objects(names: Sequence[str], columns: Sequence[Any]) -> Any:
    """One object for each row. Fields that are null are left out."""
    parts = [
        _join(f",{_encode(name).decode()}:", json_texts(column), "")
        for name, column in zip(names, columns, strict=True)
    ]
    inside = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="")
    without_comma = pc.utf8_replace_slice(inside, 0, 1, "")
    return _join("{", without_comma, "}", "")


def quoted(column: Any) -> Any:
    """Texts in quotes. Most need nothing else; the others are escaped one by one."""
    column = column.cast(pa.string())
    plain = _join('"', column, '"', "")
    unsafe = pc.fill_null(pc.match_substring_regex(column, _UNSAFE), False)
    if not pc.any(unsafe).as_py():
        return plain
    escaped = [_encode(text).decode() for text in column.filter(unsafe).to_pylist()]
    return pc.replace_with_mask(plain, unsafe, pa.array(escaped, pa.string()))


def is_variant(kind: pa.DataType) -> bool:
    """Spark sends a variant as a struct of two byte strings, with a word on the second."""
    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    fields = [kind.field(position) for position in range(2)]
    return any((field.metadata or {}).get(b"variant") == b"true" for field in fields)


def _boolean(column: Any) -> Any:
    return pc.if_else(column, "true", "false")


def _number(column: Any) -> Any:
    return column.cast(pa.string())


def _float(column: Any) -> Any:
    texts = column.cast(pa.string())
    for spelling, name in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, spelling), f'"{name}"', texts)
    return texts


def _date(column: Any) -> Any:
    return _join('"', column.cast(pa.string()), '"', "")


def _timestamp(column: Any) -> Any:
    zone = "" if column.type.tz is None else "Z"
    naive = column.cast(pa.timestamp(column.type.unit, "UTC")) if zone else column
    texts = pc.strftime(naive, format="%Y-%m-%dT%H:%M:%S")
    return _join('"', texts, f'{zone}"', "")


def _bytes(column: Any) -> Any:
    texts = [
        None if value is None else f'"{base64.b64encode(value).decode()}"'
        for value in column.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _variant(column: Any) -> Any:
    from pyspark.sql.types import VariantVal

    texts = [
        None if value is None else VariantVal(value["value"], value["metadata"]).toJson()
        for value in column.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _struct(column: Any) -> Any:
    names = [column.type.field(position).name for position in range(column.type.num_fields)]
    objects = json_objects(names, [pc.struct_field(column, [at]) for at in range(len(names))])
    if not names:
        objects = pa.array(["{}"] * len(column), pa.string())
    return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.string()))


def _list(column: Any) -> Any:
    values = pc.fill_null(json_texts(column.flatten()), "null")
    return _joined(column, values, "[", "]")


def _map(column: Any) -> Any:
    entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    entries = column.cast(pa.list_(entry))
    flat = entries.flatten()
    keys = quoted(pc.struct_field(flat, [0]))
    values = pc.fill_null(json_texts(pc.struct_field(flat, [1])), "null")
    return _joined(entries, _join(keys, values, ":"), "{", "}")


def _joined(column: Any, values: Any, opening: str, closing: str) -> Any:
    """The texts of each list's values between brackets."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    lists = pa.ListArray.from_arrays(offsets.cast(pa.int32()), values)
    texts = _join(opening, pc.binary_join(lists, ","), closing, "")
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _one_by_one(column: Any) -> Any:
    texts = [None if value is None else _encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _any_of(*checks: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(check(kind) for check in checks)


_WRITERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...]] = (
    (pa.types.is_boolean, _boolean),
    (_any_of(pa.types.is_integer, pa.types.is_decimal), _number),
    (pa.types.is_floating, _float),
    (_any_of(pa.types.is_string, pa.types.is_large_string), quoted),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (_any_of(pa.types.is_binary, pa.types.is_large_binary), _bytes),
    (is_variant, _variant),
    (pa.types.is_struct, _struct),
    (_any_of(pa.types.is_list, pa.types.is_large_list), _list),
    (pa.types.is_map, _map),
)
"""Which kind of column is written how; the first that fits."""
