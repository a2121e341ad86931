"""The first record that is as new as a given time: exactly, as ListOffsets requires.

Batches have their newest timestamp in the header, so only the one batch is decoded whose header
shows that the record is in it. Headers of a window of records are compared at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import DamageError, FormatError
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.errors import RecordsRemovedError
from headwater.engine.kafka.partition import KafkaPartition
from headwater.format.kafka.batch import MAX_TIMESTAMP_AT, read_sound
from headwater.format.kafka.entry import HOLE_SEGMENT, PREFIX_BYTES
from headwater.format.kafka.names import log_name
from headwater.format.kafka.records import decode_records
from headwater.store.kafka.files import (
    Batches,
    Ids,
    KafkaSegmentFiles,
    SegmentTable,
    count_before,
    locate,
)

WINDOW: Final = 65_536
_LONG_AGO: Final = -(2**63)


class TimestampMatch(NamedTuple):
    offset: int
    timestamp_ms: int


class TimestampPlan:
    """A search that is about to be made. `read` may be called by any thread, once."""

    needs_files = True

    def __init__(self, core: KafkaCore, partition: KafkaPartition, timestamp_ms: int) -> None:
        self._core = core
        self._files: KafkaSegmentFiles = core.files
        self._table: SegmentTable = core.table
        self._timestamp_ms = timestamp_ms
        self._start = partition.log_start_offset
        self._end = partition.high_watermark
        self._dropped = partition.removed
        # A copy: the owner goes on adding records while another thread searches.
        self._ids: Any = None if partition.ids is None else partition.ids.copy()

    def read(self) -> TimestampMatch | None:
        """The first record that is not older, or None when all are."""
        try:
            return self._search()
        except FileNotFoundError:
            # A segment was rewritten after the plan was made: try again.
            self._table = self._core.table
        try:
            return self._search()
        except FileNotFoundError as error:
            raise RecordsRemovedError("records were removed meanwhile; ask again") from error

    def _search(self) -> TimestampMatch | None:
        for offset, ids in self._windows():
            located = locate(self._files, self._table, ids)
            newest = newest_timestamps(self._files, located)
            for at in numpy.flatnonzero(newest >= max(self._timestamp_ms, _LONG_AGO + 1)).tolist():
                answer = self._find_in_batch(located, at, offset, int(ids[0]))
                if answer is not None:
                    return answer
        return None

    def _windows(self) -> Iterator[tuple[int, Ids]]:
        if self._ids is None:
            return
        for offset in range(self._start, self._end, WINDOW):
            rank = offset - self._dropped
            chosen = self._ids[rank : rank + min(WINDOW, self._end - offset)]
            yield offset, numpy.frombuffer(chosen.to_array(), numpy.uint64)

    def _find_in_batch(
        self, located: Batches, at: int, offset: int, first_id: int
    ) -> TimestampMatch | None:
        entry = located.entries[at]
        number, begin = int(entry["segment_id"]), int(entry["physical_offset"]) + PREFIX_BYTES
        end = begin + int(entry["length"])
        batch = bytes(self._files.log(number, end)[begin:end])
        try:
            header = read_sound(batch)
            records = decode_records(batch)
        except FormatError as error:
            path = self._files.path_of(log_name(number))
            where = DamageError(error.reason, path=path, offset=begin, advice="restore a backup")
            raise DamageError(str(where)) from where
        base = offset + int(located.first[at])
        if at == 0:
            base -= count_before(self._files, self._table, first_id, header.record_count)
        for record in records:
            here = base + record.offset_delta
            if here >= self._start and record.timestamp_ms >= self._timestamp_ms:
                return TimestampMatch(here, record.timestamp_ms)
        return None


class NewestPlan(TimestampPlan):
    """The record with the newest timestamp, the first of them if there are several."""

    def __init__(self, core: KafkaCore, partition: KafkaPartition) -> None:
        super().__init__(core, partition, 0)

    def _search(self) -> TimestampMatch | None:
        located = (locate(self._files, self._table, ids) for _, ids in self._windows())
        newest = [newest_timestamps(self._files, each) for each in located]
        if not newest:
            return None
        times = numpy.concatenate(newest)
        match = self._first_from(int(times.max()))
        if match is None:
            # The log begins within its first batch, and the newest of that one is gone.
            match = better = self._first_from(int(times[1:].max(initial=_LONG_AGO)))
            while better is not None:
                match, better = better, self._first_from(better.timestamp_ms + 1)
        return match

    def _first_from(self, timestamp_ms: int) -> TimestampMatch | None:
        self._timestamp_ms = timestamp_ms
        return super()._search()


def newest_timestamps(files: KafkaSegmentFiles, located: Batches) -> NDArray[numpy.int64]:
    """The newest timestamp of every batch, from the headers in the logs."""
    entries = located.entries
    positions = entries["physical_offset"].astype(numpy.int64) + PREFIX_BYTES + MAX_TIMESTAMP_AT
    newest = numpy.empty(len(entries), numpy.int64)
    for number in numpy.unique(entries["segment_id"]).tolist():
        own = entries["segment_id"] == number
        if number == HOLE_SEGMENT:  # given up by a repair: not known any more
            newest[own] = _LONG_AGO
            continue
        at = positions[own]
        log = numpy.frombuffer(files.log(number, int(at.max()) + 8), numpy.uint8)
        newest[own] = log[at[:, None] + numpy.arange(8)].view(">i8").reshape(-1)
    return newest
