"""Consumer groups: joining, generations, syncing, leaving, time."""

from __future__ import annotations

import pytest

from headwater.model.kafka_group import Phase, Refusal, Refused, SyncedMember
from tests.unit.model.kafka_groups import GroupRig


@pytest.fixture
def rig() -> GroupRig:
    return GroupRig()


def stable_pair(rig: GroupRig) -> tuple[str, str]:
    first, _ = rig.enter()
    second, _ = rig.enter()
    rig.settle(first, second)
    assert rig.group.phase is Phase.STABLE
    return first, second


def test_a_new_member_is_given_an_id_before_it_may_join(rig: GroupRig) -> None:
    member, token = rig.enter()
    assert rig.joined(token).member_id == member
    assert rig.joined(token).generation == 1


def test_an_old_client_joins_without_the_handshake(rig: GroupRig) -> None:
    assert rig.joined(rig.join(handshake=False)).leader == "m1"


def test_only_the_leader_is_told_who_the_members_are(rig: GroupRig) -> None:
    first, _ = rig.enter()
    second, waiting = rig.enter()
    assert waiting not in rig.told
    again = rig.join(first)
    told = rig.joined(again)
    assert [each.member_id for each in told.members] == [first, second]
    assert rig.joined(waiting).members == ()
    assert rig.joined(waiting).leader == first
    assert told.generation == rig.joined(waiting).generation == 2


def test_followers_wait_for_the_assignment_of_the_leader(rig: GroupRig) -> None:
    first, _ = rig.enter()
    second, _ = rig.enter()
    rig.join(first)
    follower = rig.sync(second)
    assert follower not in rig.told
    leader = rig.sync(first, assignments={first: b"0", second: b"1"})
    assert rig.told[leader] == SyncedMember("consumer", "range", b"0")
    assert rig.told[follower] == SyncedMember("consumer", "range", b"1")
    assert rig.group.phase is Phase.STABLE


def test_who_asks_again_in_a_stable_group_gets_its_assignment_again(rig: GroupRig) -> None:
    _, second = stable_pair(rig)
    assert rig.told[rig.sync(second)] == SyncedMember("consumer", "range", second.encode())
    assert rig.joined(rig.join(second)).generation == rig.group.generation
    assert rig.group.phase is Phase.STABLE


def test_a_leader_that_joins_again_begins_a_round(rig: GroupRig) -> None:
    first, second = stable_pair(rig)
    rig.join(first)
    assert rig.group.phase is Phase.PREPARING_REBALANCE
    assert rig.heartbeat(second) is Refusal.REBALANCE_IN_PROGRESS


def test_a_member_with_other_metadata_begins_a_round(rig: GroupRig) -> None:
    _, second = stable_pair(rig)
    rig.join(second, (("range", b"other topics"),))
    assert rig.group.phase is Phase.PREPARING_REBALANCE


def test_a_sync_during_a_new_round_is_told_to_join_again(rig: GroupRig) -> None:
    first, _ = rig.enter()
    second, _ = rig.enter()
    rig.join(first)
    waiting = rig.sync(second)
    rig.enter()
    assert rig.refusal(waiting) is Refusal.REBALANCE_IN_PROGRESS
    assert rig.refusal(rig.sync(second)) is Refusal.REBALANCE_IN_PROGRESS


def test_the_protocol_most_members_prefer_is_chosen(rig: GroupRig) -> None:
    wishes = [("a", "b", "x"), ("b", "a"), ("b", "a")]
    protocols = [tuple((name, name.encode()) for name in wish) for wish in wishes]
    members = [rig.enter(protocols=wish)[0] for wish in protocols]
    tokens = [rig.join(*each) for each in zip(members[:-1], protocols[:-1], strict=True)]
    assert rig.joined(tokens[0]).protocol_name == "b"
    assert {each.metadata for each in rig.joined(tokens[0]).members} == {b"b"}


