"""What the keeper does: retention, giving space back, checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from headwater.engine.kafka.checkpointing import Checkpointing
from headwater.engine.kafka.core import KafkaCore


class KafkaHousekeeping:
    def __init__(
        self, core: KafkaCore, checkpointing: Checkpointing, take_number: Callable[[], int]
    ) -> None:
        self._core = core
        self._checkpointing = checkpointing
        self._take_number = take_number

    def run(self, *, thorough: bool = False) -> None:
        """One round. `thorough` does now what would be due some time."""
        if thorough or self._checkpointing.due():
            self._checkpointing.run()
