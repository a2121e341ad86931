"""Phases of a consumer group, and the answers its members get."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """The names are those that clients see in DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are to join again; the round ends when all have, or at its deadline."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All members joined; the leader owes the assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


class Refusal(Enum):
    """Named as Kafka's error codes, so that the codes themselves are in one module."""

    COORDINATOR_NOT_AVAILABLE = "the group is gone; find its coordinator again"
    FENCED_INSTANCE_ID = "another member took over this instance id"
    GROUP_MAX_SIZE_REACHED = "the group has all the members it may have"
    ILLEGAL_GENERATION = "the member is of another generation"
    INCONSISTENT_GROUP_PROTOCOL = "the group's members have no protocol in common with this one"
    INVALID_SESSION_TIMEOUT = "the session timeout is outside the bounds"
    MEMBER_ID_REQUIRED = "join again with this member id"
    REBALANCE_IN_PROGRESS = "join again: members come or go"
    UNKNOWN_MEMBER_ID = "no such member in the group"


class MemberInfo(NamedTuple):
    """What the leader gets of each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    member_id: str
    members: tuple[MemberInfo, ...] = ()
    """For the leader only, who assigns from it."""
    skip_assignment: bool = False
    """A leader that came back: the assignment stands."""


class SyncedMember(NamedTuple):
    protocol_type: str
    protocol_name: str
    assignment: bytes


class Refused(NamedTuple):
    refusal: Refusal
    member_id: str = ""


Outcome = Joined | SyncedMember | Refused
