"""A round of maintenance: retention, expiry of producers, giving space back, checkpoints.

Retention takes batches that are too old, or too many, from the front of their partition. Ages
follow the retention clock, which never leaps: a wall clock that is set wrong deletes nothing. The
newest batch always stays, as in Kafka, where the active segment does.

Producers that wrote nothing for a day are forgotten, a few at a time: as in Kafka, but the day
counts only while the log is open, and not by the wall clock. A batch that comes again is recognised
also when the server was down for longer than that. The checkpoint has the time of a producer's last
write; the day of one that wrote after the last checkpoint begins anew at a start. So a producer may
be forgotten late, but never early.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.core.arrays import numpy
from headwater.core.errors import RequestError
from headwater.core.units import MS_PER_S, US_PER_MS
from headwater.engine.kafka.checkpointer import KafkaCheckpointer
from headwater.engine.kafka.configs import RETENTION_BYTES, RETENTION_MS, config_number
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.space_reclaimer import SpaceReclaimer
from headwater.engine.kafka.timestamps import newest_timestamps
from headwater.engine.kafka.topics import KafkaTopics
from headwater.engine.owner import wait_for
from headwater.format.kafka.entry import PREFIX_BYTES
from headwater.model.retention import RetentionClock
from headwater.store.kafka.files import Ids, SegmentTable, locate

_WINDOW = 16_384
_INTERVAL_S: Final = 600
"""Time between two checks: Kafka's `producer.id.expiration.check.interval.ms`."""
_SLICE: Final = 500
"""Partitions to check, and producers to forget, in one turn of the owner."""


class _Front(NamedTuple):
    """The oldest records of a partition, as the owner knew them at one moment."""

    table: SegmentTable
    ids: Ids
    offset: int
    bytes: int
    at_end: bool
    """There are no records behind these."""


class Retention:
    """For the maintenance thread. Nothing here is called as the owner unless it says so."""

    def __init__(self, core: KafkaCore, topics: KafkaTopics) -> None:
        self._core = core
        self._topics = topics
        self._clock = RetentionClock(core.clock.wall_ms(), core.clock.monotonic_us())

    def run(self) -> None:
        core = self._core
        now_ms = self._clock.now_ms(core.clock.wall_ms(), core.clock.monotonic_us())
        self._size_moved()
        for partition in core.owner.call(self._candidates):
            configs = partition.topic.configs
            age_ms = config_number(configs, RETENTION_MS)
            bytes_max = config_number(configs, RETENTION_BYTES)
            oldest_ms = None if age_ms < 0 else now_ms - age_ms
            self._shorten(partition, oldest_ms, None if bytes_max < 0 else bytes_max)

    def _candidates(self) -> list[KafkaPartition]:
        """As the owner: partitions from which something may have to go."""
        partitions: list[KafkaPartition] = []
        for topic in self._core.limited.values():
            by_age = config_number(topic.configs, RETENTION_MS) >= 0
            bytes_max = config_number(topic.configs, RETENTION_BYTES)
            partitions += [
                partition
                for partition in topic.partitions
                if partition.log_start_offset < partition.high_watermark
                and (by_age or partition.bytes > bytes_max)
            ]
        return partitions

    def _shorten(
        self, partition: KafkaPartition, oldest_ms: int | None, bytes_max: int | None
    ) -> None:
        while True:
            front = self._core.owner.call(lambda: self._front(partition))
            if front is None:
                return
            start = self._new_start(front, oldest_ms, bytes_max)
            if start == front.offset:
                return
            if not self._move(partition, start):
                return
            self._size_moved()

    def _front(self, partition: KafkaPartition) -> _Front | None:
        start, end = partition.log_start_offset, partition.high_watermark
        if partition.topic.dropped or partition.ids is None or start >= end:
            return None
        rank = start - partition.removed
        ids = numpy.frombuffer(partition.ids[rank : rank + _WINDOW].to_array(), numpy.uint64)
        return _Front(self._core.table, ids, start, partition.bytes, start + len(ids) == end)

    def _new_start(self, front: _Front, oldest_ms: int | None, bytes_max: int | None) -> int:
        """Where the partition begins once every batch that has to go is gone."""
        located = locate(self._core.files, front.table, front.ids)
        # The last batch of the window may reach beyond it; at the end it is the newest, and stays.
        count = len(located.first) - 1
        gone = 0
        if oldest_ms is not None:
            fresh = numpy.flatnonzero(newest_timestamps(self._core.files, located) >= oldest_ms)
            gone = int(fresh[0]) if len(fresh) else count
        if bytes_max is not None:
            sizes = located.entries["length"].astype(numpy.int64) + PREFIX_BYTES
            left = front.bytes - numpy.cumsum(sizes) + sizes
            within = numpy.flatnonzero(left <= bytes_max)
            gone = max(gone, int(within[0]) if len(within) else count)
        gone = min(gone, count)
        return front.offset if gone == 0 else front.offset + int(located.first[gone])

    def _move(self, partition: KafkaPartition, start: int) -> bool:
        """Move the log start; True once that is in the log, False when it could not be."""
        try:
            moved = wait_for(
                self._core.owner, lambda: self._topics.delete_records(partition, start)
            )
        except RequestError:
            return False  # its topic was dropped meanwhile
        return moved.error is None

    def _size_moved(self) -> None:
        """Before anything is deleted or rewritten: after that the sizes cannot be read any more."""

        def take() -> list[KafkaPartition]:
            moved = list(self._core.moved)
            self._core.moved.clear()
            return moved

        for partition in self._core.owner.call(take):
            self._size(partition)

    def _size(self, partition: KafkaPartition) -> None:
        """Take what was removed out of the partition's bytes."""
        dead = self._core.owner.call(lambda: self._dead(partition))
        if dead is None:
            return
        start, table, ids, has_live = dead
        located = locate(self._core.files, table, ids)
        sizes = located.entries["length"].astype(numpy.int64) + PREFIX_BYTES
        size = int(sizes[: len(sizes) - has_live].sum())

        def note() -> None:
            partition.bytes = max(partition.bytes - size, 0)
            partition.sized_from = start

        self._core.owner.call(note)

    def _dead(self, partition: KafkaPartition) -> tuple[int, SegmentTable, Ids, bool] | None:
        """As the owner: ids that were removed since the bytes were counted.

        With the first that was not, if there is one: its batch, which may begin before it, lives.
        """
        start, begin = partition.log_start_offset, partition.sized_from
        if start <= begin or partition.ids is None:
            return None
        low = max(begin - partition.removed, 0)
        high = start - partition.removed
        if high <= low:
            partition.sized_from = start
            return None
        has_live = start < partition.high_watermark
        chosen = partition.ids[low : high + has_live]
        ids = numpy.frombuffer(chosen.to_array(), numpy.uint64)
        return start, self._core.table, ids, has_live


