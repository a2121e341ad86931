"""The coordinator: groups joined to the clock and to durable offsets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.coordinator import Coordinator
from headwater.engine.kafka.errors import GroupSubscribedError
from headwater.engine.kafka.group_state import Committed
from headwater.engine.owner import Pending
from headwater.model.kafka_group import Joined, JoinRequest, Outcome, Phase, Refusal, Refused
from headwater.server.kafka.refusals import code_of
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import KafkaLife

T = TypeVar("T")
SESSION_US = 10_000_000
AT_FIVE = {("orders", 0): Committed(5)}


class Rig:
    def __init__(self, life: KafkaLife | None = None) -> None:
        self.life = life or KafkaLife()
        if self.life.store.topic(1, "orders") is None:
            self.life.create("orders")
        self.coordinator = Coordinator(self.life.store, self.life.clock)
        self.told: list[Outcome] = []

    def join(self, group: str = "workers", member: str = "", org: int = 1) -> Outcome | None:
        request = JoinRequest(member, "m1", "consumer", (("range", b""),), SESSION_US, SESSION_US)
        before = len(self.told)
        self.coordinator.join(org, group, request, self.told.append)
        return self.told[before] if len(self.told) > before else None

    def enter(self, group: str = "workers", org: int = 1) -> str:
        outcome = self.join(group, org=org)
        assert isinstance(outcome, Refused)
        assert isinstance(self.join(group, outcome.member_id, org), Joined)
        return outcome.member_id

    def commit(self, member: str = "", generation: int = -1, org: int = 1) -> bool:
        return self.do(
            lambda: self.coordinator.commit(org, "workers", member, generation, None, AT_FIVE)
        )

    def do(self, work: Callable[[], Pending[T]]) -> T:
        return self.life.do(work)

    def names(self, org: int = 1) -> dict[str, Phase]:
        return {group.name: group.phase for group in self.coordinator.groups(org)}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_member_that_falls_silent_is_gone_after_its_session(rig: Rig) -> None:
    member = rig.enter()
    rig.life.clock.advance(SESSION_US - 1)
    rig.coordinator.tick(rig.life.clock.monotonic_us())
    assert rig.names() == {"workers": Phase.COMPLETING_REBALANCE}
    rig.life.clock.advance(1)
    rig.coordinator.tick(rig.life.clock.monotonic_us())
    assert rig.names() == {"workers": Phase.EMPTY}
    refusal = rig.coordinator.heartbeat(1, "workers", member, 1, None)
    assert refusal is Refusal.UNKNOWN_MEMBER_ID


def test_a_group_that_breaks_is_forgotten_and_keeps_no_other_from_its_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("broken", "workers"):
        rig.enter(name)
    waiting: list[Outcome] = []
    rig.coordinator.sync(1, "broken", "m1", 1, {}, rig.told.append)
    request = JoinRequest("", "m2", "consumer", (("range", b"new"),), SESSION_US, SESSION_US)
    broken = rig.coordinator.group(1, "broken")
    assert broken is not None
    # Somebody is promised a place, so that the round waits.
    rig.coordinator.join(1, "broken", request, rig.told.append)
    rig.coordinator.join(1, "broken", request._replace(member_id="m1"), waiting.append)

    def fail(_now_us: int) -> None:
        raise KeyError("one")

    monkeypatch.setattr(broken, "expire", fail)
    rig.life.clock.advance(SESSION_US)
    rig.coordinator.tick(rig.life.clock.monotonic_us())
    assert waiting == [Refused(Refusal.COORDINATOR_NOT_AVAILABLE, "m1")]
    assert rig.names() == {"workers": Phase.EMPTY}
    assert "a consumer group broke" in capfd.readouterr().err
    rig.enter("broken")


def test_an_id_nobody_came_back_with_leaves_no_group_behind(rig: Rig) -> None:
    rig.join("fleeting")
    assert "fleeting" in rig.names()
    rig.life.clock.advance(SESSION_US)
    for _ in range(3):
        rig.coordinator.tick(rig.life.clock.monotonic_us())
    assert rig.names() == {}


def test_a_group_that_everybody_left_is_forgotten_unless_it_has_offsets(rig: Rig) -> None:
    for group in ("workers", "others"):
        member = rig.enter(group)
        if group == "workers":
            rig.coordinator.sync(1, group, member, 1, {}, rig.told.append)
            rig.commit(member, 1)
        rig.life.owner.call(partial(rig.coordinator.leave, 1, group, member, None))
    assert rig.names() == {"workers": Phase.EMPTY, "others": Phase.EMPTY}
    for _ in range(2):
        rig.coordinator.tick(rig.life.clock.monotonic_us())
    assert rig.names() == {"workers": Phase.EMPTY}
    (left,) = rig.coordinator.groups(1)
    described = rig.coordinator.group(1, "workers")
    assert described is not None
    assert left.protocol_type == described.protocol_type == "consumer"
    with pytest.raises(HeadwaterError) as refused:
        rig.commit("m1", 1)
    assert code_of(refused.value) == ErrorCode.UNKNOWN_MEMBER_ID
    rig.enter()


def test_who_names_a_member_of_no_group_makes_none(rig: Rig) -> None:
    assert rig.join("workers", "stranger") == Refused(Refusal.UNKNOWN_MEMBER_ID, "stranger")
    assert rig.names() == {}


def test_a_group_needs_a_name(rig: Rig) -> None:
    with pytest.raises(HeadwaterError) as refused:
        rig.join("")
    assert code_of(refused.value) == ErrorCode.INVALID_GROUP_ID


def test_offsets_are_stored_by_whoever_may(rig: Rig) -> None:
    assert rig.commit()
    member = rig.enter()
    with pytest.raises(HeadwaterError) as refused:
        rig.commit()
    assert code_of(refused.value) == ErrorCode.UNKNOWN_MEMBER_ID
    rig.coordinator.sync(1, "workers", member, 1, {}, rig.told.append)
    assert rig.commit(member, 1)
    with pytest.raises(HeadwaterError) as refused:
        rig.commit(member, 2)
    assert code_of(refused.value) == ErrorCode.ILLEGAL_GENERATION


def test_a_generation_of_an_earlier_life_stores_nothing(rig: Rig) -> None:
    with pytest.raises(HeadwaterError) as refused:
        rig.commit("m1", 3)
    assert code_of(refused.value) == ErrorCode.ILLEGAL_GENERATION
    assert rig.names() == {}


def test_offsets_outlive_a_restart_and_members_that_never_settled_do_not(rig: Rig) -> None:
    rig.commit()
    rig.enter()
    rig.life.store.close()
    again = Rig(KafkaLife(rig.life.disk, clock=rig.life.clock))
    assert again.names() == {"workers": Phase.EMPTY}
    assert again.coordinator.committed(1, "workers")["orders", 0].offset == 5


def test_organisations_do_not_share_groups(rig: Rig) -> None:
    rig.commit()
    rig.enter(org=2)
    assert rig.names(1) == {"workers": Phase.EMPTY}
    assert rig.names(2) == {"workers": Phase.COMPLETING_REBALANCE}
    assert not rig.coordinator.committed(2, "workers")


def test_only_an_empty_group_is_deleted_and_then_with_its_offsets(rig: Rig) -> None:
    rig.commit()
    member = rig.enter()
    with pytest.raises(HeadwaterError) as refused:
        rig.do(lambda: rig.coordinator.delete(1, "workers"))
    assert code_of(refused.value) == ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(GroupSubscribedError):
        rig.do(lambda: rig.coordinator.forget_offsets(1, "workers", [("orders", 0)]))
    rig.coordinator.leave(1, "workers", member, None)
    rig.do(lambda: rig.coordinator.delete(1, "workers"))
    assert rig.names() == {}
    assert not rig.coordinator.committed(1, "workers")
    with pytest.raises(HeadwaterError) as refused:
        rig.do(lambda: rig.coordinator.delete(1, "workers"))
    assert code_of(refused.value) == ErrorCode.GROUP_ID_NOT_FOUND


def test_single_offsets_of_an_empty_group_are_forgotten(rig: Rig) -> None:
    rig.commit()
    rig.do(lambda: rig.coordinator.forget_offsets(1, "workers", [("orders", 0)]))
    assert not rig.coordinator.committed(1, "workers")
