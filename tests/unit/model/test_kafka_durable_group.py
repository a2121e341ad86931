"""Consumer groups over a restart: what has to last, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headwater.model.kafka_group import Joined, Member, Phase, Refusal, SyncedMember
from headwater.model.kafka_group.group import DurableGroup
from tests.rig.invariants import check_group
from tests.unit.model.kafka_groups import SECOND, GroupRig


class LastingRig(GroupRig):
    def __init__(self) -> None:
        super().__init__()
        self.group: DurableGroup = DurableGroup(1, "workers")

    def is_in(self, phase: Phase) -> bool:
        return self.group.phase is phase

    def has_news(self) -> bool:
        return self.group.standing is not None

    def restart(self, members: Sequence[Member]) -> None:
        """What a settled group was, in a new process whose clock begins elsewhere."""
        old = self.group
        self.now_us += 1_000 * SECOND
        self.group = DurableGroup(old.org, old.name)
        self.group.restore(
            old.generation,
            old.protocol_type,
            old.protocol_name,
            old.leader,
            [replace(each, expires_us=self.now_us + each.session_timeout_us) for each in members],
        )
        check_group(self.group)


@pytest.fixture
def rig() -> LastingRig:
    return LastingRig()


def stable_pair(rig: LastingRig) -> tuple[str, str]:
    first, _ = rig.enter()
    second, _ = rig.enter()
    rig.settle(first, second)
    assert rig.is_in(Phase.STABLE)
    return first, second


def restarted_pair(rig: LastingRig) -> tuple[str, str]:
    pair = stable_pair(rig)
    rig.restart(list(rig.group.members.values()))
    return pair


def test_only_a_generation_with_its_assignment_has_to_last(rig: LastingRig) -> None:
    first, _ = rig.enter()
    assert rig.is_in(Phase.COMPLETING_REBALANCE)
    assert not rig.has_news()
    rig.sync(first, assignments={first: b"all"})
    settled = rig.group.standing
    assert settled is not None
    assert settled.generation == 1
    rig.heartbeat(first)
    rig.sync(first)
    assert rig.group.standing == settled
    rig.enter()
    assert rig.is_in(Phase.PREPARING_REBALANCE)
    assert not rig.has_news()


def test_a_static_member_in_a_new_place_is_news_in_the_same_generation(rig: LastingRig) -> None:
    first = rig.joined(rig.join(instance_id="one")).member_id
    rig.sync(first, instance_id="one", assignments={first: b"all"})
    before = rig.group.standing
    second = rig.joined(rig.join(instance_id="one", skipping=True)).member_id
    after = rig.group.standing
    assert before is not None
    assert after is not None
    assert before.generation == after.generation
    assert before != after
    assert after.instances == {"one": second}


def test_members_go_on_where_they_were(rig: LastingRig) -> None:
    first, second = restarted_pair(rig)
    assert rig.group.logged == rig.group.standing
    for member in (first, second):
        assert rig.heartbeat(member, 2) is None
        assert rig.group.commit_refusal(member, 2, None, rig.now_us) is None
        assert rig.told[rig.sync(member)] == SyncedMember("consumer", "range", member.encode())
    assert rig.group.commit_refusal(first, 1, None, rig.now_us) is Refusal.ILLEGAL_GENERATION
    assert rig.heartbeat("stranger", 2) is Refusal.UNKNOWN_MEMBER_ID


def test_a_member_has_a_whole_session_from_the_start_on(rig: LastingRig) -> None:
    first, second = restarted_pair(rig)
    rig.wait(9.9)
    assert rig.is_in(Phase.STABLE)
    assert rig.heartbeat(first, 2) is None
    rig.wait(0.2)
    assert rig.is_in(Phase.PREPARING_REBALANCE)
    assert list(rig.group.members) == [first]
    assert rig.heartbeat(second, 2) is Refusal.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(first, 2) is Refusal.REBALANCE_IN_PROGRESS
    assert rig.joined(rig.join(first)).generation == 3


def test_a_follower_that_joins_again_unchanged_starts_no_round(rig: LastingRig) -> None:
    _, second = restarted_pair(rig)
    assert rig.joined(rig.join(second)).generation == 2
    assert rig.is_in(Phase.STABLE)


def test_a_static_member_is_fenced_after_a_restart_as_before(rig: LastingRig) -> None:
    first = rig.joined(rig.join(instance_id="one")).member_id
    rig.sync(first, instance_id="one", assignments={first: b"all"})
    second = rig.joined(rig.join(instance_id="one", skipping=True)).member_id
    rig.restart(list(rig.group.members.values()))
    now = rig.now_us
    assert rig.group.heartbeat(first, 1, "one", now) is Refusal.FENCED_INSTANCE_ID
    assert rig.group.commit_refusal(first, 1, "one", now) is Refusal.FENCED_INSTANCE_ID
    assert rig.group.heartbeat(second, 1, "one", now) is None
    back = rig.told[rig.join(instance_id="one", skipping=True)]
    assert isinstance(back, Joined)
    assert (back.generation, back.skip_assignment) == (1, True)


def test_a_generation_that_cannot_last_is_followed_by_another(rig: LastingRig) -> None:
    first, second = stable_pair(rig)
    rig.group.start_over(rig.now_us)
    check_group(rig.group)
    assert rig.is_in(Phase.PREPARING_REBALANCE)
    rig.settle(first, second)
    assert rig.is_in(Phase.STABLE)
    assert rig.group.generation == 3
