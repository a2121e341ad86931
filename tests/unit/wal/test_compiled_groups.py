"""The compiled writer and its twin, given the same tickets and failures, leave the same files and
give the same answers. And answers reach a loop in the order of the log."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headwater.config.wal import WalSettings
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import (
    ClosedError,
    HeadwaterError,
    OverloadedError,
    PoisonedError,
)
from headwater.disk import PosixDisk, plain_descriptor
from headwater.engine.owner import LoopOwner
from headwater.format.mark import MARK_BYTES, decode_mark
from headwater.observe.waits import Waits
from headwater.wal.compiled_groups import CompiledGroups
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import LogPosition
from headwater.wal.frame_log import FrameLog
from headwater.wal.policy import ByClass
from headwater.wal.queue import QueuedGroups
from headwater.wal.shard import Shard
from headwater.wal.ticket import Listener, Ticket, resolve_quietly
from tests.unit.native.twins import is_compiled
from tests.unit.wal.group_logs import DISK, FSYNC

pytestmark = is_compiled

FOR_EVER_US = 3_600_000_000
SETTINGS = WalSettings(
    file_bytes=16 * 1024,
    reserve_bytes=1024,
    zero_chunk_bytes=4096,
    disk_sync_interval_us=FOR_EVER_US,
    idle_mark_after_us=FOR_EVER_US,
    full_retry_interval_us=0,
    group_bytes_max=6_000,
    group_frames_max=40,
    queue_submissions_max=50,
)
POSITION = LogPosition(next_frame=1, chain=0, log_id=77, run=3, oldest=None, open_file=None)


@dataclass(frozen=True)
class Group:
    """Tickets that wait when the writer comes for them."""

    sizes: tuple[int, ...]
    disk: tuple[int, ...] = ()
    """Which of them are of the disk class."""
    essential: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fault:
    """From here on the active file is something else."""

    path: str | None
    """None: the file itself again."""


FULL, UNSYNCABLE, UNWRITABLE = Fault("/dev/full"), Fault("/dev/null"), Fault("/dev/zero")
SOUND = Fault(None)
"""/dev/null takes every byte and cannot be synced; what stands for an unwritable file is open for
reading only."""

SCHEDULES: dict[str, list[Group | Fault]] = {
    "one at a time": [Group((n,)) for n in (0, 1, 200, 3_000)],
    "many at once": [Group((200,) * n) for n in (1, 2, 20, 7, 30)],
    "over the limits of a group": [Group((3_000, 3_000, 1, 5_999, 6_001, 2)), Group((1,) * 50)],
    "over files": [*(Group((900, 900)) for _ in range(30)), Group((20_000, 5))],
    "classes in one group": [
        Group((100, 100, 100), disk=(1,)),
        Group((10, 10), disk=(0, 1)),
        Group((50, 50)),
        Group((7,), disk=(0,), essential=(0,)),
    ],
    "a disk that is full and then not": [
        Group((10, 20)),
        FULL,
        Group((30, 40)),
        Group((50, 60), essential=(1,)),
        SOUND,
        Group((70,)),
        Group((80, 90)),
    ],
    "a sync that fails": [Group((10,)), UNSYNCABLE, Group((20, 30)), SOUND, Group((40,))],
    "a sync that fails behind answers": [
        Group((10,)),
        UNSYNCABLE,
        Group((20, 30, 40), disk=(1,)),
        SOUND,
        Group((40,), essential=(0,)),
    ],
    "a write that fails": [Group((10,)), UNWRITABLE, Group((20, 30)), SOUND, Group((40,))],
}


class MarkTimes(SystemClock):
    """Each mark is written at the time that another log's mark has. Not the system's clock, so
    the shard that has it is the twin."""

    def __init__(self, times: dict[int, int]) -> None:
        self._times = times
        self.log: FrameLog | None = None

    def wall_ms(self) -> int:
        assert self.log is not None
        return self._times.get(self.log.next_frame, 0)


class Life:
    """One shard in a directory of its own, and what became of every ticket."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        directory.mkdir()
        self.directory = directory
        counters = WalCounters()
        self.log = FrameLog(PosixDisk(), directory, SETTINGS, clock, POSITION, counters)
        if isinstance(clock, MarkTimes):
            clock.log = self.log
        self.log.open()
        self.answered: list[bytes] = []
        self.shard = Shard(
            "life",
            self.log,
            ByClass(SETTINGS.disk_sync_interval_us),
            SETTINGS,
            clock,
            lambda tickets: self.answered.extend(each.body for each in tickets),
            counters,
        )
        self.outcomes: list[object] = []
        self._sound: int | None = None

    def run(self, schedule: Sequence[Group | Fault]) -> None:
        self.shard.start()
        for number, step in enumerate(schedule):
            if isinstance(step, Fault):
                self._replace_file(step)
            else:
                self._commit(step, number)
        self.outcomes.append((self.shard.state, self.shard.synced_frame, self.log.next_frame))
        counters = self.shard.counters
        self.outcomes.append(
            (counters.groups, counters.submissions, counters.frames, counters.bytes_written)
        )
        self.outcomes.append((counters.syncs, counters.rotations, sum(counters.sync_us_buckets)))
        self.outcomes.append((counters.queue_depth_peak, counters.submit_full, counters.read_only))
        self.shard.close()

    def _commit(self, group: Group, number: int) -> None:
        tickets = [
            Ticket(
                bytes([65 + (number + at) % 26]) * size,
                1 + at % 3,
                DISK if at in group.disk else FSYNC,
                essential=at in group.essential,
            )
            for at, size in enumerate(group.sizes)
        ]
        arrived, let_go = threading.Event(), threading.Event()

        def stand_still() -> None:
            arrived.set()
            assert let_go.wait(10)

        held = self.shard.call(stand_still)
        assert arrived.wait(10)
        submitted = []
        for ticket in tickets:
            try:
                self.shard.submit(ticket)
                submitted.append(ticket)
            except (PoisonedError, OverloadedError) as error:
                self.outcomes.append((type(error), str(error).replace(str(self.directory), "")))
        let_go.set()
        held.result(10)
        for ticket in submitted:
            try:
                self.outcomes.append((ticket.wait(10), ticket.last_frame))
            except HeadwaterError as error:
                said = str(error).replace(str(self.directory), "")
                self.outcomes.append((type(error), type(error.__cause__), said))
        self.shard.call(lambda: None).result(10)  # the group is through, and what it called
        self.outcomes.append(list(self.answered))
        self.answered.clear()

    def _replace_file(self, fault: Fault) -> None:
        """Between two groups: the writer stands still."""

        def replace_it() -> None:
            descriptor = plain_descriptor(self.log._file)
            assert descriptor is not None
            if self._sound is None:
                self._sound = os.dup(descriptor)
            if fault.path is None:
                os.dup2(self._sound, descriptor)
                os.close(self._sound)
                self._sound = None
                return
            flags = os.O_RDONLY if fault is UNWRITABLE else os.O_WRONLY
            other = os.open(fault.path, flags)
            os.dup2(other, descriptor)
            os.close(other)

        self.shard.call(replace_it).result(10)

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.directory.iterdir())}

    def mark_times(self) -> dict[int, int]:
        times: dict[int, int] = {}
        for name, contents in self.files().items():
            if not name.endswith(".log"):
                continue
            view, at = memoryview(contents), 0
            while at + MARK_BYTES <= len(view) and view[at]:
                mark = decode_mark(view, at, len(view))
                times[mark.frame] = int.from_bytes(view[at + 22 : at + 30], "little")
                at = mark.end
        return times


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_same_schedule_gives_the_same_files_and_the_same_answers(
    name: str, tmp_path: Path
) -> None:
    fast = Life(tmp_path / "compiled", SystemClock())
    fast.run(SCHEDULES[name])
    twin = Life(tmp_path / "twin", MarkTimes(fast.mark_times()))
    assert isinstance(fast.shard._groups, CompiledGroups)
    assert isinstance(twin.shard._groups, QueuedGroups)
    twin.run(SCHEDULES[name])
    assert fast.outcomes == twin.outcomes
    assert fast.files() == twin.files()


