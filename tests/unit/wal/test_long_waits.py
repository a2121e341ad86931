"""What a log notes of long waits: each cause, by the twin under a clock of the test's own, and by
the compiled writer."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePath
from typing import Any

from headwater.config.wal import WalSettings
from headwater.core.clock import Doorbell, SystemClock
from headwater.disk import OpenMode, PosixDisk
from headwater.engine.owner import LoopOwner
from headwater.format.names import PREPARED_NAME
from headwater.observe.waits import WaitCause, Waits
from headwater.testing import FakeDisk, ManualClock
from headwater.testing.fake_disk import FakeFile
from headwater.wal.compiled_groups import CompiledGroups
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import LogPosition
from headwater.wal.frame_log import FrameLog
from headwater.wal.policy import ByClass
from headwater.wal.queue import QueuedGroups
from headwater.wal.shard import Shard
from headwater.wal.ticket import resolve_quietly
from tests.unit.native.twins import is_compiled
from tests.unit.wal.group_logs import ticket
from tests.unit.wal.test_committer import Rig

POSITION = LogPosition(next_frame=1, chain=0, log_id=77, run=3, oldest=None, open_file=None)
WAL = PurePath("/wal")
SETTINGS = WalSettings(file_bytes=65_536, reserve_bytes=1_024, group_frames_max=2)


class JumpingClock(ManualClock):
    """Whoever waits for a time has it at once."""

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        assert until_us is not None
        self.advance(max(until_us - self.monotonic_us(), 0))
        return False


def noted(waits: Waits) -> list[tuple[WaitCause, int, str]]:
    return [(WaitCause(each.cause), each.duration_us, each.detail) for each in waits.since()]


# -- the twin


def test_the_write_and_the_sync_of_a_group_are_noted_with_their_size() -> None:
    rig = Rig()
    rig.counters.waits = Waits(rig.clock, 1_000)
    duration = {"write": 2_000, "sync": 7_000}
    rig.log.before = lambda verb: rig.clock.advance(duration[verb])
    rig.committer.commit([ticket(b"one"), ticket(b"two")])
    assert noted(rig.counters.waits) == [
        (WaitCause.WRITE, 2_000, "6 bytes"),
        (WaitCause.SYNC, 7_000, "2 tickets"),
    ]


class Queue:
    """The groups of a log whose thread is the test."""

    def __init__(self, **settings: Any) -> None:
        self.clock = JumpingClock()
        self.counters = WalCounters(waits=Waits(self.clock, 1_000))
        self.groups = QueuedGroups(WalSettings(**settings), self.clock, self.counters)

    def noted(self) -> list[tuple[WaitCause, int, str]]:
        return noted(self.counters.waits)


def test_a_thread_that_comes_late_for_a_group_is_noted() -> None:
    queue = Queue()
    queue.groups.put(ticket())
    queue.clock.advance(3_000)
    queue.groups.take()
    assert queue.noted() == [(WaitCause.LOG_THREAD, 3_000, "1 tickets")]


def test_a_thread_is_not_late_while_it_commits_another_group() -> None:
    queue = Queue()
    queue.groups.put(ticket())
    queue.groups.take()
    queue.groups.put(ticket())
    queue.clock.advance(50_000)
    queue.groups.committed(1)
    queue.groups.take()
    assert queue.noted() == []


def test_a_group_that_waits_for_company_is_noted_and_is_not_a_late_thread() -> None:
    queue = Queue()
    window = queue.groups.window
    window.observe(2, 4_000)
    window.returns.return_us = 100
    queue.groups.put(ticket())
    rig = Rig()
    assert len(queue.groups.next(rig.committer)) == 1
    assert queue.noted() == [(WaitCause.COMPANY, 4_000, "1 tickets")]


def test_tickets_that_a_full_group_leaves_behind_are_noted_when_they_are_taken() -> None:
    queue = Queue(group_frames_max=2)
    for _ in range(3):
        queue.groups.put(ticket())
    queue.groups.take()
    queue.clock.advance(9_000)
    queue.groups.committed(2)
    queue.groups.take()
    assert queue.noted() == [(WaitCause.QUEUE, 9_000, "1 tickets")]


class SlowDisk(FakeDisk):
    """Directories take 5 ms to sync, and new files 20 ms to make."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__([WAL])
        self._clock = clock

    def sync_directory(self, path: PurePath) -> None:
        self._clock.advance(5_000)
        super().sync_directory(path)

    def open(self, path: PurePath, mode: OpenMode) -> FakeFile:
        if mode is OpenMode.CREATE and path.name == PREPARED_NAME:
            self._clock.advance(20_000)
        return super().open(path, mode)


