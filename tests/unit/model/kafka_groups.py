"""A consumer group with a clock in hand and members that do what clients do."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from headwater.model.kafka_group import (
    ConsumerGroup,
    Joined,
    JoinRequest,
    Outcome,
    Refusal,
    Refused,
)
from tests.rig.invariants import check_group

SECOND = 1_000_000
RANGE = (("range", b"r"),)


class GroupRig:
    def __init__(self) -> None:
        self.group = ConsumerGroup("workers")
        self.now_us = 0
        self.told: dict[int, Outcome] = {}
        """By token: what was answered."""
        self._tokens = itertools.count(1)
        self._ids = itertools.count(1)

    def join(
        self,
        member_id: str = "",
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        instance_id: str | None = None,
        *,
        session_s: float = 10,
        rebalance_s: float = 60,
        handshake: bool = True,
        skipping: bool = False,
        protocol_type: str = "consumer",
    ) -> int:
        token = next(self._tokens)
        request = JoinRequest(
            member_id,
            f"m{next(self._ids)}",
            protocol_type,
            protocols,
            int(session_s * SECOND),
            int(rebalance_s * SECOND),
            instance_id,
            knows_handshake=handshake,
            knows_skipping=skipping,
        )
        self.group.join(request, token, self.now_us)
        self.collect()
        return token

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token = next(self._tokens)
        self.group.sync(
            member_id,
            self.group.generation if generation is None else generation,
            assignments or {},
            token,
            self.now_us,
            instance_id=instance_id,
            protocol_name=protocol_name,
        )
        self.collect()
        return token

    def heartbeat(self, member_id: str, generation: int | None = None) -> Refusal | None:
        number = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, number, None, self.now_us)

    def leave(self, member_id: str, instance_id: str | None = None) -> Refusal | None:
        refusal = self.group.leave(member_id, instance_id, self.now_us)
        self.collect()
        return refusal

    def wait(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND)
        self.group.expire(self.now_us)
        self.collect()

    def collect(self) -> None:
        answers, self.group.answers = self.group.answers, []
        for token, outcome in answers:
            assert token not in self.told, "answered twice"
            self.told[token] = outcome
        check_group(self.group)

    # -- what clients do

    def enter(self, **asked: object) -> tuple[str, int]:
        """Join as a client does: ask for an id, come back with it. The id and the token."""
        outcome = self.told[self.join(**asked)]  # type: ignore[arg-type]
        assert isinstance(outcome, Refused)
        assert outcome.refusal is Refusal.MEMBER_ID_REQUIRED
        return outcome.member_id, self.join(outcome.member_id, **asked)  # type: ignore[arg-type]

    def joined(self, token: int) -> Joined:
        outcome = self.told[token]
        assert isinstance(outcome, Joined), outcome
        return outcome

    def refusal(self, token: int) -> Refusal | None:
        outcome = self.told.get(token)
        return outcome.refusal if isinstance(outcome, Refused) else None

    def settle(self, *members: str) -> None:
        """Everybody joins again and syncs: a stable group."""
        for member in members:
            self.join(member)
        for member in members:
            self.sync(member, assignments={each: each.encode() for each in members})
