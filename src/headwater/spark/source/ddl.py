"""A DDL text such as `user string, amount long` as Spark's types, without a JVM to ask.

Spark asks for a source's schema in a process of its own, where Spark's own parser cannot be
reached. This one reads what payload fields need: names, the types JSON can hold, and arrays,
maps and structs of them.
"""

from __future__ import annotations

import re
from typing import Final

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
    StructField,
    StructType,
    TimestampType,
)

from headwater.core.errors import RequestError

SIMPLE: Final[dict[str, type[DataType]]] = {
    "string": StringType,
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "date": DateType,
    "timestamp": TimestampType,
}

_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([A-Za-z0-9_.$-]+)|([<>,:]))")


class _Words:
    """The text as words, read one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fail(self, wanted: str) -> RequestError:
        rest = self._text[self._at :].strip()
        where = f"before {rest[:40]!r}" if rest else "at the end"
        return RequestError(
            f"option fields: {wanted} is expected {where} of {self._text[:120]!r}; "
            "it is written like `user string, amount long`",
            detail={"option": "fields"},
        )

    def peek(self) -> str | None:
        match = _TOKEN.match(self._text, self._at)
        return None if match is None else match[0].strip()

    def take(self, *marks: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[3] not in marks:
            return False
        self._at = match.end()
        return True

    def word(self, wanted: str) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[3] is not None:
            raise self.fail(wanted)
        self._at = match.end()
        quoted: str | None = match[1]
        return match[2] if quoted is None else quoted.replace("``", "`")

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise self.fail(f"'{mark}'")

    @property
    def is_done(self) -> bool:
        return not self._text[self._at :].strip()


def parse_ddl(text: str) -> StructType:
    """The fields of a payload. A RequestError says where the text cannot be read."""
    words = _Words(text)
    fields = _fields(words)
    if not words.is_done:
        raise words.fail("a comma or the end")
    return fields


def _fields(words: _Words) -> StructType:
    fields: list[StructField] = []
    while True:
        name = words.word("a name")
        words.take(":")
        kind = _type(words)
        if name.lower() in {field.name.lower() for field in fields}:
            raise RequestError(
                f"option fields names {name!r} twice; Spark ignores case in names",
                detail={"option": "fields"},
            )
        fields.append(StructField(name, kind))
        if (words.peek() or "").lower() == "not":
            raise RequestError(
                f"option fields: {name} cannot be NOT NULL: a payload may lack any field",
                detail={"option": "fields"},
            )
        if not words.take(","):
            return StructType(fields)


def _type(words: _Words) -> DataType:
    name = words.word("a type")
    lowered = name.lower()
    if lowered in SIMPLE:
        return SIMPLE[lowered]()
    if lowered == "array":
        words.need("<")
        inner = _type(words)
        words.need(">")
        return ArrayType(inner)
    if lowered == "map":
        words.need("<")
        key = _type(words)
        if not isinstance(key, StringType):
            raise words.fail("string, the only key JSON has,")
        words.need(",")
        value = _type(words)
        words.need(">")
        return MapType(key, value)
    if lowered == "struct":
        words.need("<")
        fields = _fields(words)
        words.need(">")
        return fields
    known = ", ".join([*SIMPLE, "array<>", "map<string,>", "struct<>"])
    raise RequestError(
        f"option fields: there is no type {name!r}; types are {known}", detail={"option": "fields"}
    )
