"""Records as Arrow: the same envelope for pandas, Polars, DuckDB and Spark.

Columns are cut out of the stored frames; nothing is done for each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow
import pyarrow.ipc

from headwater.core.arrays import numpy
from headwater.core.units import KIB
from headwater.wire.frame_rows import FrameRows, repeated

ARROW_MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
_SMALL_BYTES: Final = 16 * KIB
_TIMESTAMP: Final = pyarrow.timestamp("ms", tz="UTC")

ENVELOPE: Final = pyarrow.schema(
    [
        pyarrow.field("topic", pyarrow.string(), nullable=False),
        pyarrow.field("seq", pyarrow.int64(), nullable=False),
        pyarrow.field("ts", _TIMESTAMP, nullable=False),
        pyarrow.field("node", pyarrow.string()),
        pyarrow.field("tag", pyarrow.string()),
        pyarrow.field("data", pyarrow.string(), nullable=False),
        pyarrow.field("meta", pyarrow.string()),
    ]
)


def frames_to_arrow(
    topic: str, buffer: bytes | memoryview, offsets: Any, *, in_segment: bool
) -> Any:
    """The frames at these offsets, checked before, as one batch."""
    make = FrameRows.of_segment if in_segment else FrameRows.of_log
    rows = make(memoryview(buffer), offsets)
    return pyarrow.record_batch(
        [
            repeated(topic, len(rows)),
            pyarrow.array(rows.seqs, pyarrow.int64()),
            pyarrow.array(rows.heads["ts"].astype(numpy.int64), pyarrow.int64()).cast(_TIMESTAMP),
            *[rows.text(name) for name in ("node", "tag", "data", "meta")],
        ],
        schema=ENVELOPE,
    )


def arrow_stream(batches: Sequence[Any]) -> list[bytes | memoryview]:
    """An Arrow IPC stream of these batches, in parts: the columns stay where they are."""
    parts = _JoinedFile()
    with pyarrow.ipc.new_stream(pyarrow.PythonFile(parts, "w"), ENVELOPE) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return parts.taken()


class _JoinedFile:
    """A file that keeps what is written to it, and copies only what is small."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._small: list[Any] = []

    def write(self, part: Any) -> int:
        if len(part) < _SMALL_BYTES:
            self._small.append(part)
        else:
            self._join_small()
            self._parts.append(memoryview(part))
        return len(part)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self) -> list[bytes | memoryview]:
        self._join_small()
        return self._parts

    def _join_small(self) -> None:
        if self._small:
            self._parts.append(b"".join(self._small))
            self._small.clear()