@pytest.mark.parametrize(
    "asked",
    [
        {"protocols": (("unknown", b""),)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_who_has_no_protocol_in_common_is_refused(rig: GroupRig, asked: dict[str, str]) -> None:
    rig.enter()
    assert rig.refusal(rig.join(**asked)) is Refusal.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert len(rig.group.members) == 1


@pytest.mark.parametrize("session_s", [0.5, 1801, -1])
def test_absurd_session_timeouts_are_refused(rig: GroupRig, session_s: float) -> None:
    assert rig.refusal(rig.join(session_s=session_s)) is Refusal.INVALID_SESSION_TIMEOUT


def test_a_silent_member_is_removed_and_the_others_join_again(rig: GroupRig) -> None:
    first, second = stable_pair(rig)
    rig.wait(6)
    assert rig.heartbeat(first) is None
    rig.wait(6)
    assert list(rig.group.members) == [first]
    assert rig.heartbeat(second) is Refusal.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(first) is Refusal.REBALANCE_IN_PROGRESS
    assert rig.joined(rig.join(first)).generation == 3


def test_a_round_ends_without_those_who_do_not_join_in_time(rig: GroupRig) -> None:
    first, second = stable_pair(rig)
    _, waiting = rig.enter(session_s=600)
    for _ in range(7):
        rig.wait(9)
        for member in (first, second):
            rig.heartbeat(member)
    assert rig.joined(waiting).leader == rig.joined(waiting).member_id
    assert len(rig.group.members) == 1


def test_members_that_never_sync_are_removed_at_the_deadline(rig: GroupRig) -> None:
    first, _ = rig.enter(rebalance_s=5)
    second, _ = rig.enter(rebalance_s=5)
    rig.join(first, rebalance_s=5)
    waiting = rig.sync(second)
    rig.wait(5)
    assert list(rig.group.members) == [second]
    assert rig.refusal(waiting) is Refusal.REBALANCE_IN_PROGRESS


def test_a_promised_id_that_nobody_uses_holds_up_a_round_only_for_a_while(rig: GroupRig) -> None:
    first, _ = rig.enter()
    rig.sync(first)
    rig.join()
    waiting = rig.join(first)
    assert waiting not in rig.told
    rig.wait(10)
    assert rig.joined(waiting).generation == 2


def test_a_member_that_leaves_makes_the_others_join_again(rig: GroupRig) -> None:
    first, second = stable_pair(rig)
    assert rig.leave(first) is None
    assert rig.heartbeat(second) is Refusal.REBALANCE_IN_PROGRESS
    assert rig.joined(rig.join(second)).leader == second
    assert rig.leave(first) is Refusal.UNKNOWN_MEMBER_ID


def test_a_group_that_everybody_left_is_empty_and_keeps_counting(rig: GroupRig) -> None:
    for member in stable_pair(rig):
        rig.leave(member)
    assert rig.group.phase is Phase.EMPTY
    assert rig.group.is_idle
    generation = rig.group.generation
    _, token = rig.enter()
    assert rig.joined(token).generation == generation + 1


@pytest.mark.parametrize("of_generation", [0, 1, 3])
def test_another_generation_is_refused_everywhere(rig: GroupRig, of_generation: int) -> None:
    first, _ = stable_pair(rig)
    assert rig.heartbeat(first, of_generation) is Refusal.ILLEGAL_GENERATION
    assert rig.refusal(rig.sync(first, of_generation)) is Refusal.ILLEGAL_GENERATION
    refusal = rig.group.commit_refusal(first, of_generation, None, rig.now_us)
    assert refusal is Refusal.ILLEGAL_GENERATION


def test_a_sync_of_another_protocol_is_refused(rig: GroupRig) -> None:
    first, _ = stable_pair(rig)
    token = rig.sync(first, protocol_name="sticky")
    assert rig.refusal(token) is Refusal.INCONSISTENT_GROUP_PROTOCOL


def test_offsets_of_nobody_are_stored_only_while_the_group_is_empty(rig: GroupRig) -> None:
    assert rig.group.commit_refusal("", -1, None, 0) is None
    rig.enter()
    assert rig.group.commit_refusal("", -1, None, 0) is Refusal.UNKNOWN_MEMBER_ID


def test_offsets_may_be_stored_until_the_new_generation_begins(rig: GroupRig) -> None:
    first, second = stable_pair(rig)
    rig.enter()
    assert rig.group.commit_refusal(first, rig.group.generation, None, 0) is None
    rig.join(first)
    rig.join(second)
    refusal = rig.group.commit_refusal(first, rig.group.generation, None, 0)
    assert refusal is Refusal.REBALANCE_IN_PROGRESS


def test_a_dead_group_refuses_everything(rig: GroupRig) -> None:
    rig.group.die()
    gone = Refusal.COORDINATOR_NOT_AVAILABLE
    assert rig.refusal(rig.join()) is gone
    assert rig.refusal(rig.sync("m")) is gone
    assert rig.heartbeat("m") is rig.leave("m") is gone
    assert rig.group.commit_refusal("", -1, None, 0) is gone


def test_a_static_member_comes_back_to_its_assignment_without_a_round(rig: GroupRig) -> None:
    token = rig.join(instance_id="one")
    old = rig.joined(token).member_id
    rig.sync(old, assignments={old: b"all"}, instance_id="one")
    back = rig.joined(rig.join(instance_id="one"))
    assert back.member_id != old
    assert back.generation == 1
    assert back.leader == old, "told of another leader, it does not assign"
    synced = rig.told[rig.sync(back.member_id, instance_id="one")]
    assert synced == SyncedMember("consumer", "range", b"all")
    assert rig.refusal(rig.sync(old, instance_id="one")) is Refusal.FENCED_INSTANCE_ID


def test_a_static_leader_that_understands_is_told_to_skip_assigning(rig: GroupRig) -> None:
    old = rig.joined(rig.join(instance_id="one")).member_id
    rig.sync(old, instance_id="one")
    back = rig.joined(rig.join(instance_id="one", skipping=True))
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert [each.instance_id for each in back.members] == ["one"]


@pytest.mark.parametrize(
    ("held", "refusal"),
    [("one", Refusal.FENCED_INSTANCE_ID), ("other", Refusal.UNKNOWN_MEMBER_ID)],
)
def test_nobody_takes_an_instance_id_with_an_id_that_was_promised_to_somebody_without(
    rig: GroupRig, held: str, refusal: Refusal
) -> None:
    static = rig.joined(rig.join(instance_id=held)).member_id
    rig.sync(static, instance_id=held)
    promised = rig.told[rig.join()]
    assert isinstance(promised, Refused)
    assert rig.refusal(rig.join(promised.member_id, instance_id="one")) is refusal
    assert rig.group.instances == {held: static}
    for _ in range(60):
        rig.wait(1)
    assert not rig.group.members


def test_whoever_waits_under_a_taken_instance_id_is_fenced(rig: GroupRig) -> None:
    rig.enter()
    waiting = rig.join(instance_id="one")
    rig.join(instance_id="one")
    assert rig.refusal(waiting) is Refusal.FENCED_INSTANCE_ID


def test_a_static_member_is_sent_away_by_its_instance_id(rig: GroupRig) -> None:
    rig.sync(rig.joined(rig.join(instance_id="one")).member_id, instance_id="one")
    assert rig.leave("", "other") is Refusal.UNKNOWN_MEMBER_ID
    assert rig.leave("someone", "one") is Refusal.FENCED_INSTANCE_ID
    assert rig.leave("", "one") is None
    assert rig.group.phase is Phase.EMPTY


def test_a_static_member_is_kept_in_a_round_it_misses(rig: GroupRig) -> None:
    static = rig.joined(rig.join(instance_id="one", session_s=600, rebalance_s=5)).member_id
    rig.sync(static, instance_id="one")
    _, waiting = rig.enter(rebalance_s=5)
    rig.wait(5)
    told = rig.joined(waiting)
    assert told.leader == told.member_id
    assert {each.instance_id for each in told.members} == {"one", None}


def test_who_joins_twice_at_once_is_answered_twice(rig: GroupRig) -> None:
    first, _ = stable_pair(rig)
    earlier = rig.join(first)
    later = rig.join(first)
    assert rig.refusal(earlier) is Refusal.REBALANCE_IN_PROGRESS
    assert later not in rig.told
