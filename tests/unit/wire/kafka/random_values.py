"""Values for every field of a table, from a source of chance."""

from __future__ import annotations

import random
from typing import Any

from headwater.wire.kafka.apis import SUPPORTED, ApiKey
from headwater.wire.kafka.fields import Fields, FieldType, MessageField
from headwater.wire.kafka.messages import MESSAGES

EVERY_VERSION = [
    (api, version) for api, (oldest, newest) in SUPPORTED.items()
    for version in range(oldest, newest + 1)
]  # fmt: skip
BITS = {FieldType.INT8: 8, FieldType.INT16: 16, FieldType.INT32: 32, FieldType.INT64: 64}
LETTERS = "abcXYZ019._-é漢🙂 \x00"


def fields_of(api: ApiKey, *, request: bool) -> Fields:
    return MESSAGES[api].request if request else MESSAGES[api].response


def fill(fields: Fields, version: int, chance: random.Random) -> dict[str, Any]:
    """A value for each field that is in the version."""
    return {field.name: _value(field, version, chance) for field in fields if field.is_in(version)}


def with_defaults(fields: Fields, values: dict[str, Any]) -> dict[str, Any]:
    """What a decoder gives for these values: every field of the table."""
    found = {}
    for field in fields:
        value = values.get(field.name, field.default)
        if field.rows and field.many and value:
            value = [with_defaults(field.rows, each) for each in value]
        elif field.rows and not field.many and value is not None:
            value = with_defaults(field.rows, value)
        found[field.name] = list(value) if field.many and value is not None else value
    return found


def plain(value: Any) -> Any:
    """The same with lists for tuples and bytes for views, to be compared."""
    match value:
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case memoryview():
            return bytes(value)
        case _:
            return value


def _value(field: MessageField, version: int, chance: random.Random) -> Any:
    if field.is_nullable_in(version) and chance.random() < 0.25:
        return None
    if field.many:
        # Beyond 127 rows or bytes a compact length takes two bytes.
        count = chance.choice((0, 1, 2, 3, 130 if field.kind else 3))
        return [_single(field, version, chance) for _ in range(count)]
    return _single(field, version, chance)


def _single(field: MessageField, version: int, chance: random.Random) -> Any:
    match field.kind:
        case None:
            return fill(field.rows, version, chance)
        case FieldType.BOOL:
            return chance.random() < 0.5
        case FieldType.UUID:
            return chance.randbytes(16)
        case FieldType.STRING:
            return "".join(chance.choices(LETTERS, k=chance.choice((0, 1, 7, 150))))
        case FieldType.BYTES | FieldType.RECORDS:
            return chance.randbytes(chance.choice((0, 1, 20, 300)))
        case kind:
            bits = BITS[kind]
            edges = (0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))
            return chance.choice((*edges, chance.getrandbits(bits - 1)))