def new_file_log(clock: ManualClock) -> tuple[FrameLog, Waits]:
    waits = Waits(clock, 1_000)
    counters = WalCounters(waits=waits)
    log = FrameLog(SlowDisk(clock), WAL, SETTINGS, clock, POSITION, counters)
    return log, waits


def causes(waits: Waits) -> list[WaitCause]:
    return [WaitCause(each.cause) for each in waits.since()]


def test_a_new_file_that_has_to_be_filled_with_zeros_first_is_noted_in_all_its_parts() -> None:
    log, waits = new_file_log(ManualClock())
    log.open()
    assert causes(waits) == [WaitCause.ZEROING, WaitCause.DIRECTORY, WaitCause.NEW_FILE]
    zeroing, directory, whole = waits.since()
    assert (zeroing.duration_us, directory.duration_us) == (20_000, 5_000)
    assert whole.duration_us == 20_000 + 5_000 + 5_000, "CURRENT is replaced, too"
    assert whole.detail == "wal-0000000000000001.log"


def test_a_new_file_that_was_made_ahead_costs_no_zeroing() -> None:
    log, waits = new_file_log(ManualClock())
    log.make_room()
    log.open()
    assert causes(waits) == [WaitCause.DIRECTORY, WaitCause.NEW_FILE]


# -- the compiled writer


def compiled_shard(directory: Path, least_us: int = 1) -> tuple[Shard, Waits]:
    clock = SystemClock()
    waits = Waits(clock, least_us)
    counters = WalCounters(waits=waits)
    log = FrameLog(PosixDisk(), directory, SETTINGS, clock, POSITION, counters)
    log.open()
    shard = Shard("slow", log, ByClass(500), SETTINGS, clock, resolve_quietly, counters)
    assert isinstance(shard._groups, CompiledGroups)
    return shard, waits


@is_compiled
def test_the_compiled_writer_notes_a_late_thread_a_full_group_the_write_and_the_sync(
    tmp_path: Path,
) -> None:
    shard, waits = compiled_shard(tmp_path)
    tickets = [ticket() for _ in range(3)]
    for each in tickets:
        shard.submit(each)
    shard.start()
    for each in tickets:
        each.wait()
    shard.close()
    found = waits.since()
    assert {WaitCause(each.cause) for each in found} >= {
        WaitCause.LOG_THREAD,
        WaitCause.QUEUE,
        WaitCause.WRITE,
        WaitCause.SYNC,
    }
    details = {(WaitCause(each.cause), each.detail) for each in found}
    assert {(WaitCause.SYNC, "2 writers"), (WaitCause.SYNC, "1 writers")} <= details
    syncs_us = [each.duration_us for each in found if each.cause == WaitCause.SYNC.value]
    assert sum(syncs_us) == shard.counters.sync_us_total


@is_compiled
def test_the_compiled_writer_notes_a_group_that_waits_for_company(tmp_path: Path) -> None:
    shard, waits = compiled_shard(tmp_path)
    shard.window.observe(2, 5_000)
    shard.window.returns.return_us = 100
    alone = ticket()
    shard.submit(alone)
    shard.start()
    alone.wait()
    shard.close()
    (company,) = [each for each in waits.since() if WaitCause(each.cause) is WaitCause.COMPANY]
    assert company.duration_us >= 5_000


@is_compiled
def test_the_compiled_writer_notes_nothing_below_the_threshold(tmp_path: Path) -> None:
    shard, waits = compiled_shard(tmp_path, least_us=3_600_000_000)
    shard.start()
    one = ticket()
    shard.submit(one)
    one.wait()
    shard.close()
    assert waits.since() == []


@is_compiled
def test_a_loop_that_comes_late_for_answers_is_noted(tmp_path: Path) -> None:
    shard, waits = compiled_shard(tmp_path)

    async def life() -> None:
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        shard.deliver_to(
            LoopOwner(loop, SystemClock(), Waits(SystemClock(), 0)), lambda _: answered.set()
        )
        await asyncio.sleep(0)
        shard.submit(ticket())
        shard.start()
        await asyncio.wait_for(answered.wait(), 10)

    asyncio.run(life())
    shard.close()
    assert WaitCause.ANSWERS in causes(waits)
