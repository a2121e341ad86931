"""Committed offsets of consumer groups: durable, by organisation and group."""

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
        self._readers: dict[tuple[int, str], dict[str, set[int]]] = {}
        """By organisation and topic: which groups have an offset of which partitions. So
        dropping a topic need not visit the groups that never read it."""

    def of(self, org: int, group: str) -> Mapping[OffsetKey, Committed]:
        return self._groups.get((org, group), {})

    def groups(self, org: int) -> list[str]:
        """Groups that have an offset."""
        return [group for owner, group in self._groups if owner == org]

    def commit(self, org: int, group: str, rows: Iterable[OffsetRow]) -> None:
        for row in rows:
            offsets = self._groups.setdefault((org, group), {})
            if (row.topic, row.partition) not in offsets:
                readers = self._readers.setdefault((org, row.topic), {})
                readers.setdefault(group, set()).add(row.partition)
            offsets[row.topic, row.partition] = Committed(
                row.offset, row.leader_epoch, row.metadata, row.time_ms, row.topic_epoch
            )

    def forget(self, org: int, group: str, keys: Iterable[OffsetKey] | None = None) -> None:
        """Some of a group's offsets, or all of them."""
        offsets = self._groups.get((org, group))
        if offsets is None:
            return
        for key in tuple(offsets) if keys is None else keys:
            if offsets.pop(key, None) is not None:
                self._no_longer_read(org, group, key)
        if not offsets:
            del self._groups[org, group]

    def forget_topic(self, org: int, topic: str) -> None:
        for group, partitions in self._readers.pop((org, topic), {}).items():
            offsets = self._groups[org, group]
            for partition in partitions:
                del offsets[topic, partition]
            if not offsets:
                del self._groups[org, group]

    def _no_longer_read(self, org: int, group: str, key: OffsetKey) -> None:
        topic, partition = key
        readers = self._readers[org, topic]
        partitions = readers[group]
        partitions.remove(partition)
        if not partitions:
            del readers[group]
            if not readers:
                del self._readers[org, topic]

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
