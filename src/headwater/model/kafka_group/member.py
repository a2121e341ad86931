"""One member of a consumer group, its requests, the answers it gets, and the group's phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple


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


Protocols = tuple[tuple[str, bytes], ...]
"""Names of assignment strategies, the favourite first, each with its metadata."""


class JoinRequest(NamedTuple):
    member_id: str
    """Empty: not a member yet."""
    fresh_id: str
    """The id it gets if it needs one."""
    protocol_type: str
    protocols: Protocols
    session_timeout_us: int
    rebalance_timeout_us: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    knows_handshake: bool = True
    """A dynamic member is first given its id, and joins with that."""
    knows_skipping: bool = False
    """It understands that a leader need not assign."""


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_us: int
    rebalance_timeout_us: int
    protocols: Protocols
    expires_us: int
    assignment: bytes = b""
    joining: Any = None
    """The token of the join that waits for an answer, or None."""
    syncing: Any = None

    @classmethod
    def of(cls, request: JoinRequest, member_id: str, now_us: int) -> Member:
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_us,
            request.rebalance_timeout_us,
            request.protocols,
            now_us + request.session_timeout_us,
        )

    def update(self, request: JoinRequest) -> None:
        self.protocols = request.protocols
        self.session_timeout_us = request.session_timeout_us
        self.rebalance_timeout_us = request.rebalance_timeout_us
        self.client_id = request.client_id
        self.client_host = request.client_host

    def renew_session(self, now_us: int) -> None:
        """It lives: its session begins anew."""
        self.expires_us = now_us + self.session_timeout_us

    @property
    def waits(self) -> bool:
        """It waits for an answer of ours, so its silence means nothing."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str) -> bytes:
        return dict(self.protocols).get(protocol, b"")


def common_protocols(members: Sequence[Member]) -> frozenset[str]:
    """The strategies that every one of them knows."""
    known = [frozenset(name for name, _ in member.protocols) for member in members]
    return frozenset.intersection(*known) if known else frozenset()


def chosen_protocol(members: Sequence[Member]) -> str:
    """Each votes for its favourite among those all know; most votes win, then the name."""
    candidates = common_protocols(members)
    votes = dict.fromkeys(sorted(candidates), 0)
    for member in members:
        votes[next(name for name, _ in member.protocols if name in candidates)] += 1
    return max(votes, key=votes.__getitem__)
