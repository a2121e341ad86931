"""The columns of the source: the envelope of a record, its payload, and the fields asked for.

`data` and `meta` are the bytes as they were sent. A row is a record, or a gap: then `gap` says
the range that is lost, `seq` is the first seq of it, and everything else is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from headwater.core.errors import RequestError
from headwater.spark.runtime.arrow_schema import to_arrow
from headwater.spark.source.ddl import parse_ddl
from headwater.spark.source.options import Invalid, Payload, SourceOptions

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
