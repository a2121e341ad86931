"""One partition on its way across: what was sent, and what the destination said about it."""

from __future__ import annotations

from collections import deque
from typing import Any

from headwater.client.bridge.statement import BridgeStoppedError, Place


class Crossing:
    """Copies of one partition are acked in order; each must lie where the count says."""

    def __init__(self, topic: str, partition: int, place: Place) -> None:
        self.topic = topic
        self.partition = partition
        self.place = place
        """Up to here everything is acked."""
        self.copied = 0
        self.failure: Exception | None = None
        self._under_way: deque[int] = deque()

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def sent(self, source_offset: int) -> None:
        self._under_way.append(source_offset)

    def acked(self, error: Any, message: Any) -> None:
        """Told by the producer, in the order of sending."""
        source_offset = self._under_way.popleft()
        if self.failure is not None:
            return
        if error is not None:
            self.failure = BridgeStoppedError(f"{self}: the destination refuses: {error.str()}")
            return
        if message.offset() != self.place.dest:
            self.failure = BridgeStoppedError(
                f"{self}: a copy went to offset {message.offset()} instead of {self.place.dest}; "
                "somebody else writes to this topic of the destination, perhaps a second bridge"
            )
            return
        self.place = Place(source_offset + 1, self.place.dest + 1)
        self.copied += 1
