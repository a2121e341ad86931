"""A round of maintenance: retention, expiry of producers, giving space back, checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.core.units import US_PER_MS
from headwater.engine.kafka.checkpointer import KafkaCheckpointer
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.producer_expiry import ProducerExpiry
from headwater.engine.kafka.retention import Retention
from headwater.engine.kafka.space_reclaimer import SpaceReclaimer
from headwater.engine.kafka.topics import KafkaTopics


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
