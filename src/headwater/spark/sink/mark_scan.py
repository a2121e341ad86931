"""Scans a topic for chunks that were written before: by their marks, from a seq on.

A mark says how many records its chunk has, and a chunk is one write, so its records have seqs in a
row: the scan jumps over the writer's own chunks and reads what lies between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headwater.core import limits
from headwater.core.errors import TopicNotFoundError, WriteUncertainError
from headwater.core.records import Record
from headwater.spark.sink.chunks import Mark
from headwater.spark.sink.rows import MARK

if TYPE_CHECKING:
    from headwater.client import Client
    from headwater.core.results import Tombstone

_FEW: Final = 16
"""Records requested where a mark is expected."""


def find_marks(client: Client, topic: str, after: int, writer: str) -> Iterator[tuple[int, Mark]]:
    """A writer's chunks whose first record has a seq above `after`, with that seq, in order."""
    known, limit = after, _FEW
    while True:
        try:
            diff = client.diff(topic, known, limit=limit, max_batch_bytes=limits.READ_BYTES_CLAMP)
        except TopicNotFoundError:
            return
        if diff.tombstone is not None:
            raise _overtaken(topic, after, diff.tombstone)
        for record in diff.records:
            if record.seq <= known:
                continue  # inside a chunk that is known
            if record.seq != known + 1:
                raise _missing(topic, known + 1, record.seq - 1)
            known = record.seq
            mark = mark_of(record, topic)
            if mark is not None and mark.writer == writer:
                yield record.seq, mark
                known = record.seq + mark.count - 1
        if known < diff.next_from_seq:
            raise _missing(topic, known + 1, diff.next_from_seq)
        if known >= diff.head_seq:
            return
        limit = _FEW if known > diff.next_from_seq else limits.READ_RECORDS_CLAMP


def mark_of(record: Record, topic: str) -> Mark | None:
    """The mark of a record, if it was written as it stands and is no copy from another topic."""
    if record.meta_json is None or MARK.encode() not in record.meta_json:
        return None
    text = (record.meta or {}).get(MARK)
    mark = Mark.read(text) if isinstance(text, str) else None
    return mark if mark is not None and mark.topic == topic else None


def _missing(topic: str, first: int, last: int) -> WriteUncertainError:
    return WriteUncertainError(
        f"records {first} to {last} of {topic} were deleted after this write began, and an earlier "
        "attempt at it may have written them: nothing was written again. Go on with a new "
        "checkpoint or another write id, and start after this batch"
    )


def _overtaken(topic: str, after: int, lost: Tombstone) -> WriteUncertainError:
    return WriteUncertainError(
        f"records {lost.gap_from} to {lost.gap_to} of {topic} are gone ({lost.reason}), and an "
        f"earlier attempt at this write may have written some of them after {after}: nothing was "
        "written again. Give the topic a larger cap or age limit, and write the batch anew under "
        "another id if it must be there"
    )
