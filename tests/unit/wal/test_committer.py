"""One group at a time: order of steps, acks by class, poison, the full disk, idle marks."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from headwater.core.errors import DiskFullError, HeadwaterError, PoisonedError, SyncError
from headwater.testing import ManualClock
from headwater.wal.committer import GroupCommitter, LogState
from headwater.wal.counters import WalCounters
from headwater.wal.policy import ByClass, EveryN, SyncPolicy
from headwater.wal.ticket import Ticket
from tests.unit.wal.group_logs import DISK, FSYNC, MEMORY, ListLog, ticket

SECOND = 1_000_000


class Rig:
    """A committer on a list, and everything its listener was told."""

    def __init__(self, policy: SyncPolicy | None = None) -> None:
        self.log = ListLog()
        self.clock = ManualClock()
        self.counters = WalCounters()
        self.answered: list[Ticket] = []
        self.committer = GroupCommitter(
            self.log,
            policy or ByClass(100_000),
            self.clock,
            self._on_answers,
            self.counters,
            idle_mark_after_us=SECOND,
            full_retry_interval_us=SECOND,
        )

    def _on_answers(self, tickets: Sequence[Ticket]) -> None:
        names = "".join(chr(each.body[0]) for each in tickets)
        self.log.events.append(f"ack {names}" if tickets else "hardened")
        self.answered.extend(tickets)

    def state(self) -> LogState:
        return self.committer.state

    def errors(self) -> list[type[HeadwaterError] | None]:
        return [None if each.error is None else type(each.error) for each in self.answered]


@pytest.mark.claims(163, 167, 168, 179, 184, 200)
def test_a_group_is_one_write_and_one_sync_and_acks_follow_in_enqueue_order() -> None:
    rig = Rig()
    rig.committer.commit([ticket(b"a"), ticket(b"b"), ticket(b"c")])
    assert rig.log.events == ["write", "sync", "ack abc"]
    assert rig.log.groups == [[b"a", b"b", b"c"]]
    assert (rig.counters.groups, rig.counters.syncs, rig.counters.submissions) == (1, 1, 3)


@pytest.mark.claims(166, 186)
def test_disk_class_is_acked_after_the_write_and_before_the_sync_of_its_group() -> None:
    rig = Rig()
    rig.committer.commit([ticket(b"a"), ticket(b"b", DISK), ticket(b"c"), ticket(b"d", MEMORY)])
    assert rig.log.events == ["write", "ack bd", "sync", "ack ac"]


@pytest.mark.claims(166, 185)
def test_disk_class_alone_is_synced_by_the_timer_counted_from_the_oldest() -> None:
    rig = Rig()
    rig.committer.commit([ticket(b"a", DISK)])
    rig.clock.advance(60_000)
    rig.committer.commit([ticket(b"b", DISK)])
    assert "sync" not in rig.log.events
    assert rig.committer.next_tick_us() == 100_000
    rig.clock.advance(39_999)
    rig.committer.tick()
    assert rig.log.synced == 0
    rig.clock.advance(1)
    rig.committer.tick()
    assert rig.log.synced == 2
    rig.committer.tick()
    assert rig.counters.syncs == 1


def test_under_load_the_disk_class_is_synced_in_time_without_an_idle_moment() -> None:
    rig = Rig()
    for _ in range(5):
        rig.committer.commit([ticket(b"a", DISK)])
        rig.clock.advance(30_000)
    assert rig.counters.syncs == 1


@pytest.mark.claims(164, 206)
def test_nothing_is_acked_before_it_was_written() -> None:
    for durability in (FSYNC, DISK, MEMORY):
        rig = Rig()
        rig.log.failures["write"] = OSError(errno.EIO, "broken")
        rig.committer.commit([ticket(b"a", durability)])
        assert rig.errors() == [PoisonedError]


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "broken"), SyncError("sync failed"), MemoryError(), ValueError()]
)
@pytest.mark.parametrize("verb", ["write", "sync"])
def test_any_failure_poisons_and_the_log_never_acks_again(verb: str, error: Exception) -> None:
    rig = Rig()
    rig.log.failures[verb] = error
    rig.committer.commit([ticket(b"a"), ticket(b"b")])
    rig.log.failures.clear()
    rig.committer.commit([ticket(b"c"), ticket(b"d", DISK), ticket(b"e", MEMORY)])
    assert rig.errors() == [PoisonedError] * 5
    assert rig.state() is LogState.POISONED
    assert rig.committer.poison is not None
    assert rig.committer.poison.__cause__ is error
    assert rig.counters.read_only == 1
    events = list(rig.log.events)
    rig.clock.advance(10 * SECOND)
    rig.committer.tick()
    assert rig.committer.next_tick_us() is None
    assert rig.log.events == events, "a poisoned log is left alone"
    rig.committer.finish()
    assert rig.log.events[len(events) :] == ["close"], "and gets no closing mark"


def test_a_background_sync_that_fails_poisons_too() -> None:
    rig = Rig()
    rig.committer.commit([ticket(b"a", DISK)])
    rig.log.failures["sync"] = SyncError("sync failed")
    rig.clock.advance(100_000)
    rig.committer.tick()
    assert rig.state() is LogState.POISONED
    assert rig.errors() == [None], "it was acked for what it was: written"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_refuses_ordinary_tickets_and_tries_essential_ones(number: int) -> None:
    rig = Rig()
    rig.log.failures["write"] = OSError(number, "full")
    rig.committer.commit([ticket(b"a"), ticket(b"b", essential=True), ticket(b"c", DISK)])
    assert rig.state() is LogState.FULL
    assert rig.log.events == ["write", "ack ac", "essential write", "sync", "ack b"]
    assert rig.errors() == [DiskFullError, DiskFullError, None]
    assert rig.log.groups == [[b"b"]]
    assert rig.counters.read_only == 1


def test_a_full_disk_is_not_asked_again_before_its_time_and_resumes_by_itself() -> None:
    rig = Rig()
    rig.log.failures.update(
        {verb: OSError(errno.ENOSPC, "full") for verb in ("write", "make room")}
    )
    rig.committer.commit([ticket(b"a")])
    rig.committer.commit([ticket(b"b")])
    assert rig.log.events.count("write") == 1, "the second was refused without a try"
    rig.clock.advance(SECOND)
    rig.committer.tick()
    assert rig.state() is LogState.FULL
    assert rig.committer.next_tick_us() == 2 * SECOND
    rig.log.failures.clear()
    rig.clock.advance(SECOND)
    rig.committer.tick()
    assert rig.state() is LogState.WRITABLE
    rig.committer.commit([ticket(b"c")])
    assert rig.errors() == [DiskFullError, DiskFullError, None]
    assert rig.counters.read_only == 0


def test_a_write_that_comes_when_the_retry_is_due_tries_itself() -> None:
    rig = Rig()
    rig.log.failures["write"] = OSError(errno.ENOSPC, "full")
    rig.committer.commit([ticket(b"a")])
    rig.log.failures.clear()
    rig.clock.advance(SECOND)
    rig.committer.commit([ticket(b"b")])
    assert rig.errors() == [DiskFullError, None]


def test_an_essential_write_that_does_not_fit_the_reserve_is_refused_not_poisoned() -> None:
    rig = Rig()
    full = OSError(errno.ENOSPC, "full")
    rig.log.failures.update({"write": full, "essential write": full})
    rig.committer.commit([ticket(b"a", essential=True), ticket(b"b")])
    assert rig.errors() == [DiskFullError, DiskFullError]
    assert rig.state() is LogState.FULL


def test_an_idle_second_after_a_write_leaves_one_mark_and_no_more() -> None:
    rig = Rig()
    assert rig.committer.next_tick_us() is None, "a fresh log has nothing to witness"
    rig.committer.commit([ticket(b"a")])
    assert rig.committer.next_tick_us() == SECOND
    rig.clock.advance(SECOND - 1)
    rig.committer.tick()
    assert "idle mark" not in rig.log.events
    rig.clock.advance(1)
    rig.committer.tick()
    rig.clock.advance(5 * SECOND)
    rig.committer.tick()
    assert rig.log.events.count("idle mark") == 1
    assert rig.committer.next_tick_us() is None


def test_every_write_puts_the_idle_mark_off() -> None:
    rig = Rig()
    for _ in range(4):
        rig.committer.commit([ticket(b"a")])
        rig.clock.advance(SECOND - 1)
        rig.committer.tick()
    assert "idle mark" not in rig.log.events


def test_an_idle_mark_without_room_makes_the_log_full_and_is_not_tried_in_a_loop() -> None:
    rig = Rig()
    rig.committer.commit([ticket(b"a")])
    rig.log.failures["idle mark"] = OSError(errno.ENOSPC, "full")
    rig.clock.advance(SECOND)
    rig.committer.tick()
    assert rig.state() is LogState.FULL
    rig.clock.advance(SECOND)
    rig.committer.tick()
    assert rig.log.events.count("idle mark") == 1
    assert rig.state() is LogState.WRITABLE


def test_a_clean_stop_writes_its_mark_and_closes() -> None:
    rig = Rig()
    rig.committer.commit([ticket(b"a", DISK)])
    rig.committer.finish()
    assert rig.log.events[-2:] == ["stop mark", "close"]
    assert rig.log.synced == 1


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (OSError(errno.ENOSPC, "full"), LogState.WRITABLE),
        (OSError(errno.EIO, "broken"), LogState.POISONED),
        (SyncError("sync failed"), LogState.POISONED),
    ],
)
def test_a_stop_that_fails_still_closes_the_files(error: Exception, state: LogState) -> None:
    rig = Rig()
    rig.log.failures["stop mark"] = error
    rig.committer.finish()
    assert rig.log.events == ["stop mark", "close"]
    assert rig.state() is state


def test_files_that_do_not_close_well_poison_instead_of_raising() -> None:
    rig = Rig()
    rig.log.failures["close"] = OSError(errno.EIO, "broken")
    rig.committer.finish()
    assert rig.state() is LogState.POISONED


def test_a_policy_of_n_syncs_after_n_whatever_the_class() -> None:
    rig = Rig(EveryN(3))
    for name in (b"a", b"b", b"c", b"d"):
        rig.committer.commit([ticket(name)])
    assert rig.log.events == [
        "write", "ack a", "write", "ack b", "write", "ack c", "sync", "hardened", "write", "ack d",
    ]  # fmt: skip
