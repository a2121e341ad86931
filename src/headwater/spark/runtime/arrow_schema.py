"""Spark schemas as Arrow and back: the one module that has Spark convert them. Rows as batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BATCH_ROWS: Final = 4_096


def to_arrow(schema: StructType) -> Any:
    """Timestamps are in UTC, as Spark keeps them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def to_spark(schema: pyarrow.Schema) -> StructType:
    """What `mapInArrow` wants to know of the batches that a task gives."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def batch_of(rows: Iterable[tuple[Any, ...]], schema: pyarrow.Schema) -> Any:
    """Rows, at least one, as one batch."""
    columns = zip(*rows, strict=True)
    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)],
        schema=schema,
    )


def in_batches(rows: Iterable[tuple[Any, ...]], schema: pyarrow.Schema) -> Iterator[Any]:
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) == _BATCH_ROWS:
            yield batch_of(held, schema)
            held = []
    if held:
        yield batch_of(held, schema)