def test_a_common_group_needs_no_python(tmp_path: Path) -> None:
    """What the test above compares is really written by compiled code."""
    life = Life(tmp_path / "data", SystemClock())
    life.log.write_group = None  # type: ignore[assignment,method-assign]
    life.run([Group((200, 300)), Group((1,))])
    assert life.shard.counters.groups == 2


def test_a_write_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    """A second try could succeed and hide that the first left bytes nobody knows."""
    life = Life(tmp_path / "data", SystemClock())
    life.log.write_group = None  # type: ignore[assignment,method-assign]
    life.run([Group((10,)), UNWRITABLE, Group((20,)), SOUND])
    poison = life.shard.poison
    assert poison is not None
    assert isinstance(poison.__cause__, OSError)
    assert poison.__cause__.errno == errno.EBADF


def test_a_listener_that_raises_poisons_the_shard_though_compiled_code_committed(
    tmp_path: Path,
) -> None:
    def broken(tickets: Sequence[Ticket]) -> None:
        raise RuntimeError("a bug in the listener")

    directory = tmp_path / "data"
    directory.mkdir()
    clock, counters = SystemClock(), WalCounters()
    log = FrameLog(PosixDisk(), directory, SETTINGS, clock, POSITION, counters)
    log.open()
    shard = Shard("broken", log, ByClass(500), SETTINGS, clock, broken, counters)
    shard.start()
    one = Ticket(b"one", 1, FSYNC)
    shard.submit(one)
    assert one.wait(10), "its group was synced"
    shard.call(lambda: None).result(10)
    with pytest.raises(PoisonedError, match="a bug in the listener"):
        shard.submit(Ticket(b"two", 1, FSYNC))
    shard.close()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def looped(
    directory: Path, loop: asyncio.AbstractEventLoop, take_effect: Listener
) -> tuple[Shard, Callable[[], None]]:
    """A shard whose answers a loop takes, and a call that returns once it does."""
    directory.mkdir()
    clock, counters = SystemClock(), WalCounters()
    settings = replace(SETTINGS, queue_submissions_max=5_000, file_bytes=1024 * 1024)
    log = FrameLog(PosixDisk(), directory, settings, clock, POSITION, counters)
    log.open()
    owner = LoopOwner(loop, clock, Waits(clock, 0))
    shard = Shard(
        "looped",
        log,
        ByClass(1_000),
        settings,
        clock,
        lambda tickets: owner.post(lambda: take_effect(tickets)),
        counters,
    )
    shard.start()
    shard.deliver_to(owner, take_effect)
    return shard, lambda: owner.call(lambda: None)


