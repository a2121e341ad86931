"""The loop with its thread: company, idleness, closing, errands, and a second dialect."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from headwater.config.wal import WalSettings
from headwater.core.clock import Doorbell, SystemClock
from headwater.core.errors import ClosedError, OverloadedError, PoisonedError, SyncError
from headwater.testing import ManualClock
from headwater.wal.counters import WalCounters
from headwater.wal.policy import ByClass, EveryMs, EveryN, EveryWrite, Never, SyncPolicy
from headwater.wal.shard import Shard
from headwater.wal.ticket import Listener, Ticket, resolve_quietly
from tests.unit.wal.group_logs import DISK, FSYNC, ListLog, ticket

SETTINGS = WalSettings(queue_submissions_max=64)


class Held:
    """Keeps the writer inside a verb of the log until it is let go."""

    def __init__(self, log: ListLog, verb: str) -> None:
        self._verb = verb
        self.entered = threading.Event()
        self.let_go = threading.Event()
        log.before = self._before

    def _before(self, verb: str) -> None:
        if verb == self._verb:
            self.entered.set()
            assert self.let_go.wait(10)


def make_shard(
    log: ListLog,
    clock: ManualClock | SystemClock,
    policy: SyncPolicy | None = None,
    listener: Listener = resolve_quietly,
) -> Shard:
    chosen = policy or ByClass(SETTINGS.disk_sync_interval_us)
    return Shard("test-shard", log, chosen, SETTINGS, clock, listener, WalCounters())


def submit_and_wait(shard: Shard, each: Ticket) -> bool:
    shard.submit(each)
    return each.wait(10)


@pytest.fixture
def log() -> ListLog:
    return ListLog()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shard(log: ListLog, clock: ManualClock) -> Iterator[Shard]:
    shard = make_shard(log, clock)
    shard.start()
    yield shard
    shard.close()


@pytest.mark.claims(171)
def test_a_lone_durable_write_is_synced_without_the_clock_moving(shard: Shard) -> None:
    one = ticket()
    shard.submit(one)
    assert one.wait(10)
    assert shard.counters.syncs == 1


@pytest.mark.claims(168, 178, 179)
def test_tickets_that_come_during_a_sync_share_the_next_one(
    shard: Shard, log: ListLog, clock: ManualClock
) -> None:
    held = Held(log, "sync")
    first = ticket(b"first")
    shard.submit(first)
    assert held.entered.wait(10)
    others = [ticket(str(n).encode()) for n in range(20)]
    for each in others:
        shard.submit(each)
    held.let_go.set()
    assert first.wait(10)
    clock.wait_for_waiters(1)  # the first writer may come back and share it too
    clock.advance(SETTINGS.commit_window_us_min)
    assert all(each.wait(10) for each in others)
    assert log.groups == [[b"first"], [str(n).encode() for n in range(20)]]
    assert log.events.count("sync") == 2


def test_a_slow_disk_costs_a_synchronous_refusal_and_never_an_acked_record(
    shard: Shard, log: ListLog, clock: ManualClock
) -> None:
    held = Held(log, "sync")
    first = ticket(b"first")
    shard.submit(first)
    assert held.entered.wait(10)
    waiting = [ticket(str(n).encode()) for n in range(SETTINGS.queue_submissions_max)]
    for each in waiting:
        shard.submit(each)
    with pytest.raises(OverloadedError):
        shard.submit(ticket(b"too many"))
    held.let_go.set()
    clock.wait_for_waiters(1)
    clock.advance(SETTINGS.commit_window_us_min)
    assert all(each.wait(10) for each in waiting)
    written = [body for group in log.groups for body in group]
    assert written == [b"first", *[each.body for each in waiting]]


@pytest.mark.claims(343)
def test_what_pressure_added_to_the_wait_for_company_is_told_and_then_forgotten(
    shard: Shard, clock: ManualClock
) -> None:
    clock.wait_for_waiters(1)
    shard.window.set_pressure(1.0)
    shard.window.observe(2, 0)
    parks = clock.park_count
    pressed = ticket(b"pressed")
    shard.submit(pressed)
    clock.wait_for_waiters(1, after_parks=parks)
    assert not pressed.resolved
    clock.advance(SETTINGS.commit_window_us_max)
    assert pressed.wait(10)
    assert shard.counters.throttle_us_last == 9_500
    shard.window.set_pressure(0.0)
    clock.wait_for_waiters(1)
    shard.window.observe(1, 0)
    assert submit_and_wait(shard, ticket(b"free"))
    assert shard.counters.throttle_us_last == 0


def test_a_wait_in_which_nobody_came_is_not_told_to_the_next_writer(
    shard: Shard, clock: ManualClock
) -> None:
    clock.wait_for_waiters(1)
    shard.window.set_pressure(1.0)
    shard.window.observe(2, 0)
    parks = clock.park_count
    shard.call(lambda: None).result(10)
    clock.wait_for_waiters(1, after_parks=parks)
    parks = clock.park_count
    clock.advance(SETTINGS.commit_window_us_max)
    clock.wait_for_waiters(1, after_parks=parks)
    assert submit_and_wait(shard, ticket(b"later"))
    assert shard.counters.throttle_us_last == 0


def test_a_write_that_needs_no_sync_waits_for_company_once_and_never_again(
    shard: Shard, clock: ManualClock
) -> None:
    clock.wait_for_waiters(1)
    shard.window.observe(2, 0)
    shard.call(lambda: None).result(10)
    alone = ticket(b"alone", durability=DISK)
    shard.submit(alone)
    parks = clock.park_count
    while not alone.resolved:  # it may come before or during the sleep: two windows at most
        clock.advance(SETTINGS.commit_window_us_min)
        alone.wait(0.01)
    assert clock.park_count <= parks + 3
    clock.wait_for_waiters(1)
    for _ in range(3):
        parks = clock.park_count
        assert submit_and_wait(shard, ticket(b"next", durability=DISK)), "the clock stands still"
        clock.wait_for_waiters(1, after_parks=parks)  # else the next seems to be its company


def slow_sync(log: ListLog, clock: ManualClock, us: int) -> None:
    """Every sync takes so long."""
    log.before = lambda verb: clock.advance(us) if verb == "sync" else None


def test_on_a_slow_disk_a_group_waits_for_those_who_come_back(
    shard: Shard, log: ListLog, clock: ManualClock
) -> None:
    slow_sync(log, clock, 5_000)
    clock.wait_for_waiters(1)
    shard.window.observe(3, 5_000)
    three = [ticket(bytes([letter])) for letter in b"abc"]
    parks = clock.park_count
    shard.submit(three[0])
    clock.wait_for_waiters(1, after_parks=parks)
    shard.submit(three[1])
    clock.advance(100)
    assert not log.groups, "the third is here before a sync would be through"
    shard.submit(three[2])
    assert all(each.wait(10) for each in three)
    assert log.groups == [[b"a", b"b", b"c"]]


@pytest.mark.claims(183)
def test_company_that_does_not_come_is_waited_for_once(
    shard: Shard, log: ListLog, clock: ManualClock
) -> None:
    clock.wait_for_waiters(1)
    shard.window.observe(3, 0)
    parks = clock.park_count
    alone = ticket(b"alone")
    shard.submit(alone)
    clock.wait_for_waiters(1, after_parks=parks)
    assert not alone.resolved
    clock.advance(SETTINGS.commit_window_us_min)
    assert alone.wait(10)
    assert submit_and_wait(shard, ticket(b"again")), "the clock stands still"


def test_how_long_writers_take_to_come_back_is_measured(
    shard: Shard, log: ListLog, clock: ManualClock
) -> None:
    both = [ticket(b"a"), ticket(b"b")]
    held = Held(log, "sync")
    shard.submit(both[0])
    assert held.entered.wait(10)
    held.let_go.set()
    assert both[0].wait(10)
    clock.wait_for_waiters(1)
    clock.advance(70)
    assert submit_and_wait(shard, both[1])
    assert shard.window.returns.return_us == 70


def test_an_idle_shard_sleeps_and_wakes_for_the_idle_mark(
    shard: Shard, log: ListLog, clock: ManualClock
) -> None:
    one = ticket()
    shard.submit(one)
    assert one.wait(10)
    clock.wait_for_waiters(1)
    parks = clock.park_count
    clock.advance(SETTINGS.idle_mark_after_us)
    log.wait_for(lambda: "idle mark" in log.events)
    clock.wait_for_waiters(1, after_parks=parks)
    assert clock.park_count == parks + 1, "one wake-up, no spinning"


@pytest.mark.claims(166)
def test_the_disk_class_is_hardened_by_the_timer(
    shard: Shard, log: ListLog, clock: ManualClock
) -> None:
    one = ticket(durability=DISK)
    shard.submit(one)
    assert one.wait(10)
    assert log.synced == 0
    clock.wait_for_waiters(1)
    clock.advance(SETTINGS.disk_sync_interval_us)
    log.wait_for(lambda: "sync" in log.events)


def test_closing_serves_what_was_accepted_and_refuses_the_rest(log: ListLog) -> None:
    shard = make_shard(log, ManualClock())
    accepted = [ticket(str(n).encode()) for n in range(5)]
    for each in accepted:
        shard.submit(each)
    shard.start()
    shard.close()
    assert all(each.wait(0) for each in accepted)
    assert log.events[-2:] == ["stop mark", "close"]
    with pytest.raises(ClosedError):
        shard.submit(ticket())
    shard.close()


def test_a_poisoned_shard_refuses_at_the_door(shard: Shard, log: ListLog) -> None:
    log.failures["sync"] = SyncError("sync failed")
    one = ticket()
    shard.submit(one)
    with pytest.raises(PoisonedError):
        one.wait(10)
    with pytest.raises(PoisonedError):
        shard.submit(ticket())
    assert shard.poison is not None


def test_an_errand_runs_on_the_logs_own_thread_between_groups(shard: Shard) -> None:
    future = shard.call(lambda: threading.current_thread().name)
    assert future.result(10) == "test-shard"
    with pytest.raises(ZeroDivisionError):
        shard.call(lambda: 1 // 0).result(10)


def test_an_errand_after_the_end_is_refused_and_never_hangs(log: ListLog) -> None:
    shard = make_shard(log, ManualClock())
    shard.start()
    shard.close()
    with pytest.raises(ClosedError):
        shard.call(lambda: 1).result(10)


def test_a_listener_that_raises_poisons_the_shard_and_every_ticket_is_answered(
    log: ListLog,
) -> None:
    """A bug of its owner, and still nobody waits for ever (I15)."""

    def broken(tickets: Sequence[Ticket]) -> None:
        raise RuntimeError("a bug in the listener")

    shard = make_shard(log, ManualClock(), listener=broken)
    one, two = ticket(), ticket()
    shard.submit(one)
    shard.start()
    assert one.wait(10)
    with pytest.raises(PoisonedError):
        submit_and_wait(shard, two)
    shard.close()


class BreakingClock(ManualClock):
    """A stand-in for any bug inside the loop itself."""

    broken = False

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        answer = super().wait(doorbell, until_us)
        if self.broken:
            raise RuntimeError("a bug in the loop")
        return answer


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_loop_breaks_waiting_and_later_tickets_are_refused(log: ListLog) -> None:
    clock = BreakingClock()
    shard = make_shard(log, clock)
    shard.start()
    clock.wait_for_waiters(1)
    clock.broken = True
    waiting = ticket()
    shard.submit(waiting)
    with pytest.raises(ClosedError):
        waiting.wait(10)
    with pytest.raises(ClosedError):
        shard.submit(ticket())
    with pytest.raises(ClosedError):
        shard.call(lambda: 1).result(10)
    shard.close()


DIALECTS: dict[str, tuple[SyncPolicy, int]] = {
    "every write": (EveryWrite(), 12),
    "every 5": (EveryN(5), 2),
    "every 20 ms": (EveryMs(20), 0),
    "never": (Never(), 0),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_the_same_loop_serves_another_dialect_under_every_policy(
    name: str, log: ListLog, clock: ManualClock
) -> None:
    """A tiny log that knows nothing of frames, driven one submission at a time."""
    policy, syncs = DIALECTS[name]
    shard = make_shard(log, clock, policy)
    shard.start()
    clock.wait_for_waiters(1)
    for number in range(12):
        parks = clock.park_count
        each = ticket(f"entry {number}".encode(), FSYNC)
        shard.submit(each)
        assert each.wait(10)
        clock.wait_for_waiters(1, after_parks=parks)  # else the next seems to be its company
    assert shard.counters.syncs == syncs
    if isinstance(policy, EveryMs):
        clock.wait_for_waiters(1)
        clock.advance(20_000)
        log.wait_for(lambda: "sync" in log.events)
    shard.close()
    assert log.groups == [[f"entry {number}".encode()] for number in range(12)]
    assert log.synced == 12, "a clean stop hardens everything"


@pytest.mark.claims(179)
def test_many_writers_get_exactly_one_answer_each_and_keep_their_order(log: ListLog) -> None:
    answers: list[bytes] = []
    shard = make_shard(
        log, SystemClock(), listener=lambda each: answers.extend(t.body for t in each)
    )
    shard.start()

    def write(writer: int) -> None:
        for number in range(50):
            each = ticket(f"{writer}:{number}".encode(), DISK if writer % 2 else FSYNC)
            shard.submit(each)
            assert each.wait(10)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    shard.close()
    assert len(answers) == len(set(answers)) == 400
    for writer_number in range(8):
        mine = [a for a in answers if a.startswith(f"{writer_number}:".encode())]
        assert mine == [f"{writer_number}:{number}".encode() for number in range(50)]
    assert sorted(answers) == sorted(body for group in log.groups for body in group)
