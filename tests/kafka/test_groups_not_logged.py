"""Groups that the log does not take: too large, or the disk is full. Nobody is told too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.model.kafka_group import Joined, Phase, Refusal, Refused, SyncedMember
from headwater.wire.kafka.apis import ErrorCode
from tests.kafka.durable_groups import ROOMY, Rig
from tests.rig.captured_logs import captured_logs
from tests.rig.kafka import batch_of

UNAVAILABLE = Refused(Refusal.COORDINATOR_NOT_AVAILABLE)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    "limit", ["membership_bytes_max", "memberships_bytes_max"], ids=["of one", "of all"]
)
def test_a_group_with_too_much_metadata_works_and_does_not_last(limit: str) -> None:
    rig = Rig(replace(ROOMY, **{limit: 5_000}))  # type: ignore[arg-type]
    small = rig.alone()
    with captured_logs() as lines:
        large = rig.join(metadata=b"x" * 6_000)
        rig.join(small)
        (told,) = large
        assert isinstance(told, Joined)
        for _ in range(2):
            rig.sync(small, 2)
        assert rig.commit(small, 2) is ErrorCode.NONE
    (line,) = [each for each in lines if each["level"] == "warning"]
    assert (line["group"], line["members"]) == ("workers", 2)
    rig.restart(kill=True)
    # Neither does the generation before it: that one was over.
    assert rig.commit(small, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(told.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_with_a_full_disk_small_groups_live_on_the_reserve(rig: Rig) -> None:
    first = rig.alone()
    rig.fill()
    rig.repeat_until_refused(lambda: rig.life.append("orders", batch_of("more")))
    rig.leave(first)
    second = rig.alone()
    rig.faults.clear()
    rig.restart(kill=True)
    assert rig.commit(second, 3) is ErrorCode.NONE
    assert rig.commit(first, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_that_the_log_refuses_is_not_told_and_tried_again(rig: Rig) -> None:
    first = rig.alone()
    second = rig.join()
    rig.join(first)
    (told,) = second
    assert isinstance(told, Joined)
    rig.use_up_the_reserve()
    with captured_logs() as lines:
        waiting = rig.sync(told.member_id, 2)
        assert rig.sync(first, 2) == waiting == [UNAVAILABLE]
    assert [line["group"] for line in lines] == ["workers"]
    assert rig.is_in(Phase.PREPARING_REBALANCE)
    rig.make_room()
    later = rig.join(told.member_id)
    (again,) = rig.join(first)
    assert isinstance(again, Joined)
    assert again.generation == 3
    assert later
    assert rig.sync(first, 3) == [SyncedMember("consumer", "range", first.encode())]
    rig.restart(kill=True)
    assert rig.commit(told.member_id, 3) is ErrorCode.NONE
    assert rig.commit(first, 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_refused_generation_leaves_the_one_before_to_a_restart(rig: Rig) -> None:
    first = rig.alone()
    rig.join(first)
    rig.use_up_the_reserve()
    assert rig.sync(first, 2) == [UNAVAILABLE]
    rig.faults.clear()
    rig.restart(kill=True)
    assert rig.commit(first, 2) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(first, 1) is ErrorCode.NONE


def test_a_static_member_is_not_replaced_while_the_log_refuses(rig: Rig) -> None:
    old = rig.alone("one")
    rig.use_up_the_reserve()
    assert rig.join(instance="one") == [UNAVAILABLE]
    rig.make_room()
    (back,) = rig.join(instance="one")
    assert isinstance(back, Joined)
    rig.sync(back.member_id, back.generation)
    rig.restart(kill=True)
    assert rig.commit(old, 1, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit(back.member_id, back.generation, "one") is ErrorCode.NONE


def test_that_a_group_is_empty_is_said_again_until_the_log_has_it(rig: Rig) -> None:
    member = rig.alone()
    rig.use_up_the_reserve()
    rig.leave(member)
    for _ in range(5):
        rig.wait(500_000)
    assert len(rig.life.store.memberships()) == 1
    rig.make_room()
    for _ in range(3):
        rig.wait(500_000)
    assert rig.life.store.memberships() == ()
    assert rig.is_in(None)


def test_a_log_that_is_closing_takes_no_generation(rig: Rig) -> None:
    (told,) = rig.join()
    assert isinstance(told, Joined)
    rig.life.close()
    assert rig.sync(told.member_id, 1) == [UNAVAILABLE]
