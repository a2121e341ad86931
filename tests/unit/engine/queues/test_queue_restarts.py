"""Queues over restarts and crashes, and jobs that are given up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headwater.config.topic import Discard
from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.engine.queues.claims import Queues
from headwater.format.control_frames import LeaseEvent, LeaseKind, QueueMeta
from headwater.model.queue import LeaseHistory
from tests.unit.engine.queues.queue_rig import Place


def refusing_letters(**settings: Any) -> Place:
    """A queue whose dead letter topic came to be full in an earlier version: today's refuses."""
    place = Place(max_deliveries=1, dead_letter="dead", **settings)
    place.db.append("dead", {"data": "full"})
    refuse_letters(place)
    return place


def refuse_letters(place: Place) -> None:
    dead = place.db.engine.topic("dead").log
    dead.settings = msgspec.structs.replace(dead.settings, cap_records=1, discard=Discard.REJECT)


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
    place = refusing_letters()
    place.write(1)
    place.db.claim("jobs", "one")
    place.db.nack("jobs", "one", [1])
    assert place.db.queue_stats("jobs") == (0, 0, 0, 0, 1)
    place.db.delete("dead", before_seq=2)
    place.pass_ms(999)
    assert place.db.claim("jobs", "one").seqs == []
    assert place.db.queue_stats("jobs") == (0, 0, 0, 0, 1), "not tried with every claim"
    place.pass_ms(1)
    assert place.db.claim("jobs", "one").seqs == []
    assert place.db.queue_stats("jobs") == (0, 0, 0, 1, 0)
    assert (place.db.state("jobs").count, place.db.state("dead").count) == (0, 1)


@pytest.mark.parametrize("ends", ["goes on", "crash", "restart"])
def test_jobs_a_dead_letter_topic_refuses_are_told_once_and_never_ready(
    ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = refusing_letters(leases_durable=True)
    place.write(2)
    place.db.nack("jobs", "one", place.db.claim("jobs", "one", 2).seqs)
    for _ in range(3):
        place.pass_ms(1_000)
        assert place.db.claim("jobs", "one", 2).seqs == []
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, told
    assert "jobs" in told[0]
    assert "dead" in told[0]
    assert "holds 1 of 1 records" in told[0]
    if ends != "goes on":
        place.crash() if ends == "crash" else place.restart()
        refuse_letters(place)
    assert place.db.claim("jobs", "one", 2).seqs == []
    assert place.db.queue_stats("jobs") == (0, 0, 0, 0, 2)
    place.db.create("jobs", dead_letter=None)
    assert place.db.claim("jobs", "one", 2).seqs == [1, 2], "without dead letters they go out again"


def test_a_claim_that_waits_does_not_turn_in_circles_over_blocked_jobs() -> None:
    place = refusing_letters()
    place.write(1)
    place.db.nack("jobs", "one", place.db.claim("jobs", "one").seqs)
    queues, topic = Queues(place.db.engine), place.db.engine.topic("jobs")
    assert not queues.has_next(topic)
    assert queues.next_change_us(topic) == place.clock.monotonic_us() + 1_000_000 + 1


def test_the_largest_job_there_is_becomes_a_dead_letter_and_goes_back() -> None:
    place = Place(max_deliveries=1, dead_letter="dead")
    data = "x" * (limits.RECORD_BYTES_MAX - 2)
    place.db.append("jobs", {"data": data})
    place.db.nack("jobs", "one", place.db.claim("jobs", "one").seqs)
    (letter,) = place.db.diff("dead").records
    assert letter.meta is not None
    assert (letter.data, letter.meta["$dead_letter_src_seq"]) == (data, 1)
    assert place.db.requeue("dead", [letter.seq]).seqs == [letter.seq]
    assert place.db.claim("jobs", "one").jobs[0].record.data == data


def test_a_dead_letter_topic_that_may_refuse_cannot_be_chosen() -> None:
    place = Place()
    place.db.create("full", cap_records=1, discard="reject")
    place.db.create("source")
    place.db.put_router("r", source="source", dest="fed", guarantee="exactly_once")
    for dead in ("full", "fed"):
        with pytest.raises(InvalidRequestError, match=f"'{dead}' cannot be the dead letter topic"):
            place.db.create("jobs", max_deliveries=1, dead_letter=dead)
        with pytest.raises(InvalidRequestError, match=f"'{dead}' cannot be the dead letter topic"):
            place.db.create("more", type="queue", dead_letter=dead)
    assert place.db.state("jobs").config["dead_letter"] is None
    assert not place.db.engine.find("more")


def test_a_dead_letter_topic_cannot_become_one_that_may_refuse() -> None:
    place = Place(max_deliveries=1, dead_letter="dead")
    with pytest.raises(InvalidRequestError, match="dead letter topic of 'jobs'"):
        place.db.create("dead", discard="reject", cap_records=1)
    with pytest.raises(InvalidRequestError, match="dead letter topic of 'jobs'"):
        place.db.create("dead", discard="reject", cap_bytes=1)
    place.db.create("dead", discard="reject")
    with pytest.raises(InvalidRequestError, match="dead letter topic of 'jobs'"):
        place.db.create("dead", cap_records=1)
    place.db.create("source")
    with pytest.raises(InvalidRequestError, match="dead letter topic of 'jobs'"):
        place.db.put_router("r", source="source", dest="dead", guarantee="exactly_once")
    place.db.put_router("r", source="source", dest="dead")
    place.db.create("dead", cap_records=1, discard="old")


def test_letters_a_snapshot_counts_are_not_counted_again_from_the_log() -> None:
    history = LeaseHistory.since(QueueMeta(dead_lettered=3))
    for number in (2, 3, 4):
        history.apply(LeaseEvent(LeaseKind.DEAD_LETTERED, (number,), lease_id=number), 0)
    assert history.dead_lettered == 4
    history.apply(LeaseEvent(LeaseKind.DEAD_LETTERED, (9,)), 0)
    assert history.dead_lettered == 5, "events without a number are from before there was one"


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


@pytest.mark.parametrize("jump_ms", [0, 3_600_000, -3_600_000, 10**11, -(10**11)])
@pytest.mark.parametrize("passed_ms", [0, 1, 4_999, 5_000, 9_999, 10_000, 10_001, 120_000])
@pytest.mark.parametrize("durable", [True, False])
def test_counts_of_a_queue_nobody_used_since_a_restart_are_those_of_one_in_use(
    jump_ms: int, passed_ms: int, durable: bool
) -> None:
    place = Place(leases_durable=durable, lease_ms=10_000)
    now = place.clock.wall_ms()
    place.write(3)
    place.db.append("jobs", {"data": 4, "deliver_at": now + 5_000})
    place.db.append("jobs", {"data": 5, "deliver_at": now + 1})
    place.db.claim("jobs", "one", 2)
    place.db.nack("jobs", "one", [1], delay_ms=5_000)
    place.restart()
    place.clock.jump_wall(jump_ms)
    place.restart()
    place.pass_ms(passed_ms)
    topic = place.db.engine.topic("jobs")
    assert not topic.loaded, "or the test shows nothing"
    glanced = Queues(place.db.engine).glance(topic)
    assert glanced == place.db.queue_stats("jobs")
