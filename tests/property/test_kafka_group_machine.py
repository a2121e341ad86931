"""Consumer groups under members that come, go, lie and fall silent in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.model.kafka_group import Joined, Phase, SyncedMember
from tests.unit.model.kafka_groups import GroupRig

PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"2"), ("sticky", b"2")),
    (("sticky", b"3"), ("range", b"3")),
)
picks = st.integers(0, 5)


class KafkaGroupMachine(RuleBasedStateMachine):
    """Whatever happens: each call is answered once, a generation has one leader and one protocol,
    and members that do what they are told end up in a stable group."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = GroupRig()
        self.waiting: set[int] = set()
        self.known: list[str] = []
        self.led: dict[int, tuple[str, str]] = {}
        self.generation = 0

    def _pick(self, number: int) -> str:
        return self.known[number % len(self.known)] if self.known else "nobody"

    def _identity(self, member: str) -> bytes:
        """A member with an instance id goes on with what the member before it was assigned."""
        return (self.rig.group.members[member].instance_id or member).encode()

    def _look(self) -> None:
        for token in [token for token in self.waiting if token in self.rig.told]:
            self.waiting.discard(token)
            outcome = self.rig.told[token]
            named = "" if isinstance(outcome, SyncedMember) else outcome.member_id
            if named and named not in self.known:
                self.known.append(named)
            if isinstance(outcome, Joined) and outcome.members:
                leads = (outcome.protocol_name, "one leader")
                assert self.led.setdefault(outcome.generation, leads) == leads
                assert outcome.member_id == outcome.leader

    @rule(protocols=st.sampled_from(PROTOCOLS), instance=st.sampled_from([None, None, "x", "y"]))
    def somebody_new_joins(self, protocols: Any, instance: str | None) -> None:
        self.waiting.add(self.rig.join("", protocols, instance))
        self._look()

    @rule(pick=picks, protocols=st.sampled_from(PROTOCOLS))
    def somebody_joins_again(self, pick: int, protocols: Any) -> None:
        self.waiting.add(self.rig.join(self._pick(pick), protocols))
        self._look()

    @rule(pick=picks, lag=st.integers(-1, 1))
    def somebody_syncs(self, pick: int, lag: int) -> None:
        generation = self.rig.group.generation + min(lag, 0)
        everybody = {member: self._identity(member) for member in self.rig.group.members}
        self.waiting.add(self.rig.sync(self._pick(pick), generation, everybody))
        self._look()

    @rule(pick=picks)
    def somebody_lives(self, pick: int) -> None:
        self.rig.heartbeat(self._pick(pick))

    @rule(pick=picks)
    def somebody_leaves(self, pick: int) -> None:
        self.rig.leave(self._pick(pick))
        self._look()

    @rule(seconds=st.sampled_from([1, 4, 11, 61]))
    def time_passes(self, seconds: int) -> None:
        self.rig.wait(seconds)
        self._look()

    @invariant()
    def everybody_who_waits_is_known_to_wait(self) -> None:
        members = self.rig.group.members.values()
        held = [token for each in members for token in (each.joining, each.syncing) if token]
        assert sorted(held) == sorted(self.waiting)

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.rig.group.generation >= self.generation
        self.generation = self.rig.group.generation

    def teardown(self) -> None:
        """Members that do as they are told, for as long as a round may take, are served."""
        rig = self.rig
        for _ in range(20):
            if rig.group.phase in (Phase.STABLE, Phase.EMPTY):
                break
            for member in list(rig.group.members):
                found = rig.group.members.get(member)
                preparing = rig.group.phase is Phase.PREPARING_REBALANCE
                if preparing and found is not None and not found.waits:
                    rig.join(member, found.protocols)
            for member in list(rig.group.members):
                if rig.group.phase is not Phase.PREPARING_REBALANCE:
                    everybody = {each: self._identity(each) for each in rig.group.members}
                    rig.sync(member, None, everybody)
            rig.wait(4)
        assert rig.group.phase in (Phase.STABLE, Phase.EMPTY)
        for member in list(rig.group.members):
            outcome = rig.told[rig.sync(member)]
            assert isinstance(outcome, SyncedMember)
            assert outcome.assignment == self._identity(member)


TestKafkaGroup = KafkaGroupMachine.TestCase
TestKafkaGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
