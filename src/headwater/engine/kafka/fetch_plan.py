"""Fetch: offset -> global id -> index entry -> whole batches.

The owner plans, which touches no file; any thread reads. A batch that comes from a file is checked
against its CRC, so damage is refused and never served (I6). What is before a damaged batch is
served; a fetch that begins at it is refused with file and offset, unless consumers may pass it.
"""

from __future__ import annotations

from typing import Final

from headwater.core.arrays import numpy
from headwater.core.errors import DamageError, FormatError, StorageError
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.errors import DamagedBatchError, OffsetRangeError
from headwater.engine.kafka.partition import KafkaPartition
from headwater.format.kafka.batch import (
    LEADER_EPOCH,
    PREAMBLE_BYTES,
    pack_preamble,
    read_header,
    read_sound,
)
from headwater.format.kafka.entry import HOLE_SEGMENT, PREFIX_BYTES, key_text, split_key
from headwater.format.kafka.names import log_name, partition_name
from headwater.format.kafka.records import encode_gapped
from headwater.observe.tracing import FETCH_SPAN
from headwater.store.kafka.files import (
    Batches,
    Ids,
    KafkaSegmentFiles,
    SegmentTable,
    count_before,
    locate,
)
from headwater.store.pair import RecordDamage

WINDOW_MAX: Final = 16_384
"""Records one fetch reads at most: it answers with those, and the client fetches again."""
_NOTHING: Final = memoryview(b"")
"""The log of a record that a repair gave up."""
WINDOW_MIN: Final = 64
_ATTEMPTS_MAX: Final = 16
"""A segment may be rewritten before it is opened, and again."""


