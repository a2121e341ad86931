"""How far consumer groups are: durable, by organisation and group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.format.kafka.checkpoint import GroupMeta
from headwater.format.kafka.events import OffsetRow


class Committed(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    time_ms: int = -1
    topic_epoch: int = 0
    """Of a log topic: it is offset of that one, and not of another that got its name later."""


OffsetKey = tuple[str, int]
"""Topic and partition."""


class GroupOffsets:
    """The owner's."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], dict[OffsetKey, Committed]] = {}

    def of(self, org: int, group: str) -> Mapping[OffsetKey, Committed]:
        return self._groups.get((org, group), {})

    def groups(self, org: int) -> list[str]:
        """Groups that have an offset."""
        return [group for owner, group in self._groups if owner == org]

    def commit(self, org: int, group: str, rows: Iterable[OffsetRow]) -> None:
        offsets = self._groups.setdefault((org, group), {})
        for row in rows:
            offsets[row.topic, row.partition] = Committed(
                row.offset, row.leader_epoch, row.metadata, row.time_ms, row.topic_epoch
            )

    def forget(self, org: int, group: str, keys: Iterable[OffsetKey] | None = None) -> None:
        """Some of a group's offsets, or all of them."""
        if keys is None:
            self._groups.pop((org, group), None)
            return
        offsets = self._groups.get((org, group), {})
        for key in keys:
            offsets.pop(key, None)
        if not offsets:
            self._groups.pop((org, group), None)

    def forget_topic(self, org: int, topic: str) -> None:
        for owner, group in list(self._groups):
            if owner == org:
                keys = [key for key in self._groups[owner, group] if key[0] == topic]
                self.forget(owner, group, keys)

    def meta(self) -> tuple[GroupMeta, ...]:
        return tuple(
            GroupMeta(org, group, tuple(rows_of(offsets)))
            for (org, group), offsets in self._groups.items()
        )

    def restore(self, metas: Iterable[GroupMeta]) -> None:
        for meta in metas:
            self.commit(meta.org, meta.group, meta.rows)


def rows_of(offsets: Mapping[OffsetKey, Committed]) -> list[OffsetRow]:
    return [OffsetRow(topic, partition, *known) for (topic, partition), known in offsets.items()]
