"""Seq ceilings: no seq that was acked is ever handed out again, even if its record was lost (I3).

The disk class acks before a sync, so a power loss may take acked records. Their seqs must not be
reused for other records. So a durable HeadWatermark frame reserves seqs ahead; after a crash the
head goes on above the ceiling. A new reservation is made when half of the old one is used,
so that a writer hardly ever waits for one.
"""

from __future__ import annotations

import msgspec


class _Ceiling(msgspec.Struct):
    reserved: int
    durable: int


class SeqCeilings:
    def __init__(self, ahead_min: int) -> None:
        self._ahead_min = ahead_min
        self._ceilings: dict[int, _Ceiling] = {}

    def restore(self, topic_id: int, ceiling: int) -> None:
        """What recovery found in the log."""
        self._ceilings[topic_id] = _Ceiling(ceiling, ceiling)

    def forget(self, topic_id: int) -> None:
        self._ceilings.pop(topic_id, None)

    def reserve(
        self, topic_id: int, first_seq: int, last_seq: int, ahead_min: int | None = None
    ) -> int | None:
        """The ceiling to write ahead of seqs up to `last_seq`, or None when enough is reserved."""
        ceiling = self._ceilings.setdefault(topic_id, _Ceiling(0, 0))
        ahead = max(ahead_min or self._ahead_min, 16 * (last_seq - first_seq + 1))
        if ceiling.reserved - last_seq >= ahead // 2:
            return None
        ceiling.reserved = last_seq + ahead
        return ceiling.reserved

    def ceiling_of(self, topic_id: int) -> int:
        """The highest ceiling that is on stable storage; 0 when there is none."""
        ceiling = self._ceilings.get(topic_id)
        return 0 if ceiling is None else ceiling.durable

    def take_back(self, topic_id: int) -> None:
        """The last reservation did not reach the log; it has to be made again."""
        ceiling = self._ceilings.get(topic_id)
        if ceiling is not None:
            ceiling.reserved = ceiling.durable

    def is_durable(self, topic_id: int, last_seq: int) -> bool:
        """True when `last_seq` may be acked without waiting for a sync."""
        ceiling = self._ceilings.get(topic_id)
        return ceiling is not None and last_seq <= ceiling.durable

    def confirm(self, topic_id: int, value: int) -> None:
        """The frame with this ceiling is on stable storage."""
        ceiling = self._ceilings.get(topic_id)
        if ceiling is not None and value > ceiling.durable:
            ceiling.durable = value
