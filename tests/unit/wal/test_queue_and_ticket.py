"""The bounded queue and the ticket that is answered exactly once."""

from __future__ import annotations

import threading

import pytest

from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.core.errors import ClosedError, DiskFullError, InvariantError, OverloadedError
from headwater.testing import ManualClock
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US, WalCounters
from headwater.wal.queue import SubmissionQueue
from headwater.wal.ticket import Ticket, resolve_all
from tests.unit.wal.group_logs import FSYNC, ticket


def taken(queue: SubmissionQueue, frames_max: int = 10**6, bytes_max: int = 10**9) -> list[bytes]:
    group: list[Ticket] = []
    queue.take(group, frames_max, bytes_max)
    return [each.body for each in group]


@pytest.mark.claims(159, 181)
def test_submissions_over_the_bytes_are_refused_and_a_first_one_always_fits() -> None:
    counters = WalCounters()
    queue = SubmissionQueue(100, counters, bytes_max=10)
    queue.put(ticket(b"x" * 11))
    assert queue.fill == 1.1
    with pytest.raises(OverloadedError, match="1 writes are waiting for the disk, 11 bytes"):
        queue.put(ticket(b""))
    assert (len(queue), counters.submit_full) == (1, 1)
    group: list[Ticket] = []
    queue.take(group, 100, 1_000)
    assert queue.fill == 0.0
    queue.put(ticket(b"x" * 4))
    queue.put(ticket(b"x" * 6))
    with pytest.raises(OverloadedError):
        queue.put(ticket(b"x"))


@pytest.mark.claims(159, 181)
def test_submission_4097_is_refused_and_nothing_of_it_is_kept() -> None:
    counters = WalCounters()
    queue = SubmissionQueue(WalSettings().queue_submissions_max, counters)
    for number in range(4096):
        queue.put(ticket(str(number).encode()))
    refused = ticket(b"one too many")
    with pytest.raises(OverloadedError, match="4096 writes are waiting") as caught:
        queue.put(refused)
    assert caught.value.retry_after_ms > 0
    assert (len(queue), counters.submit_full, counters.queue_depth_peak) == (4096, 1, 4096)
    assert taken(queue) == [str(number).encode() for number in range(4096)]
    assert not refused.resolved
    queue.put(refused)
    assert taken(queue) == [b"one too many"]


def test_a_ticket_takes_as_many_places_as_writers_wait_for_it() -> None:
    counters = WalCounters()
    queue = SubmissionQueue(10, counters, bytes_max=10)
    many, few = ticket(b"x" * 11), ticket(b"")
    many.writers, few.writers = 8, 3
    queue.put(many)  # the first always fits, however many bytes it has
    assert (len(queue), queue.writers, queue.fill) == (1, 8, 1.1)
    assert taken(queue) == [many.body]
    many.body = b""
    queue.put(many)
    assert queue.fill == 0.8
    with pytest.raises(OverloadedError, match="8 writes are waiting"):
        queue.put(few)
    few.writers = 2
    queue.put(few)
    assert (queue.writers, queue.fill, counters.queue_depth_peak) == (10, 1.0, 10)
    assert taken(queue, frames_max=1) == [b""]
    assert queue.writers == 2
    assert taken(queue) == [b""]
    assert (queue.writers, queue.fill) == (0, 0.0)


@pytest.mark.claims(182)
def test_a_group_is_limited_by_frames_and_by_bytes() -> None:
    queue = SubmissionQueue(100, WalCounters())
    for size in (10, 10, 10, 500, 10):
        queue.put(ticket(b"x" * size))
    assert [len(body) for body in taken(queue, frames_max=2)] == [10, 10]
    assert [len(body) for body in taken(queue, bytes_max=300)] == [10]
    assert [len(body) for body in taken(queue, bytes_max=300)] == [500], (
        "a first ticket always fits"
    )
    assert [len(body) for body in taken(queue, bytes_max=300)] == [10]
    assert taken(queue) == []


def test_the_limits_count_what_is_already_in_the_group() -> None:
    queue = SubmissionQueue(100, WalCounters())
    for _ in range(5):
        queue.put(ticket(b"12345"))
    group: list[Ticket] = []
    queue.take(group, 2, 10**9)
    queue.take(group, 3, 10**9)
    assert len(group) == 3
    queue.take(group, 10**6, 20)
    assert len(group) == 4
    queue.take(group, 10**6, 10**9)
    assert len(group) == 5


def test_a_closed_queue_refuses_and_still_gives_what_it_has() -> None:
    queue = SubmissionQueue(10, WalCounters())
    queue.put(ticket(b"a"))
    queue.put(ticket(b"b"))
    queue.close()
    with pytest.raises(ClosedError):
        queue.put(ticket(b"c"))
    assert [each.body for each in queue.drain()] == [b"a", b"b"]
    assert taken(queue) == []


@pytest.mark.claims(183)
def test_a_parked_writer_sleeps_until_enough_tickets_are_here() -> None:
    queue = SubmissionQueue(10, WalCounters())
    clock = ManualClock()
    woken = threading.Event()

    def park() -> None:
        queue.park(clock, 2, None)
        woken.set()

    thread = threading.Thread(target=park)
    thread.start()
    clock.wait_for_waiters(1)
    queue.put(ticket())
    assert clock.waiter_count == 1, "one of two does not wake it"
    assert not woken.is_set()
    queue.put(ticket())
    thread.join(10)
    assert woken.is_set()


def test_parking_is_over_at_once_when_there_is_work_or_the_queue_is_closed() -> None:
    queue = SubmissionQueue(10, WalCounters())
    queue.put(ticket())
    queue.park(SystemClock(), 1, None)
    queue.drain()
    queue.close()
    queue.park(SystemClock(), 1, None)


def test_a_ticket_is_resolved_once_and_a_second_answer_is_our_own_bug() -> None:
    one = ticket()
    one.resolve()
    with pytest.raises(InvariantError, match="resolved twice"):
        one.resolve()
    two = ticket()
    with pytest.raises(InvariantError, match="resolved twice"):
        resolve_all([two, one])
    assert two.resolved


def test_any_number_of_threads_may_wait_for_a_ticket() -> None:
    one = ticket()
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(one.wait(10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    one.resolve()
    for thread in threads:
        thread.join(10)
    assert answers == [True] * 8
    assert one.wait()


def test_waiting_raises_what_went_wrong_and_tells_a_time_out_from_an_ack() -> None:
    one = Ticket(b"", 0, FSYNC)
    assert one.wait(0.001) is False
    one.resolve(DiskFullError("no room"))
    with pytest.raises(DiskFullError, match="no room"):
        one.wait()


@pytest.mark.parametrize(
    ("elapsed_us", "bucket"), [(0, 0), (50, 0), (51, 1), (1_000_000, 11), (1_000_001, 12)]
)
def test_a_sync_is_counted_in_the_bucket_it_fits(elapsed_us: int, bucket: int) -> None:
    counters = WalCounters()
    counters.observe_sync(elapsed_us)
    assert counters.sync_us_buckets.index(1) == bucket
    assert len(counters.sync_us_buckets) == len(SYNC_LATENCY_BOUNDS_US) + 1
    assert (counters.syncs, counters.sync_us_total) == (1, elapsed_us)
