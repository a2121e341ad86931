"""Records as Arrow: the same envelope for pandas, Polars, DuckDB and Spark. Only module that
imports pyarrow for the wire."""

from __future__ import annotations

from typing import Final

import pyarrow
import pyarrow.ipc

from headwater.core.records import Record

ARROW_MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"

ENVELOPE: Final = pyarrow.schema(
    [
        pyarrow.field("topic", pyarrow.string(), nullable=False),
        pyarrow.field("seq", pyarrow.int64(), nullable=False),
        pyarrow.field("ts", pyarrow.timestamp("ms", tz="UTC"), nullable=False),
        pyarrow.field("node", pyarrow.string()),
        pyarrow.field("tag", pyarrow.string()),
        pyarrow.field("data", pyarrow.string(), nullable=False),
        pyarrow.field("meta", pyarrow.string()),
    ]
)


def records_to_arrow(topic: str, records: list[Record]) -> bytes:
    """An Arrow IPC stream with one batch."""
    batch = pyarrow.record_batch(
        [
            pyarrow.array([topic] * len(records), pyarrow.string()),
            pyarrow.array([record.seq for record in records], pyarrow.int64()),
            pyarrow.array([record.ts for record in records], pyarrow.timestamp("ms", tz="UTC")),
            pyarrow.array([record.node for record in records], pyarrow.string()),
            pyarrow.array([record.tag for record in records], pyarrow.string()),
            pyarrow.array([record.data_json for record in records], pyarrow.binary()).cast(
                pyarrow.string()
            ),
            pyarrow.array([record.meta_json for record in records], pyarrow.binary()).cast(
                pyarrow.string()
            ),
        ],
        schema=ENVELOPE,
    )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, ENVELOPE) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
