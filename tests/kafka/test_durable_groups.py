"""Groups over restarts: a settled generation goes on, and nobody is told of one the log lacks."""

from __future__ import annotations

from functools import partial

import pytest

from headwater.model.kafka_group import Joined, Outcome, Phase, SyncedMember
from headwater.wire.kafka.apis import ErrorCode
from tests.kafka.durable_groups import SESSION_US, Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def pair(rig: Rig) -> tuple[str, str]:
    first = rig.alone()
    second = rig.join()
    (again,) = rig.join(first)
    (joined,) = second
    assert isinstance(again, Joined)
    assert isinstance(joined, Joined)
    rig.sync(joined.member_id, 2)
    rig.sync(first, 2)
    return first, joined.member_id


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "power lost"])
@pytest.mark.parametrize("saved", [False, True], ids=["from events", "from a checkpoint"])
def test_members_of_a_settled_group_go_on_after_a_restart(
    rig: Rig, kill: bool, saved: bool
) -> None:
    members = pair(rig)
    if saved:
        rig.life.store.checkpoint()
    for _ in range(2):
        rig.restart(kill=kill)
        assert rig.is_in(Phase.STABLE)
        for member in members:
            assert rig.heartbeat(member, 2) is ErrorCode.NONE
            assert rig.commit(member, 2) is ErrorCode.NONE
            assert rig.sync(member, 2) == [SyncedMember("consumer", "range", member.encode())]
            assert rig.commit(member, 1) is ErrorCode.ILLEGAL_GENERATION
        assert rig.commit("stranger", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    group = rig.coordinator.group(1, "workers")
    assert group is not None
    found = group.members[members[0]]
    assert (found.client_id, found.client_host) == ("client", "/::1")
    assert found.protocols == (("range", b"topics"), ("sticky", b""))
    assert found.rebalance_timeout_us == found.session_timeout_us == SESSION_US


def test_members_that_went_away_meanwhile_expire_and_the_others_meet_again(rig: Rig) -> None:
    first, second = pair(rig)
    rig.restart(kill=True)
    rig.wait(SESSION_US - 1)
    assert rig.is_in(Phase.STABLE)
    assert rig.heartbeat(first, 2) is ErrorCode.NONE
    rig.wait(1)
    assert rig.heartbeat(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(first, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    (told,) = rig.join(first)
    assert isinstance(told, Joined)
    assert told.generation == 3


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "power lost"])
def test_a_group_that_everybody_left_does_not_come_back(rig: Rig, kill: bool) -> None:
    member = rig.alone()
    rig.leave(member)
    assert rig.is_in(Phase.EMPTY)
    rig.restart(kill=kill)
    assert rig.is_in(None)
    assert rig.commit(member, 1) is ErrorCode.ILLEGAL_GENERATION


def test_nobody_is_told_an_assignment_that_the_log_does_not_have(rig: Rig) -> None:
    (told,) = rig.join()
    assert isinstance(told, Joined)
    answers: list[Outcome] = []

    def work() -> None:
        assign = partial(rig.coordinator.sync, 1, "workers", told.member_id, 1)
        assign({told.member_id: b"all"}, answers.append)
        assign({}, answers.append)
        assert not answers

    rig.do(work)
    assert answers == [SyncedMember("consumer", "range", b"all")] * 2


def test_a_round_under_way_at_the_crash_gives_the_old_generation_back(rig: Rig) -> None:
    first = rig.alone()
    second = rig.join()
    rig.join(first)
    (told,) = second
    assert isinstance(told, Joined)
    assert rig.is_in(Phase.COMPLETING_REBALANCE)
    rig.restart(kill=True)
    assert rig.commit(told.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(first, 2) is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(first, 1) is ErrorCode.NONE
    assert rig.commit(first, 1) is ErrorCode.NONE


def test_who_was_left_behind_by_a_settled_generation_stays_fenced(rig: Rig) -> None:
    first, second = pair(rig)
    rig.leave(second)
    rig.join(first)
    rig.sync(first, 3)
    rig.restart(kill=True)
    assert rig.commit(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(first, 2) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(first, 3) is ErrorCode.NONE


def test_a_static_member_that_was_replaced_stays_fenced(rig: Rig) -> None:
    old = rig.alone("one")
    (back,) = rig.join(instance="one")
    assert isinstance(back, Joined)
    assert (back.generation, back.skip_assignment) == (1, True)
    rig.restart(kill=True)
    assert rig.heartbeat(old, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit(old, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit(back.member_id, 1, "one") is ErrorCode.NONE


def test_a_deleted_group_does_not_come_back_and_its_name_may(rig: Rig) -> None:
    member = rig.alone()
    rig.leave(member)
    rig.life.do(lambda: rig.coordinator.delete(1, "workers"))
    rig.restart(kill=True)
    assert rig.is_in(None)
    later = rig.alone()
    rig.restart(kill=True)
    assert rig.commit(later, 1) is ErrorCode.NONE
    assert rig.commit(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_empties_and_is_deleted_while_the_log_works_is_gone(rig: Rig) -> None:
    (told,) = rig.join()
    assert isinstance(told, Joined)
    answers: list[Outcome] = []

    def work() -> None:
        rig.coordinator.sync(1, "workers", told.member_id, 1, {}, answers.append)
        rig.coordinator.leave(1, "workers", told.member_id, None)
        rig.coordinator.delete(1, "workers")

    rig.do(work)
    assert answers == [SyncedMember("consumer", "range", b"")]
    assert rig.life.store.memberships() == ()
    rig.restart(kill=True)
    assert rig.is_in(None)


def test_a_group_is_not_let_go_of_while_the_log_works(rig: Rig) -> None:
    """What was still to be said of it would be said behind what its name stands for by then."""
    (told,) = rig.join()
    assert isinstance(told, Joined)
    answers: list[Outcome] = []

    def work() -> int:
        rig.coordinator.sync(1, "workers", told.member_id, 1, {}, answers.append)
        rig.coordinator.leave(1, "workers", told.member_id, None)
        for _ in range(3):
            rig.coordinator.tick(rig.life.clock.monotonic_us())
        rig.join()
        group = rig.coordinator.group(1, "workers")
        assert group is not None
        rig.coordinator.sync(1, "workers", "m2", group.generation, {}, answers.append)
        return group.generation

    generation = rig.do(work)
    assert answers == [SyncedMember("consumer", "range", b"")] * 2
    rig.restart(kill=True)
    assert rig.commit("m2", generation) is ErrorCode.NONE


def test_organisations_get_back_their_own_groups(rig: Rig) -> None:
    first, second = rig.alone(), rig.alone(org=2)
    rig.restart(kill=True)
    assert rig.heartbeat(first, 1) is ErrorCode.NONE
    assert rig.heartbeat(second, 1, org=2) is ErrorCode.NONE
    assert rig.heartbeat(first, 1, org=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_and_empty_ticks_write_nothing(rig: Rig) -> None:
    member = rig.alone()
    before = rig.life.store.core.applied_id
    for _ in range(20):
        assert rig.heartbeat(member, 1) is ErrorCode.NONE
        rig.sync(member, 1)
        rig.wait(SESSION_US // 10)
    assert rig.life.store.core.applied_id == before
