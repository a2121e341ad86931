"""What the log has of consumer groups: committed offsets, by organisation and group, and the
members of those that a restart brings back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from headwater.format.kafka.checkpoint import GroupMeta
from headwater.format.kafka.events import GroupMember, GroupMembership, OffsetRow
from headwater.model.kafka_group import Member
from headwater.model.kafka_group.group import DurableGroup

MEMBER_BYTES: Final = 64
"""About what lengths, times and the rest of a member take."""


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


class Memberships:
    """The owner's."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, str], GroupMembership] = {}
        self._bytes = 0

    def all(self) -> tuple[GroupMembership, ...]:
        return tuple(self._groups.values())

    def has(self, org: int, group: str) -> bool:
        return (org, group) in self._groups

    def bytes_with(self, event: GroupMembership) -> int:
        """What all would weigh if this became so."""
        known = self._groups.get((event.org, event.group))
        return self._bytes + weight(event) - (0 if known is None else weight(known))

    def put(self, event: GroupMembership) -> None:
        self.forget(event.org, event.group)
        if event.members:
            self._groups[event.org, event.group] = event
            self._bytes += weight(event)

    def forget(self, org: int, group: str) -> None:
        known = self._groups.pop((org, group), None)
        if known is not None:
            self._bytes -= weight(known)

    def restore(self, events: Iterable[GroupMembership]) -> None:
        for event in events:
            self.put(event)


def weight(event: GroupMembership) -> int:
    """About how many bytes it takes, without making them."""
    return len(event.group.encode()) + sum(map(_member_weight, event.members))


def _member_weight(member: GroupMember) -> int:
    words = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
    protocols = sum(len(name.encode()) + len(metadata) for name, metadata in member.protocols)
    return MEMBER_BYTES + len("".join(words).encode()) + protocols + len(member.assignment)


def membership_of(group: DurableGroup) -> GroupMembership:
    members = tuple(
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout_us,
            each.rebalance_timeout_us,
            each.protocols,
            each.assignment,
        )
        for each in group.members.values()
    )
    return GroupMembership(
        group.org,
        group.name,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader,
        members,
    )


def empty_membership(group: DurableGroup) -> GroupMembership:
    return GroupMembership(group.org, group.name, group.generation)


def group_from(event: GroupMembership, now_us: int) -> DurableGroup:
    """The group as it was, each member with a whole session before it."""
    members = [
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout_us,
            each.rebalance_timeout_us,
            each.protocols,
            now_us + each.session_timeout_us,
            each.assignment,
        )
        for each in event.members
    ]
    group = DurableGroup(event.org, event.group)
    group.restore(event.generation, event.protocol_type, event.protocol_name, event.leader, members)
    return group