class ProducerExpiry:
    """For the maintenance thread. Nothing here is called as the owner unless it says so."""

    def __init__(self, core: KafkaCore) -> None:
        self._core = core
        # Rounded up: no producer goes before the time is over.
        self._idle_s = -(-core.settings.producer_expiration_ms // MS_PER_S)
        self._next_s = 0

    def run(self, *, thorough: bool = False) -> None:
        now_s = self._core.running_s()
        if thorough or now_s >= self._next_s:
            self._next_s = now_s + _INTERVAL_S
            self._forget(now_s - self._idle_s)

    def _forget(self, since_s: int) -> None:
        core = self._core
        if since_s <= 0:
            return  # no producer can have been idle for longer than the log is there
        left = core.owner.call(lambda: deque(core.idempotent))
        while left:
            core.owner.call(lambda: self._slice(left, since_s))

    def _slice(self, left: deque[KafkaPartition], since_s: int) -> None:
        """As the owner."""
        room = _SLICE
        while left and room > 0:
            partition = left[0]
            gone = self._shrink(partition, since_s, room)
            if gone < room:
                left.popleft()
            room -= gone + 1

    def _shrink(self, partition: KafkaPartition, since_s: int, most: int) -> int:
        core, producers = self._core, partition.producers
        if producers is None or partition not in core.idempotent:
            return 0
        gone = producers.forget_idle(since_s, most)
        if gone:
            core.changed(partition.topic)
        if not len(producers):
            partition.producers = None
            del core.idempotent[partition]
        return gone


class KafkaHousekeeping:
    def __init__(
        self,
        core: KafkaCore,
        topics: KafkaTopics,
        checkpointer: KafkaCheckpointer,
        take_number: Callable[[], int],
        seal: Callable[[int], bool],
    ) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._retention = Retention(core, topics)
        self._producer_expiry = ProducerExpiry(core)
        self._space_reclaimer = SpaceReclaimer(core, checkpointer, take_number, seal)
        self._next_us = 0
        self._lock = threading.Lock()

    def run(self, *, thorough: bool = False) -> None:
        """One round. `thorough` does now what would be due some time."""
        with self._lock:
            self._round(thorough)

    def _round(self, thorough: bool) -> None:
        core = self._core
        now_us = core.clock.monotonic_us()
        if thorough or now_us >= self._next_us:
            self._next_us = now_us + core.settings.retention_interval_ms * US_PER_MS
            self._retention.run()
            self._producer_expiry.run(thorough=thorough)
            if core.removed_records:
                self._space_reclaimer.run()
        if thorough or self._checkpointer.due():
            self._checkpointer.run()
