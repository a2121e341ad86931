"""Queues in the engine: workers, deadlines, delays, keys, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core import limits
from headwater.core.errors import (
    InvalidRequestError,
    NotAQueueError,
    OverloadedError,
    TopicNotFoundError,
)
from headwater.engine.queues.claims import Queues
from headwater.engine.topics.record_encoding import encode_records
from tests.unit.engine.queues.queue_rig import Place


@pytest.mark.claims(390, 393, 399)
def test_a_worker_claims_works_and_acks_and_the_jobs_are_gone() -> None:
    place = Place()
    place.write(3, tag="t", meta={"k": 1})
    claimed = place.db.claim("jobs", "one", 2)
    assert claimed.seqs == [1, 2]
    assert claimed.ready == 1
    job = claimed.jobs[0]
    assert (job.record.data, job.record.tag, job.record.meta) == ({"n": 0}, "t", {"k": 1})
    assert (job.deliveries, job.deadline) == (1, place.clock.wall_ms() + 30_000)
    settled = place.db.ack("jobs", "one", [1, 2, 3])
    assert (settled.seqs, settled.skipped, settled.ready, settled.in_flight) == ([1, 2], [3], 1, 0)
    assert [record.seq for record in place.db.diff("jobs").records] == [3]
    assert place.db.state("jobs").count == 1


def test_a_log_topic_is_no_queue_and_a_missing_one_is_missing() -> None:
    place = Place()
    place.db.create("log")
    with pytest.raises(NotAQueueError):
        place.db.claim("log", "one")
    with pytest.raises(NotAQueueError):
        place.db.ack("log", "one", [1])
    with pytest.raises(TopicNotFoundError):
        place.db.claim("nothing", "one")


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.claim("jobs", ""),
        lambda db: db.claim("jobs", "x" * 129),
        lambda db: db.ack("jobs", "one", []),
        lambda db: db.ack("jobs", "one", list(range(1, 1_002))),
        lambda db: db.ack("jobs", "one", [1, 2], lease_ids=[1]),
        lambda db: db.nack("jobs", "one", [1], delay_ms=86_400_001),
        lambda db: db.nack("jobs", "one", [1], delay_ms=-1),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(call: Any) -> None:
    place = Place()
    place.write(1)
    with pytest.raises(InvalidRequestError):
        call(place.db)
    assert place.db.queue_stats("jobs") == (1, 0, 0, 0, 0)


@pytest.mark.claims(394, 395, 398)
def test_deadlines_follow_the_time_that_passes_and_no_wall_clock_jump() -> None:
    place = Place(lease_ms=1_000)
    place.write(1)
    first = place.db.claim("jobs", "one").jobs[0]
    for jump_ms in (3_600_000, -7_200_000, 10**11, -(10**11)):
        place.clock.jump_wall(jump_ms)
        assert place.db.claim("jobs", "two").seqs == []
    place.pass_ms(1_000)
    assert place.db.claim("jobs", "two").seqs == [], "up to the deadline"
    place.pass_ms(1)
    second = place.db.claim("jobs", "two").jobs[0]
    assert second.deliveries == 2
    assert place.db.ack("jobs", "one", [1], lease_ids=[first.lease_id]).skipped == [1]
    assert place.db.ack("jobs", "two", [1], lease_ids=[second.lease_id]).seqs == [1]


def test_an_extension_moves_the_deadline_and_tells_it() -> None:
    place = Place(lease_ms=1_000)
    place.write(2)
    place.db.claim("jobs", "one", 2)
    place.pass_ms(900)
    extended = place.db.extend("jobs", "one", [1, 9], lease_ms=5_000)
    assert extended.skipped == [9]
    assert extended.deadlines == {1: place.clock.wall_ms() + 5_000}
    place.pass_ms(200)
    assert place.db.claim("jobs", "two", 2).seqs == [2]


@pytest.mark.claims(387)
def test_a_nack_gives_a_job_back_at_once_or_later() -> None:
    place = Place()
    place.write(2)
    place.db.claim("jobs", "one", 2)
    assert place.db.nack("jobs", "one", [1]).ready == 1
    assert place.db.nack("jobs", "one", [2], delay_ms=500).ready == 1
    assert place.db.claim("jobs", "two", 2).seqs == [1]
    assert place.db.queue_stats("jobs").delayed == 1
    place.pass_ms(500)
    assert place.db.claim("jobs", "two", 2).seqs == [2]


@pytest.mark.parametrize("how", ["goes on", "crash", "checkpoint and crash", "restart"])
@pytest.mark.parametrize("asked_before", [True, False])
def test_a_delayed_job_is_delivered_at_its_time_also_after_a_restart(
    how: str, asked_before: bool
) -> None:
    place = Place()
    if asked_before:
        place.db.queue_stats("jobs")
    now = place.clock.wall_ms()
    place.db.append(
        "jobs",
        [{"data": 1}, {"data": 2, "deliver_at": now + 5_000}, {"data": 3, "deliver_at": now - 1}],
    )
    if "checkpoint" in how:
        place.db.checkpoint()
    if how != "goes on":
        place.restart() if how == "restart" else place.crash()
    assert place.db.claim("jobs", "one", 9).seqs == [1, 3]
    assert place.db.queue_stats("jobs").delayed == 1
    place.pass_ms(4_999)
    assert place.db.claim("jobs", "one", 9).seqs == []
    place.pass_ms(1)
    (job,) = place.db.claim("jobs", "one", 9).jobs
    assert (job.record.seq, job.record.data, job.deliveries) == (2, 2, 1)


def test_delayed_jobs_are_kept_back_when_many_writes_are_committed_together() -> None:
    place = Place()
    later = place.clock.wall_ms() + 5_000
    engine = place.db.engine
    with engine.core.owner.holding():  # type: ignore[attr-defined]
        for record in ({"data": 1}, {"data": 2, "deliver_at": later}, {"data": 3}):
            engine.append("jobs", encode_records([record]))
    assert place.db.claim("jobs", "one", 9).seqs == [1, 3]


def test_an_appointment_does_not_leap_with_the_wall_clock() -> None:
    place = Place()
    place.db.append("jobs", {"data": 1, "deliver_at": place.clock.wall_ms() + 60_000})
    place.clock.jump_wall(10**11)
    assert place.db.claim("jobs", "one").seqs == []
    place.pass_ms(31_000)
    assert place.db.claim("jobs", "one").seqs == [1], "at most twice as fast as time passes"


@pytest.mark.parametrize("at", [-1, 2**53, True, "soon", 1.5])
def test_a_time_of_delivery_is_a_number_and_for_queues_only(at: Any) -> None:
    place = Place()
    with pytest.raises(InvalidRequestError, match="deliver_at"):
        place.db.append("jobs", {"data": 1, "deliver_at": at})
    with pytest.raises(NotAQueueError, match="deliver_at"):
        place.db.append("log", {"data": 1, "deliver_at": 5})
    assert [state.topic for state in place.db.topics()] == ["jobs"]


def test_a_paused_queue_gives_nothing_and_still_takes_acks() -> None:
    place = Place()
    place.write(2)
    place.db.claim("jobs", "one", 1)
    place.db.create("jobs", paused=True)
    assert place.db.claim("jobs", "one", 1).seqs == []
    assert place.db.ack("jobs", "one", [1]).seqs == [1]
    place.crash()
    assert place.db.claim("jobs", "one", 1).seqs == []
    place.db.create("jobs", paused=False)
    assert place.db.claim("jobs", "one", 1).seqs == [2]


@pytest.mark.parametrize("durable", [True, False])
def test_jobs_of_one_key_go_out_one_at_a_time_and_in_order(durable: bool) -> None:
    place = Place(fifo_key="tag", leases_durable=durable)
    for tag in ("a", "a", "b", None, "a"):
        place.write(1, tag=tag)
    assert place.db.claim("jobs", "one", 9).seqs == [1, 3, 4]
    assert place.db.claim("jobs", "one", 9).seqs == []
    place.db.nack("jobs", "one", [1], delay_ms=100)
    assert place.db.claim("jobs", "one", 9).seqs == [], "2 does not overtake 1"
    place.db.checkpoint()
    if durable:
        place.crash()
        assert place.db.claim("jobs", "one", 9).seqs == []
    place.pass_ms(100)
    assert place.db.claim("jobs", "one", 9).seqs == [1]
    place.db.ack("jobs", "one", [1, 3])
    assert place.db.claim("jobs", "one", 9).seqs == [2]
    place.db.ack("jobs", "one", [2])
    assert place.db.claim("jobs", "one", 9).seqs == [5]


def test_jobs_that_expire_or_are_deleted_are_neither_claimed_nor_counted() -> None:
    place = Place(ttl_ms=1_000)
    place.write(2, tag="x")
    place.db.claim("jobs", "one", 1)
    place.pass_ms(1_001)
    place.write(2, tag="y")
    assert place.db.claim("jobs", "one", 1).seqs == [3]
    assert place.db.ack("jobs", "one", [1]).skipped == [1]
    place.db.delete("jobs", match="y")
    assert place.db.queue_stats("jobs") == (0, 0, 0, 0, 0)
    assert place.db.ack("jobs", "one", [3]).skipped == [3]


def test_a_held_job_that_somebody_deletes_is_in_flight_no_longer() -> None:
    place = Place()
    place.write(1, tag="x")
    place.write(1, tag="y")
    place.write(1, tag="x")
    place.db.claim("jobs", "one", 3)
    place.db.delete("jobs", match="y")
    assert place.db.queue_stats("jobs") == (0, 2, 0, 0, 0)


def test_jobs_that_grew_too_old_are_not_claimed_though_nobody_wrote_since() -> None:
    place = Place(ttl_ms=1_000)
    place.write(2)
    place.pass_ms(1_001)
    assert place.db.claim("jobs", "one", 9).seqs == []


def test_a_claim_is_answered_only_when_its_number_is_safe_in_the_log() -> None:
    place = Place()
    place.write(4)
    engine = place.db.engine
    topic, queues = engine.topic("jobs"), Queues(engine)
    answers = []
    with engine.core.owner.holding():  # type: ignore[attr-defined]
        for node in ("first", "second"):
            request = queues.request(topic, node, 1, None, None)
            queues.deal(topic, [request], queues.draw(topic, 1))
            answers.append(queues.confirm(topic, request))
        assert [answer.done for answer in answers] == [False, False]
    assert [answer.done for answer in answers] == [True, True]
    with engine.core.owner.holding():  # type: ignore[attr-defined]
        request = queues.request(topic, "third", 1, None, None)
        queues.deal(topic, [request], queues.draw(topic, 1))
        assert queues.confirm(topic, request).done, "the ceiling is there already"


@pytest.mark.parametrize("durable", [True, False])
def test_a_claim_or_ack_the_log_refuses_leaves_the_jobs_as_they_were(durable: bool) -> None:
    place = Place(leases_durable=durable)
    place.write(3)
    held = place.db.claim("jobs", "one", 1)
    topics = place.db.engine.topics
    submit = topics.submit

    def refuse(*_: Any, **__: Any) -> None:
        raise OverloadedError("no room")

    topics.submit = refuse  # type: ignore[method-assign]
    with pytest.raises(OverloadedError):
        place.db.ack("jobs", "one", [1])
    if durable:
        with pytest.raises(OverloadedError):
            place.db.claim("jobs", "two", 9)
    topics.submit = submit  # type: ignore[method-assign]
    assert place.db.queue_stats("jobs") == (2, 1, 0, 0, 0)
    assert [job.deliveries for job in place.db.claim("jobs", "two", 9).jobs] == [1, 1]
    assert place.db.ack("jobs", "one", [1], lease_ids=[held.jobs[0].lease_id]).seqs == [1]


def test_jobs_in_segments_are_claimed_like_those_in_memory() -> None:
    place = Place()
    place.write(30)
    place.db.checkpoint()
    place.write(5)
    claimed = place.db.claim("jobs", "one", 40)
    assert claimed.seqs == list(range(1, 36))
    assert [job.record.data["n"] for job in claimed.jobs] == [*range(30), *range(5)]
    place.db.ack("jobs", "one", claimed.seqs[:-1])
    place.db.checkpoint()
    place.crash()
    assert place.db.claim("jobs", "one", 40).seqs == [35]


def test_the_jobs_of_a_connection_are_free_when_it_ends() -> None:
    place = Place(leases_durable=True)
    place.write(3)
    engine = place.db.engine
    topic = engine.topic("jobs")
    queues = Queues(engine)
    request = queues.request(topic, "push", 2, None, 77)
    with place.db.engine.core.owner.holding():  # type: ignore[attr-defined]
        queues.deal(topic, [request], queues.draw(topic, 2))
        queues.confirm(topic, request)
    assert place.db.claim("jobs", "one", 9).seqs == [3]
    state = place.disk, place.db
    place.crash()
    assert place.db.claim("jobs", "one", 9).seqs == [1, 2], "no connection outlives the process"
    place.disk, place.db = state
    place.db.engine.core.owner.call(lambda: queues.release(topic, 77))
    assert place.db.claim("jobs", "one", 9).seqs == [1, 2]


def test_settings_that_change_while_jobs_are_out_count_from_then_on() -> None:
    place = Place()
    place.write(4, tag="same")
    assert place.db.claim("jobs", "one", 1).seqs == [1]
    place.db.create("jobs", fifo_key="tag")
    assert place.db.claim("jobs", "one", 3).seqs == [], "the first of the key is still out"
    place.db.ack("jobs", "one", [1])
    assert place.db.claim("jobs", "one", 3).seqs == [2]
    place.db.create("jobs", fifo_key=None, max_deliveries=1, dead_letter="dead")
    assert place.db.claim("jobs", "one", 1).seqs == [3]
    place.db.nack("jobs", "one", [2, 3])
    assert place.db.claim("jobs", "one", 3).seqs == [4]
    assert place.db.state("dead").count == 2


@pytest.mark.parametrize("order", [{}, {"fifo_key": "tag"}], ids=["any order", "by key"])
def test_large_jobs_are_claimed_a_few_at_a_time_and_none_is_lost(
    order: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_BYTES_MAX", 1_000)
    place = Place(**order)
    sizes = [300, 300, 300, 300, 5_000, 10, 10, 10]
    place.db.append("jobs", [{"data": "x" * size, "tag": f"{size}"} for size in sizes])
    if order:
        place.db.append("jobs", [{"data": "y", "tag": f"own {n}"} for n in range(3)])
    claims: list[list[int]] = []
    while found := place.db.claim("jobs", "one", 100).seqs:
        claims.append(found)
        place.db.ack("jobs", "one", found)
    assert max(map(len, claims)) <= 5 if order else claims == [[1, 2, 3], [4], [5], [6, 7, 8]]
    assert sorted(seq for found in claims for seq in found) == list(range(1, 12 if order else 9))
    assert place.db.queue_stats("jobs") == (0, 0, 0, 0, 0)
