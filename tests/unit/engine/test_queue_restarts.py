"""Queues over restarts and crashes, and jobs that are given up."""

from __future__ import annotations

import pytest

from tests.unit.engine.queue_places import Place


@pytest.mark.claims(391, 392)
def test_leases_are_not_in_the_log_by_default_and_jobs_are_free_after_a_crash() -> None:
    place = Place()
    place.write(5)
    place.db.claim("jobs", "one", 3)
    assert place.lease_frames() == 1, "only the ceiling over the numbers of claims"
    before = place.db.claim("jobs", "one", 1).jobs[0].lease_id
    assert place.lease_frames() == 1
    place.crash()
    again = place.db.claim("jobs", "two", 9)
    assert again.seqs == [1, 2, 3, 4, 5]
    assert again.jobs[0].lease_id > before, "a fence is never used twice"


@pytest.mark.claims(382, 383)
@pytest.mark.parametrize("how", ["crash", "restart", "checkpoint and crash"])
def test_durable_leases_hold_over_a_restart_until_their_deadline(how: str) -> None:
    place = Place(leases_durable=True, lease_ms=10_000)
    place.write(5)
    held = place.db.claim("jobs", "one", 2)
    place.db.claim("jobs", "one", 2)
    place.db.nack("jobs", "one", [3], delay_ms=4_000)
    place.db.extend("jobs", "one", [4], lease_ms=60_000)
    place.db.ack("jobs", "one", [2])
    if how == "checkpoint and crash":
        place.db.checkpoint()
    place.restart() if how == "restart" else place.crash()
    assert place.db.queue_stats("jobs") == (1, 2, 1, 0, 0)
    assert place.db.claim("jobs", "two", 9).seqs == [5]
    place.pass_ms(4_000)
    again = place.db.claim("jobs", "two", 9)
    assert again.seqs == [3]
    assert again.jobs[0].deliveries == 2
    assert again.jobs[0].lease_id > held.jobs[0].lease_id + 1
    assert place.db.ack("jobs", "one", [1], lease_ids=[held.jobs[0].lease_id]).seqs == [1]
    place.pass_ms(55_000)
    assert 4 not in place.db.claim("jobs", "two", 9).seqs
    place.pass_ms(1_001)
    assert 4 in place.db.claim("jobs", "two", 9).seqs


def test_a_restart_into_another_year_neither_loses_nor_keeps_a_job() -> None:
    for jump_ms in (10**11, -(10**11)):
        place = Place(leases_durable=True, lease_ms=10_000)
        place.write(1)
        place.db.claim("jobs", "one")
        place.clock.jump_wall(jump_ms)
        place.crash()
        place.pass_ms(10_001)
        assert place.db.claim("jobs", "two").seqs == [1], jump_ms


@pytest.mark.claims(389, 400)
def test_a_job_delivered_too_often_ends_in_the_dead_letter_topic_once() -> None:
    place = Place(max_deliveries=2, dead_letter="dead", lease_ms=100)
    place.db.append("jobs", {"data": [1], "tag": "t", "node": "maker", "meta": {"k": "v"}})
    place.write(1)
    for _ in range(2):
        assert place.db.claim("jobs", "one", 1).seqs == [1]
        place.pass_ms(101)
    assert place.db.claim("jobs", "one", 9).seqs == [2]
    (letter,) = place.db.diff("dead").records
    assert (letter.data, letter.tag, letter.node) == ([1], "t", "maker")
    assert letter.meta == {
        "k": "v",
        "$dead_letter_from": "jobs",
        "$dead_letter_deliveries": 2,
        "$dead_letter_src_seq": 1,
    }
    assert place.db.queue_stats("jobs") == (0, 1, 0, 1, 0)
    assert [record.seq for record in place.db.diff("jobs").records] == [2]
    place.crash()
    assert place.db.queue_stats("jobs") == (1, 0, 0, 1, 0)
    assert place.db.state("dead").count == 1


def test_a_nack_of_the_last_delivery_is_put_away_at_once() -> None:
    place = Place(max_deliveries=1, dead_letter="dead")
    place.write(1)
    place.db.claim("jobs", "one")
    place.db.nack("jobs", "one", [1], delay_ms=60_000)
    assert place.db.state("dead").count == 1
    assert place.db.queue_stats("jobs") == (0, 0, 0, 1, 0)


def test_a_dead_letter_topic_that_was_idle_over_restarts_takes_the_next_letter() -> None:
    place = Place(max_deliveries=1, dead_letter="dead")
    for count in (1, 2, 3):
        place.write(1)
        (seq,) = place.db.claim("jobs", "one").seqs
        place.db.nack("jobs", "one", [seq])
        assert place.db.queue_stats("jobs") == (0, 0, 0, count, 0)
        place.restart()
        place.write(1)
        place.db.ack("jobs", "one", place.db.claim("jobs", "one").seqs)
        place.restart()
        assert not place.db.engine.topic("dead").loaded, "or the test shows nothing"
    letters = place.db.diff("dead").records
    assert [(one.seq, one.meta and one.meta["$dead_letter_src_seq"]) for one in letters] == [
        (1, 1),
        (2, 3),
        (3, 5),
    ]


def test_a_dead_letter_topic_that_refuses_keeps_the_job_where_it_is() -> None:
    place = Place(max_deliveries=1, dead_letter="dead")
    place.db.create("dead", cap_records=1, discard="reject")
    place.db.append("dead", {"data": "full"})
    place.write(1)
    place.db.claim("jobs", "one")
    place.db.nack("jobs", "one", [1])
    assert place.db.state("jobs").count == 1
    place.db.delete("dead", before_seq=2)
    assert place.db.claim("jobs", "one").seqs == []
    assert (place.db.state("jobs").count, place.db.state("dead").count) == (0, 1)


def test_without_a_dead_letter_topic_a_job_is_delivered_again_and_again() -> None:
    place = Place(max_deliveries=1)
    place.write(1)
    for number in range(1, 4):
        assert place.db.claim("jobs", "one").jobs[0].deliveries == number
        place.db.nack("jobs", "one", [1])


def test_leases_nobody_asked_for_in_a_whole_life_are_there_in_the_next() -> None:
    place = Place(leases_durable=True)
    place.write(3)
    place.db.claim("jobs", "one", 2)
    place.crash()
    place.write(1)
    place.db.checkpoint()
    place.db.checkpoint()
    place.crash()
    assert place.db.queue_stats("jobs") == (2, 2, 0, 0, 0)
    assert place.db.ack("jobs", "one", [1, 2]).seqs == [1, 2]


@pytest.mark.parametrize("ends", ["crash", "restart"])
def test_leases_that_are_durable_no_longer_hold_nothing_after_a_restart(ends: str) -> None:
    place = Place(leases_durable=True)
    place.write(3)
    place.db.claim("jobs", "one", 2, lease_ms=3_600_000)
    place.db.nack("jobs", "one", [1], delay_ms=3_600_000)
    place.db.create("jobs", leases_durable=False)
    place.db.nack("jobs", "one", [2])
    getattr(place, ends)()
    assert place.db.queue_stats("jobs")[:3] == (3, 0, 0)
    assert place.db.claim("jobs", "two", 3).seqs == [1, 2, 3]
