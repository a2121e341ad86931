"""The columns of the source: the envelope of a record, its payload, and the fields asked for.

`data` and `meta` are the bytes as they were sent. A row is a record, or a gap: then `gap` says
the range that is lost, `seq` is the first seq of it, and everything else is null.

The fields are a DDL text such as `user string, amount long`, read without a JVM to ask: Spark asks
for a source's schema in a process of its own, where Spark's own parser cannot be reached. What is
read is what payload fields need: names, the types JSON can hold, and arrays, maps and structs of
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
    VariantType,
)

from headwater.core.errors import RequestError
from headwater.spark.runtime.arrow_schema import to_arrow
from headwater.spark.source.options import Invalid, Payload, SourceOptions

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


GAP: Final = StructType(
    [
        StructField("gap_from", LongType()),
        StructField("gap_to", LongType()),
        StructField("reason", StringType()),
        StructField("missed_estimate", LongType()),
    ]
)
INVALID_COLUMN: Final = "invalid"
"""With invalid=column: why the payload is not what `fields` says; null when it is."""
_DATA_TYPES: Final[dict[Payload, DataType]] = {
    Payload.STRING: StringType(),
    Payload.BINARY: BinaryType(),
    Payload.VARIANT: VariantType(),
}


def envelope(payload: Payload = Payload.STRING) -> StructType:
    return StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("seq", LongType(), nullable=False),
            StructField("ts", TimestampType()),
            StructField("node", StringType()),
            StructField("tag", StringType()),
            StructField("data", _DATA_TYPES[payload]),
            StructField("meta", StringType()),
            StructField("gap", GAP),
        ]
    )


ENVELOPE_NAMES: Final = frozenset(field.name for field in envelope().fields)


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """What a reader gives: the whole schema, and which of it is parsed from payloads."""

    schema: StructType
    payload: Payload
    fields: StructType
    """Parsed from the payload; empty when nothing is."""
    fields_column: str | None
    """The struct column that holds them; None when each is a column of its own."""

    def __contains__(self, name: str) -> bool:
        return name in self.schema.fieldNames()

    def arrow(self) -> Any:
        """The same as Arrow, to the last nullable, as Spark compares it."""
        return to_arrow(self.schema)


def full_columns(options: SourceOptions) -> SourceColumns:
    """Every column these options give."""
    columns = envelope(options.payload).fields
    fields = StructType([]) if options.fields is None else parse_ddl(options.fields)
    taken = _taken(options)
    if options.fields_column is not None:
        _refuse_taken([options.fields_column], taken, "fieldsColumn", "choose another name")
        columns = [*columns, StructField(options.fields_column, fields)]
    else:
        advice = "give option fieldsColumn, a struct column for them"
        _refuse_taken(fields.fieldNames(), taken, "fields", advice)
        columns = [*columns, *fields.fields]
    if options.invalid is Invalid.COLUMN and len(fields):
        columns = [*columns, StructField(INVALID_COLUMN, StringType())]
    return SourceColumns(StructType(columns), options.payload, fields, options.fields_column)


def _taken(options: SourceOptions) -> frozenset[str]:
    """Names no field of a payload can have."""
    return ENVELOPE_NAMES | ({INVALID_COLUMN} if options.invalid is Invalid.COLUMN else set())


def _refuse_taken(names: list[str], taken: frozenset[str], option: str, advice: str) -> None:
    for name in names:
        if name.lower() in taken:
            raise RequestError(
                f"option {option} names {name!r}, which is a column of the source; {advice}",
                detail={"option": option},
            )


def chosen_columns(options: SourceOptions, wanted: StructType) -> SourceColumns:
    """The columns of a schema that was given: some of the envelope, some of the payload's fields.

    Spark does not say which columns a query uses, so a reader that is given a smaller
    schema is how less is read and moved. A column that is not known is a field of the payload.
    """
    known = {field.name: field for field in full_columns(options).schema.fields}
    taken = _taken(options)
    parsed: list[StructField] = []
    payload, inner = options.payload, StructType([])
    for field in wanted.fields:
        expected = known.get(field.name)
        if field.name == "data":
            payload = _payload_of(field)
        elif field.name == options.fields_column and isinstance(field.dataType, StructType):
            inner = field.dataType
        elif field.name in taken:
            if expected is None or not _same(field.dataType, expected.dataType):
                raise _wrong_type(field, expected)
        else:
            parsed.append(StructField(field.name, field.dataType))
    if parsed and options.fields_column is not None:
        raise RequestError(
            f"column {parsed[0].name!r} of the schema is not in {options.fields_column!r}, where "
            "option fieldsColumn puts the payload's fields"
        )
    fields = inner if options.fields_column is not None else StructType(parsed)
    if not len(fields) and options.invalid is Invalid.COLUMN:
        fields = full_columns(options).fields  # asked for only to know whether they fit
    return SourceColumns(wanted, payload, fields, options.fields_column)


def _payload_of(field: StructField) -> Payload:
    for payload, kind in _DATA_TYPES.items():
        if field.dataType == kind:
            return payload
    raise RequestError(
        f"column data is string, binary or variant, not {field.dataType.simpleString()}"
    )


def _same(one: DataType, other: DataType) -> bool:
    """Equal but for what may be null."""
    return one.simpleString() == other.simpleString()


def _wrong_type(field: StructField, expected: StructField | None) -> RequestError:
    if expected is None:
        return RequestError(f"column {field.name!r} needs the option fields beside invalid=column")
    wanted, given = expected.dataType.simpleString(), field.dataType.simpleString()
    return RequestError(f"column {field.name!r} is {wanted}, not {given}")
