"""Who is in which consumer group, as the log has it: the groups that a restart brings back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headwater.format.kafka.events import GroupMember, GroupMembership
from headwater.model.kafka_group import Member
from headwater.model.kafka_group.group import DurableGroup

MEMBER_BYTES: Final = 64
"""About what lengths, times and the rest of a member take."""


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
