"""A consumer group that outlives the process, as far as its members could notice the difference.

What has to last is a generation that has its assignment, and the holders of instance ids in it:
no member acts on any of it before the log has it. A round that is under way need not last. Until
it ends no member has an assignment of the new generation, so the old one may come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.model.kafka_group.group import ConsumerGroup
from headwater.model.kafka_group.member import Member
from headwater.model.kafka_group.outcomes import Outcome, Phase


class GroupStanding(NamedTuple):
    """Two of them are equal when a restart may take one for the other."""

    generation: int
    instances: dict[str, str]


class DurableGroup(ConsumerGroup):
    def __init__(self, org: int, name: str) -> None:
        super().__init__(name)
        self.org = org
        self.logged: GroupStanding | None = None
        """What was logged last, whether the log took it or not, if the group had members then."""
        self.held: list[tuple[Any, Outcome]] | None = None
        """Answers that wait for the log, while a write of this group is under way."""
        self.too_large = False
        """The warning that it cannot last was logged."""

    @property
    def standing(self) -> GroupStanding | None:
        """None while there is nothing new to last."""
        return GroupStanding(self.generation, dict(self.instances)) if self._is_stable else None

    @property
    def _is_stable(self) -> bool:
        return self.phase is Phase.STABLE

    def restore(
        self,
        generation: int,
        protocol_type: str,
        protocol_name: str,
        leader: str,
        members: Sequence[Member],
    ) -> None:
        """After a restart: the last complete round."""
        self.phase = Phase.STABLE
        self.generation = generation
        self.protocol_type, self.protocol_name = protocol_type, protocol_name
        self.leader = leader
        self.members = {each.member_id: each for each in members}
        self.instances = {
            each.instance_id: each.member_id for each in members if each.instance_id is not None
        }
        self.logged = self.standing

    def start_over(self, now_us: int) -> None:
        """The generation could not be made to last: every member joins again."""
        if self._is_stable:
            self._rebalance(now_us)
