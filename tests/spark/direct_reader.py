"""The source without Spark: what its driver side plans and its tasks read, pickled in between."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from headwater.core.records import Record
from headwater.core.results import Diff, Tombstone
from headwater.spark.source.data_source import PushingDataSource, PushingReader

Row = dict[str, Any]


def options_of(path: Path | str | None, given: dict[str, Any]) -> dict[str, str]:
    options = {key.lower(): str(value) for key, value in given.items()}
    return options if path is None else {"path": str(path), **options}


def reader_of(
    path: Path | str | None, schema: StructType | None = None, **options: Any
) -> PushingReader:
    source = PushingDataSource(options_of(path, options))
    reader = source.reader(schema or source.schema())
    assert isinstance(reader, PushingReader)
    return reader


def sent(thing: Any) -> Any:
    """As an executor gets it."""
    return pickle.loads(pickle.dumps(thing))


def read_all(reader: Any, partitions: Sequence[Any]) -> list[Row]:
    rows: list[Row] = []
    for partition in partitions:
        for batch in sent(reader).read(sent(partition)):
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


def read(
    path: Path | str | None,
    schema: StructType | None = None,
    filters: Sequence[Filter] = (),
    **options: Any,
) -> list[Row]:
    reader = reader_of(path, schema, **options)
    list(reader.pushFilters(list(filters)))
    return read_all(reader, reader.partitions())


def as_row(topic: str, record: Record) -> Row:
    """What the source should give for a record of the engine."""
    return {
        "topic": topic,
        "seq": record.seq,
        "ts": datetime.fromtimestamp(record.ts / 1_000, UTC),
        "node": record.node,
        "tag": record.tag,
        "data": record.data_json.decode(),
        "meta": None if record.meta_json is None else record.meta_json.decode(),
        "gap": None,
    }


def every_row(database: Any, topic: str, from_seq: int = 0) -> tuple[list[Row], list[Tombstone]]:
    """What the engine itself gives from a cursor on."""
    rows: list[Row] = []
    losses: list[Tombstone] = []
    while True:
        diff: Diff = database.diff(topic, from_seq, limit=1_000)
        rows += [as_row(topic, record) for record in diff.records]
        if diff.tombstone is not None:
            losses.append(diff.tombstone)
        from_seq = diff.next_from_seq
        if diff.caught_up:
            return rows, losses
