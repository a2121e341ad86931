"""What the keeper does: retention, forgetting producers, giving space back, checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.core.units import US_PER_MS
from headwater.engine.kafka.checkpointing import Checkpointing
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.forgetting import Forgetting
from headwater.engine.kafka.reclaiming import Reclaiming
from headwater.engine.kafka.retention import Retention
from headwater.engine.kafka.topics import KafkaTopics


class KafkaHousekeeping:
    def __init__(
        self,
        core: KafkaCore,
        topics: KafkaTopics,
        checkpointing: Checkpointing,
        take_number: Callable[[], int],
        seal: Callable[[int], bool],
    ) -> None:
        self._core = core
        self._checkpointing = checkpointing
        self._retention = Retention(core, topics)
        self._forgetting = Forgetting(core)
        self._reclaiming = Reclaiming(core, checkpointing, take_number, seal)
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
            self._forgetting.run(thorough=thorough)
            if core.removed_records:
                self._reclaiming.run()
        if thorough or self._checkpointing.due():
            self._checkpointing.run()
