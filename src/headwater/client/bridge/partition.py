"""The copy of one partition: which records were sent, and which of them are acked."""

from __future__ import annotations

from collections import deque
from typing import Any

from headwater.client.bridge.clusters import is_too_large
from headwater.client.bridge.statement import BridgeStoppedError, CopyPosition


class PartitionCopy:
    """Copies of one partition are acked in order; each must lie where the count says."""

    def __init__(
        self, topic: str, partition: int, position: CopyPosition, batch_bytes_max: str | None = None
    ) -> None:
        """`batch_bytes_max`: what the destination says it takes at once, where it says so."""
        self.topic = topic
        self.partition = partition
        self.position = position
        """Up to here everything is acked."""
        self.copied = 0
        self.failure: BridgeStoppedError | None = None
        self._batch_bytes_max = batch_bytes_max
        self._under_way: deque[int] = deque()
        self._end = 0

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def sent(self, source_offset: int) -> None:
        self._under_way.append(source_offset)

    def ended(self, source_end: int) -> None:
        """The source has nothing more before this: its last offsets need not be records."""
        self._end = source_end
        self._reach_end()

    def _reach_end(self) -> None:
        if not self._under_way and self._end > self.position.source:
            self.position = CopyPosition(self._end, self.position.dest)

    def acked(self, error: Any, message: Any) -> None:
        """The producer calls it, in the order of sending."""
        source_offset = self._under_way.popleft()
        if self.failure is not None:
            return
        self.failure = self._why_not(error, message)
        if self.failure is None:
            self.position = CopyPosition(source_offset + 1, self.position.dest + 1)
            self.copied += 1
            self._reach_end()

    def _why_not(self, error: Any, message: Any) -> BridgeStoppedError | None:
        if error is not None and is_too_large(error):
            limit = f" ({self._batch_bytes_max})" if self._batch_bytes_max else ""
            return BridgeStoppedError(
                f"{self}: the destination refuses a batch that is larger than the topic's "
                f"max.message.bytes{limit}; raise that, or make batches smaller: batch.size in "
                "--to-config"
            )
        if error is not None:
            return BridgeStoppedError(f"{self}: the destination refuses: {error.str()}")
        if message.offset() < self.position.dest:
            return BridgeStoppedError(
                f"{self}: a copy went to offset {message.offset()} instead of "
                f"{self.position.dest}; the destination's topic was dropped meanwhile. Drop it and "
                "the bridge's topic of positions to copy anew"
            )
        if message.offset() > self.position.dest:
            return BridgeStoppedError(
                f"{self}: a copy went to offset {message.offset()} instead of "
                f"{self.position.dest}; another producer writes to this topic of the destination, "
                "perhaps a second bridge"
            )
        return None
