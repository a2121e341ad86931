"""Claims held still between two of their steps: what others see, and what a leaver leaves."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import TopicNotFoundError
from headwater.engine.drivers import BlockingDriver
from headwater.engine.operation import Answered, InFiles, Woken
from headwater.engine.queues.operations import claim_operation
from tests.unit.engine.queues.queue_rig import Place


class Held:
    """A claim that goes on only when it is told to."""

    def __init__(self, place: Place, node: str, wanted: int, **more: Any) -> None:
        self._driver = BlockingDriver(place.db.engine.core)
        self._steps = claim_operation(place.db.engine, "jobs", node, wanted, **more)
        self._result: Any = None

    def until(self, kind: type[Any]) -> Any:
        """Do everything up to the next step of this kind."""
        while True:
            step = self._steps.send(self._result)
            if isinstance(step, kind):
                self._result = None
                return step
            self._result = self._driver.do(step)

    def do(self, step: Any) -> None:
        self._result = self._driver.do(step)

    def finish(self) -> list[int]:
        with pytest.raises(StopIteration) as done:
            self.until(type(None))
        seqs: list[int] = done.value.value.seqs
        return seqs

    def leave(self) -> None:
        self._steps.close()


def keyed_place(**settings: Any) -> Place:
    place = Place(fifo_key="tag", **settings)
    place.write(6, tag="k")
    place.db.checkpoint()
    topic = place.db.engine.topic("jobs")
    topic.tail.clear()  # as if others had pushed it out of the cache
    return place


def test_a_pass_by_key_waits_for_the_one_before_it() -> None:
    place = keyed_place()
    first, second = Held(place, "one", 2), Held(place, "two", 2)
    reading = first.until(InFiles)
    waiting = second.until(Woken)
    assert not waiting.ready()
    first.do(reading)
    assert first.finish() == [1]
    assert waiting.ready()
    assert second.finish() == [], "the others have the same key"


def test_a_pass_by_key_that_is_given_up_puts_everything_back() -> None:
    place = keyed_place()
    first, second = Held(place, "one", 2), Held(place, "two", 2)
    first.until(InFiles)
    waiting = second.until(Woken)
    first.leave()
    assert waiting.ready()
    assert second.finish() == [1]
    place.db.ack("jobs", "two", [1])
    assert place.db.claim("jobs", "two", 9).seqs == [2]


def cohort_behind(place: Place, first: Held, *others: Held) -> Any:
    """Behind the pass of another worker, `first` has closed the window of a cohort and waits for
    its turn. Gives the other worker."""
    other = Held(place, "other", 1)
    other.until(Woken)
    place.pass_ms(50)
    reading = other.until(InFiles)
    for each in (first, *others):
        each.until(Woken)
    place.pass_ms(50)
    first.until(Woken)  # for its turn, with the cohort in its hands
    other.do(reading)
    return other


def test_who_leaves_while_a_cohort_waits_for_its_turn_leaves_the_others_served() -> None:
    place = keyed_place(claim_jitter_ms=50)
    first, second = Held(place, "one", 2), Held(place, "two", 2)
    other = cohort_behind(place, first, second)
    waiting = second.until(Woken)
    first.leave()
    assert other.finish() == [1]
    place.db.ack("jobs", "other", [1])
    place.pass_ms(50)
    assert waiting.ready(), "it closes a window of its own"
    assert second.finish() == [2]


def test_who_left_a_cohort_is_given_no_jobs_when_its_pass_ends() -> None:
    place = Place(fifo_key="tag", claim_jitter_ms=50)
    for n in range(4):
        place.write(1, tag=f"k{n}")
    place.db.checkpoint()
    place.db.engine.topic("jobs").tail.clear()
    first, second = Held(place, "one", 2), Held(place, "two", 2)
    first.until(Woken)
    second.until(Woken)
    place.pass_ms(50)
    reading = first.until(InFiles)
    second.leave()
    first.do(reading)
    assert first.finish() == [1, 2]
    assert place.db.queue_stats("jobs").in_flight == 2, "the others are nobody's"
    last = Held(place, "three", 4)
    last.until(Woken)
    place.pass_ms(50)
    assert last.finish() == [3, 4]


def test_a_claim_given_up_before_its_answer_was_no_delivery() -> None:
    place = Place(leases_durable=True)
    place.write(2)
    claim = Held(place, "one", 2)
    claim.do(claim.until(Answered))
    claim.leave()
    assert [job.deliveries for job in place.db.claim("jobs", "two", 9).jobs] == [1, 1]


@pytest.mark.claims(396)
def test_a_window_is_not_closed_by_a_wake_up_that_comes_too_soon() -> None:
    place = Place(claim_jitter_ms=50)
    place.write(4)
    first, second = Held(place, "one", 6), Held(place, "two", 2)
    until_us = first.until(Woken).until_us
    assert until_us == place.clock.monotonic_us() + 50_000
    place.pass_ms(20)
    assert second.until(Woken).until_us == until_us, "the window is the first one's"
    place.write(4)
    again = first.until(Woken)
    assert (again.until_us, again.ready()) == (until_us, False)
    place.pass_ms(30)
    assert again.ready()
    assert first.finish() == [1, 2, 3, 4, 5, 6]
    assert second.finish() == [7, 8]


def test_a_claim_that_waits_is_served_by_whatever_makes_a_job_ready() -> None:
    place = Place(lease_ms=1_000)
    written = Held(place, "one", 2, wait_ms=5_000)
    waiting = written.until(Woken)
    assert not waiting.ready()
    assert waiting.until_us == place.clock.monotonic_us() + 5_000_000
    place.write(1)
    assert waiting.ready()
    assert written.finish() == [1]

    expired = Held(place, "two", 2, wait_ms=5_000)
    waiting = expired.until(Woken)
    assert not waiting.ready()
    assert waiting.until_us == place.clock.monotonic_us() + 1_000_001, "when the lease is over"
    place.clock.advance(1_000_001)
    assert waiting.ready()
    assert expired.finish() == [1]

    given_back = Held(place, "three", 2, wait_ms=500)
    waiting = given_back.until(Woken)
    place.db.nack("jobs", "two", [1], delay_ms=100)
    assert not waiting.ready()
    place.pass_ms(100)
    assert waiting.ready()
    assert given_back.finish() == [1]


def test_a_claim_waits_no_longer_than_it_said_and_not_for_what_it_cannot_have() -> None:
    place = Place(fifo_key="tag")
    place.write(2, tag="k")
    assert place.db.claim("jobs", "one", 9).seqs == [1]
    behind = Held(place, "two", 9, wait_ms=200)
    waiting = behind.until(Woken)
    assert not waiting.ready(), "the key is taken"
    place.pass_ms(200)
    assert behind.finish() == []
    waiting = (paused := Held(place, "two", 9, wait_ms=200)).until(Woken)
    place.db.create("jobs", paused=True)
    place.db.ack("jobs", "one", [1])
    assert not waiting.ready()
    place.db.create("jobs", paused=False)
    assert waiting.ready()
    assert paused.finish() == [2]


def test_a_claim_that_waits_for_a_dropped_queue_is_told_so() -> None:
    place = Place()
    claim = Held(place, "one", 1, wait_ms=5_000)
    waiting = claim.until(Woken)
    place.db.drop("jobs")
    assert waiting.ready()
    with pytest.raises(TopicNotFoundError):
        claim.until(Woken)


def test_a_letter_is_counted_once_though_its_worker_leaves_while_it_is_put_away() -> None:
    place = Place(max_deliveries=1, dead_letter="dead")
    place.write(1)
    place.db.claim("jobs", "one", lease_ms=100)
    place.pass_ms(101)
    worker = Held(place, "two", 1)
    worker.do(worker.until(Answered))
    put_away = worker.until(Answered)
    with place.db.engine.core.owner.holding():  # type: ignore[attr-defined]
        put_away.start()
        worker.leave()
        claim = Held(place, "three", 1)
        claim.finish()
    assert place.db.queue_stats("jobs") == (0, 0, 0, 1, 0)
    assert place.db.state("dead").count == 1