class FetchPlan:
    """What a fetch will read. `read` may be called by any thread, once."""

    def __init__(
        self,
        core: KafkaCore,
        partition: KafkaPartition,
        offset: int,
        max_bytes: int,
        records_max: int,
        batches: list[bytes | memoryview] | None,
        ids: Ids | None,
    ) -> None:
        self.high_watermark = partition.high_watermark
        self.log_start_offset = partition.log_start_offset
        self.offset = offset
        self._core = core
        self._key = partition.entry_key
        self._partition = partition
        self._files: KafkaSegmentFiles = core.files
        self._table: SegmentTable = core.table
        self._max_bytes = max_bytes
        self._records_max = records_max
        self._in_memory = batches
        self._ids = ids
        self.skips_damaged = False
        """An empty batch stands for a damaged one: the consumer goes on behind it."""

    @property
    def needs_files(self) -> bool:
        """False when everything is in memory: reading does not block."""
        return self._ids is not None

    def read(self) -> list[bytes | memoryview]:
        """Whole batches with their offsets, at least one unless the offset is at the end.

        The first one may begin before the requested offset, as in Kafka.
        """
        spans, clock = self._core.spans, self._core.clock
        if not spans.refresh():
            return self._find()
        began_ms = clock.wall_ms()
        batches = self._find()
        facts: dict[str, str | int] = {
            "virtual_topic": key_text(*split_key(self._key)),
            "fetch_offset": self.offset,
            "returned_count": sum(read_header(batch).record_count for batch in batches),
            "high_watermark": self.high_watermark,
        }
        spans.record(FETCH_SPAN, began_ms, clock.wall_ms(), facts)
        return batches

    def _find(self) -> list[bytes | memoryview]:
        if self._ids is None:
            return self._in_memory or []
        for _ in range(_ATTEMPTS_MAX):
            try:
                return self._read(self._ids)
            except FileNotFoundError:
                # A segment was rewritten or deleted after the plan was made: try again.
                self._table = self._core.table
                if self._is_gone:
                    break
        if self._is_gone:
            what = f"offset {self.offset} was removed meanwhile"
            raise OffsetRangeError(what)
        what = f"offset {self.offset} was moved again and again meanwhile; try again"
        raise StorageError(what)

    @property
    def _is_gone(self) -> bool:
        partition = self._partition
        return partition.topic.dropped or self.offset < partition.log_start_offset

    def _read(self, ids: Ids) -> list[bytes | memoryview]:
        located = locate(self._files, self._table, ids)
        entries = located.entries
        lengths = entries["length"]
        within = int(numpy.searchsorted(numpy.cumsum(lengths), self._max_bytes, "right"))
        needed = int(numpy.searchsorted(located.first, self._records_max))
        count = min(max(within, 1), max(needed, 1), len(lengths))
        logs = self._logs(located, count)
        numbers = entries["segment_id"][:count].tolist()
        starts = entries["physical_offset"][:count].tolist()
        sizes = lengths[:count].tolist()
        positions = located.first.tolist()
        batches: list[bytes | memoryview] = []
        for at, number in enumerate(numbers):
            begin = starts[at] + PREFIX_BYTES
            batch = logs.get(number, _NOTHING)[begin : begin + sizes[at]]
            try:
                header = read_sound(batch)
            except FormatError as error:
                # The last one may go on behind the ids: then the next read finds the rest of it.
                end = positions[at + 1] if at + 1 < len(positions) else len(ids)
                damaged = self._damaged(error, number, begin, positions[at], end)
                if self.skips_damaged:
                    first = damaged.first_offset
                    batches.append(encode_gapped(first, [], [], damaged.end_offset - first - 1))
                    continue
                if batches:
                    break  # what is sound goes out; the next fetch begins here, and is refused
                raise damaged from error
            base = self.offset + positions[at]
            if at == 0:
                base -= count_before(self._files, self._table, int(ids[0]), header.record_count)
            if header.base_offset != base or header.leader_epoch != LEADER_EPOCH:
                batch = memoryview(
                    pack_preamble(base, len(batch)) + batch[PREAMBLE_BYTES:].tobytes()
                )
            batches.append(batch)
        return batches

    def _logs(self, located: Batches, count: int) -> dict[int, memoryview]:
        """The logs these batches are in, mapped as far as they reach."""
        entries = located.entries[:count]
        ends = entries["physical_offset"].astype(numpy.int64) + entries["length"] + PREFIX_BYTES
        return {
            number: self._files.log(number, int(ends[entries["segment_id"] == number].max()))
            for number in numpy.unique(entries["segment_id"]).tolist()
            if number != HOLE_SEGMENT
        }

    def _damaged(
        self, error: FormatError, number: int, begin: int, first: int, end: int
    ) -> DamagedBatchError:
        """The error for a damaged batch; the first time the operator gets it too."""
        path, reason = self._files.path_of(log_name(number)), error.reason
        if number == HOLE_SEGMENT:
            path, reason = path.parent, "damaged, and given up by a repair"
        where = DamageError(
            reason,
            path=path,
            offset=begin + error.offset,
            advice=(
                "restore a backup, delete the records up to the next batch, or let consumers pass "
                "it with kafka_skip_damaged"
            ),
        )
        first, end = self.offset + first, self.offset + end
        finding = RecordDamage(path, begin, first + 1, reason, last_seq=end)
        partition = self._partition
        name = partition_name(partition.topic.name, partition.index)
        if self._core.damage.note(name, finding, partition.topic.org):
            self._core.counters.damaged_batches += 1
        return DamagedBatchError(first, end, where)


class FetchPlanner:
    def __init__(self, core: KafkaCore) -> None:
        self._core = core

    def plan(
        self, partition: KafkaPartition, offset: int, max_bytes: int, records_max: int
    ) -> FetchPlan:
        if not partition.log_start_offset <= offset <= partition.high_watermark:
            raise OffsetRangeError(
                f"offset {offset}; there are {partition.log_start_offset} to "
                f"{partition.high_watermark}",
            )
        core = self._core
        core.counters.fetches += 1
        tail, ids = partition.tail, None
        batches: list[bytes | memoryview] | None = []
        if offset < partition.high_watermark:
            batches = None if tail is None else tail.read(offset, max_bytes, records_max)
        if batches is None:
            core.counters.fetches_from_files += 1
            ids = _window(partition, offset, max_bytes)
        return FetchPlan(core, partition, offset, max_bytes, records_max, batches, ids)


def _window(partition: KafkaPartition, offset: int, max_bytes: int) -> Ids:
    """Ids from this offset on, about as many as their bytes will fill the answer."""
    assert partition.ids is not None
    records = partition.high_watermark - partition.log_start_offset
    wanted = max_bytes * records // max(partition.bytes, 1) + WINDOW_MIN
    rank = offset - partition.removed
    chosen = partition.ids[rank : rank + min(wanted, WINDOW_MAX)]
    return numpy.frombuffer(chosen.to_array(), numpy.uint64)