def test_a_loop_gets_every_answer_once_and_in_the_order_of_the_log(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    taken: list[Ticket] = []
    threads: set[threading.Thread] = set()

    def take_effect(tickets: Sequence[Ticket]) -> None:
        threads.add(threading.current_thread())
        assert all(each.resolved for each in tickets)
        taken.extend(tickets)

    shard, begun = looped(tmp_path / "data", loop, take_effect)
    begun()
    # The disk class is answered by Python, the rest by compiled code.
    tickets = [Ticket(b"%d" % n, 1, DISK if n % 7 == 0 else FSYNC) for n in range(2_000)]
    for number, ticket in enumerate(tickets):
        shard.submit(ticket)
        if number % 50 == 0:
            assert ticket.wait(10)
    assert all(each.wait(10) for each in tickets)
    shard.close()
    begun()
    frames = [each.last_frame for each in taken]
    assert len(taken) == len(set(map(id, taken))) == 2_000
    held = [each.last_frame for each in taken if each.durability is FSYNC]
    assert held == sorted(held)
    assert len(set(frames)) == 2_000
    assert threading.current_thread() not in threads
    assert len(threads) == 1


def test_what_a_loop_has_not_collected_when_the_shard_closes_reaches_it_all_the_same(
    tmp_path: Path, loop: asyncio.AbstractEventLoop
) -> None:
    taken: list[Ticket] = []
    shard, begun = looped(tmp_path / "data", loop, taken.extend)
    begun()
    busy, let_go = threading.Event(), threading.Event()

    def be_elsewhere() -> None:
        busy.set()
        let_go.wait(10)

    loop.call_soon_threadsafe(be_elsewhere)
    assert busy.wait(10)
    tickets = [Ticket(b"late", 1, FSYNC) for _ in range(20)]
    for ticket in tickets:
        shard.submit(ticket)
    shard.close()  # serves them; the loop is elsewhere
    assert all(each.resolved for each in tickets)
    let_go.set()
    begun()
    assert taken == tickets
    with pytest.raises(ClosedError):
        shard.submit(Ticket(b"", 1, FSYNC))


def test_many_threads_that_wait_are_each_answered_once(tmp_path: Path) -> None:
    answered: list[Ticket] = []
    directory = tmp_path / "data"
    directory.mkdir()
    clock, counters = SystemClock(), WalCounters()
    log = FrameLog(
        PosixDisk(), directory, WalSettings(file_bytes=1 << 20), clock, POSITION, counters
    )
    log.open()
    shard = Shard("many", log, ByClass(500), WalSettings(), clock, answered.extend, counters)
    shard.start()

    def write(writer: int) -> None:
        for number in range(100):
            each = Ticket(b"%d:%d" % (writer, number), 1, DISK if number % 5 == 0 else FSYNC)
            shard.submit(each)
            assert each.wait(10)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(60)
    shard.close()
    assert sorted(each.body for each in answered) == sorted(
        b"%d:%d" % (writer, number) for writer in range(8) for number in range(100)
    )
    assert counters.submissions == 800


def test_an_idle_log_gets_its_mark_and_the_disk_class_its_sync(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    settings = WalSettings(file_bytes=1 << 20, idle_mark_after_us=2_000)
    clock, counters = SystemClock(), WalCounters()
    log = FrameLog(PosixDisk(), directory, settings, clock, POSITION, counters)
    log.open()
    shard = Shard("idle", log, ByClass(500), settings, clock, resolve_quietly, counters)
    shard.start()
    one = Ticket(b"one", 1, FSYNC)
    shard.submit(one)
    assert one.wait(10)
    until = time.monotonic() + 10
    while shard.call(lambda: log.next_frame).result(10) < 4:
        assert time.monotonic() < until
    two = Ticket(b"two", 1, DISK)
    shard.submit(two)
    assert two.wait(10)
    while shard.synced_frame < two.last_frame:
        assert time.monotonic() < until
    shard.close()
