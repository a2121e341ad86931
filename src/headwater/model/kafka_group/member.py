"""One member of a consumer group, and its join request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
