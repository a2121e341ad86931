"""Handing out seqs and making records visible."""

from __future__ import annotations

import pytest

from headwater.core.errors import HeadConflictError, InvariantError, TopicFullError
from tests.unit.model.topics import seqs_from, topic, write


def test_seqs_begin_at_one_and_never_skip() -> None:
    log = topic()
    assert [log.assign(3), log.assign(1), log.assign(2)] == [1, 4, 5]
    assert log.head_seq == 6
    assert log.visible_seq == 0


def test_a_record_is_seen_only_after_it_was_published() -> None:
    log = topic()
    log.assign(2)
    assert seqs_from(log) == []
    log.publish(1, [48, 48], 5, [0, 0])
    assert seqs_from(log) == [1, 2]
    assert (log.last_write_ts, log.inflight) == (5, 0)


def test_publishing_out_of_order_is_our_own_mistake() -> None:
    log = topic()
    log.assign(2)
    with pytest.raises(InvariantError):
        log.publish(2, [48], 0, [0])


@pytest.mark.claims(276)
def test_a_full_topic_that_rejects_takes_no_seq_and_says_so() -> None:
    log = topic(cap_records=3, discard="reject")
    write(log, 2)
    with pytest.raises(TopicFullError) as caught:
        log.assign(2, 20)
    assert caught.value.code == "topic_full"
    assert caught.value.detail == {"cap_records": 3, "count": 2}
    assert log.head_seq == 2
    assert log.assign(1, 10) == 3


@pytest.mark.claims(276)
def test_writes_in_flight_count_against_the_cap_of_a_rejecting_topic() -> None:
    log = topic(cap_bytes=30, discard="reject")
    log.assign(2, 20)
    with pytest.raises(TopicFullError):
        log.assign(1, 11)
    log.unassign(1, 20)
    assert log.assign(3, 30) == 1


def test_deleting_makes_room_in_a_rejecting_topic() -> None:
    log = topic(cap_records=2, discard="reject")
    write(log, 2)
    log.delete(before_seq=2)
    assert log.assign(1) == 3


def test_a_rejecting_topic_evicts_by_age_but_never_by_cap() -> None:
    log = topic(cap_records=5, discard="reject", ttl_ms=100)
    write(log, 5, ts=0)
    log.settings = topic(cap_records=2, discard="reject", ttl_ms=100).settings
    assert log.evict(100) is None
    eviction = log.evict(101)
    assert eviction is not None
    assert eviction.records == 5


def test_an_expected_head_that_is_not_met_takes_no_seq() -> None:
    log = topic()
    assert log.assign(2, expect_head_seq=0) == 1
    with pytest.raises(HeadConflictError) as caught:
        log.assign(1, expect_head_seq=0)
    assert caught.value.code == "head_conflict"
    assert caught.value.detail == {"head_seq": 2, "expect_head_seq": 0}
    assert log.assign(1, expect_head_seq=2) == 3


def test_only_the_newest_assignment_in_flight_can_be_taken_back() -> None:
    log = topic()
    write(log, 2)
    with pytest.raises(InvariantError):
        log.unassign(2)
    log.unassign(log.assign(4))
    assert log.assign(1) == 3
