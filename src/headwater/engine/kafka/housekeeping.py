"""A round of maintenance: retention, expiry of producers, giving space back, checkpoints.

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
from typing import Final

from headwater.core.units import MS_PER_S, US_PER_MS
from headwater.engine.kafka.checkpointer import KafkaCheckpointer
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.retention import Retention
from headwater.engine.kafka.space_reclaimer import SpaceReclaimer
from headwater.engine.kafka.topics import KafkaTopics

_INTERVAL_S: Final = 600
"""Time between two checks: Kafka's `producer.id.expiration.check.interval.ms`."""
_SLICE: Final = 500
"""Partitions to check, and producers to forget, in one turn of the owner."""


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
