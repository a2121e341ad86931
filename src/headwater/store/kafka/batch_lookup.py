"""From global ids to batches: which entries, which log, where. Many ids in one step."""

from __future__ import annotations

import errno
from typing import NamedTuple, TypeAlias

from headwater.core.arrays import NDArray, numpy
from headwater.format.kafka.entry import Entries
from headwater.store.kafka.files import KafkaSegmentFiles

Ids: TypeAlias = "NDArray[numpy.uint64]"


class SegmentTable(NamedTuple):
    """All indexes in the order of global ids. Never changed, only replaced."""

    numbers: tuple[int, ...]
    base_ids: NDArray[numpy.uint64]
    """Global id of the first entry of each."""
    end_ids: NDArray[numpy.uint64]
    """The id behind the last one; where a segment was deleted, the next begins later than that."""

    def position(self, global_id: int | numpy.uint64) -> int:
        """Which of them has this id. FileNotFoundError when it went with its segment."""
        at = int(numpy.searchsorted(self.base_ids, numpy.uint64(global_id), "right")) - 1
        if at < 0 or global_id >= self.end_ids[at]:
            raise FileNotFoundError(errno.ENOENT, f"record {global_id} went with its segment")
        return at


class Batches(NamedTuple):
    """Batches of one partition, in order; one array element each."""

    first: NDArray[numpy.int64]
    """Position of the batch's first id in the ids that were asked for."""
    entries: Entries


def locate(files: KafkaSegmentFiles, table: SegmentTable, ids: Ids) -> Batches:
    """The batches that these ids, of one partition and sorted, belong to.

    FileNotFoundError when one of them, or the file it should be in, is gone.
    """
    chosen: list[Entries] = []
    low = 0
    while low < len(ids):
        at = table.position(ids[low])
        high = int(numpy.searchsorted(ids, table.end_ids[at], "left"))
        base = table.base_ids[at]
        # No more than is needed: what is mapped of the active segment may end just there.
        count = int(ids[high - 1] - base) + 1
        entries = files.entries(table.numbers[at], count)
        chosen.append(entries[(ids[low:high] - base).astype(numpy.int64)])
        low = high
    entries = chosen[0] if len(chosen) == 1 else numpy.concatenate(chosen)
    positions = entries["segment_id"].astype(numpy.uint64) << numpy.uint64(32)
    positions |= entries["physical_offset"]
    first = numpy.concatenate(([0], numpy.flatnonzero(numpy.diff(positions)) + 1))
    return Batches(first.astype(numpy.int64), entries[first])


def count_before(files: KafkaSegmentFiles, table: SegmentTable, first_id: int, records: int) -> int:
    """How many records of the batch with this id stand before it, given how many it has."""
    at = table.position(first_id)
    position = first_id - int(table.base_ids[at])
    if position == 0 or records <= 1:
        return 0
    low = max(position - records + 1, 0)
    entries = files.entries(table.numbers[at], position + 1)[low : position + 1]
    own = entries[-1]
    same = (entries["physical_offset"] == own["physical_offset"]) & (
        entries["segment_id"] == own["segment_id"]
    )
    other = numpy.flatnonzero(~same)
    return len(entries) - 1 - (int(other[-1]) + 1 if len(other) else 0)
