"""One shard's files: marks, rotation, the file made ahead, release, and what CURRENT says when."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.core.units import MIB
from headwater.disk import OpenMode
from headwater.format.checksum import checksum64
from headwater.format.frame import FrameType, encode_frame
from headwater.format.log_state import Current, decode_current
from headwater.format.mark import MARK_BYTES, CommitMark, MarkKind, chain_of, decode_mark
from headwater.format.names import CURRENT_NAME, PREPARED_NAME, wal_file_name
from headwater.observe.waits import Waits
from headwater.testing import FakeDisk, FaultDisk, ManualClock, Verb
from headwater.wal.counters import WalCounters
from headwater.wal.dialect import LogPosition, OpenFile
from headwater.wal.file_room import PreparedFile, Preparer
from headwater.wal.frame_log import FrameLog
from headwater.wal.ticket import Ticket

WAL = PurePosixPath("/wal")
SETTINGS = WalSettings(file_bytes=1024, reserve_bytes=64, zero_chunk_bytes=300)
LOG_ID = 42


def body(*seqs: int, size: int = 10) -> bytes:
    frames = [encode_frame(FrameType.APPEND, 1, seq=seq, data=b"d" * size) for seq in seqs]
    return b"".join(frames)


def write(log: FrameLog, *seqs: int, size: int = 10) -> Ticket:
    ticket = Ticket(body(*seqs, size=size), len(seqs), Durability.FSYNC)
    log.write_group([ticket], essential=False)
    return ticket


class Rig:
    def __init__(
        self, settings: WalSettings = SETTINGS, position: LogPosition | None = None
    ) -> None:
        self.fake = FakeDisk([WAL])
        self.disk = FaultDisk(self.fake)
        self.counters = WalCounters()
        self.requested: list[PreparedFile] = []
        start = position or LogPosition(1, 0, LOG_ID, 3, oldest=None, open_file=None)
        self.log = FrameLog(
            self.disk,
            WAL,
            settings,
            ManualClock(wall_ms=1_234),
            start,
            self.counters,
            self.requested.append,
        )
        self.log.open()

    def current(self) -> Current:
        return decode_current(self.fake.files()[WAL / CURRENT_NAME])

    def names(self) -> list[str]:
        return [name for name in self.fake.list_directory(WAL) if name.startswith("wal-")]

    def marks(self, number: int) -> list[CommitMark]:
        raw = memoryview(self.fake.files()[WAL / wal_file_name(number)])
        found = []
        at = 0
        while at + MARK_BYTES <= len(raw) and any(raw[at : at + MARK_BYTES]):
            mark = decode_mark(raw, at, len(raw))
            found.append(mark)
            at = mark.end
        return found


@pytest.mark.claims(173, 174, 188)
def test_a_new_file_has_its_full_length_in_synced_zeros_before_its_first_use() -> None:
    assert WalSettings().file_bytes == 64 * MIB
    rig = Rig()
    assert rig.fake.files()[WAL / wal_file_name(1)] == bytes(1024)
    verbs = [call.verb for call in rig.disk.calls_of()]
    made = [Verb.CREATE, Verb.ALLOCATE, Verb.WRITE, Verb.WRITE, Verb.WRITE, Verb.WRITE]
    assert verbs[: len(made) + 2] == [*made, Verb.SYNC_DATA, Verb.RENAME]


@pytest.mark.claims(117, 147)
def test_a_group_is_its_mark_and_then_its_frames_in_one_write() -> None:
    rig = Rig()
    writes = len(rig.disk.calls_of(Verb.WRITE))
    tickets = [Ticket(body(1, 2), 2, Durability.FSYNC), Ticket(body(3), 1, Durability.FSYNC)]
    rig.log.write_group(tickets, essential=False)
    assert len(rig.disk.calls_of(Verb.WRITE)) == writes + 1
    raw = rig.fake.files()[WAL / wal_file_name(1)]
    mark = rig.marks(1)[0]
    assert mark == CommitMark(
        version=1,
        kind=MarkKind.GROUP,
        frame_count=3,
        body_bytes=len(body(1, 2, 3)),
        body_hash=checksum64(body(1, 2, 3)),
        run=3,
        log_id=LOG_ID,
        file_frame=1,
        file_bytes=1024,
        frame=1,
        offset=0,
        durable_offset=0,
        chain=0,
    )
    assert raw[mark.body_at : mark.end] == body(1, 2, 3)
    assert [ticket.last_frame for ticket in tickets] == [3, 4]
    assert rig.log.next_frame == 5


def test_marks_chain_and_witness_only_what_was_synced() -> None:
    rig = Rig()
    write(rig.log, 1)
    write(rig.log, 2)
    rig.log.sync()
    write(rig.log, 3)
    first, second, third = rig.marks(1)
    raw = rig.fake.files()[WAL / wal_file_name(1)]
    assert second.chain == chain_of(raw[:MARK_BYTES])
    assert third.chain == chain_of(raw[second.offset : second.body_at])
    assert (first.durable_offset, second.durable_offset) == (0, 0)
    assert third.durable_offset == third.offset == second.end
    assert [mark.frame for mark in (first, second, third)] == [1, 3, 5]


@pytest.mark.claims(172)
def test_a_sync_is_fdatasync_once_and_nothing_when_all_is_synced() -> None:
    rig = Rig()
    write(rig.log, 1)
    before = len(rig.disk.calls_of(Verb.SYNC_DATA))
    rig.log.sync()
    rig.log.sync()
    assert len(rig.disk.calls_of(Verb.SYNC_DATA)) == before + 1


@pytest.mark.claims(174, 189, 190, 191)
def test_a_group_that_does_not_fit_goes_to_a_new_file_named_by_its_first_frame() -> None:
    rig = Rig()
    seq = 0
    while len(rig.names()) == 1:
        seq += 1
        rig.disk.calls.clear()
        write(rig.log, seq)
    number = rig.log.active_number
    assert rig.names() == [wal_file_name(1), wal_file_name(number)]
    assert rig.marks(number)[0].frame == number == rig.marks(1)[-1].frame + 2
    assert rig.marks(number)[0].chain != 0, "the chain goes over the border"
    assert rig.current() == Current(number, 1024, 0, 1, LOG_ID)
    assert rig.counters.rotations == 1
    steps = [
        (call.verb, call.path.name)
        for call in rig.disk.calls_of()
        if call.verb is not Verb.ALLOCATE and "[" not in call.detail
    ]
    old_synced = steps.index((Verb.SYNC_DATA, PREPARED_NAME))
    named = steps.index((Verb.RENAME, wal_file_name(number)))
    assert old_synced < named
    assert steps[named + 1] == (Verb.SYNC_DIRECTORY, "wal")
    assert steps.index((Verb.RENAME, CURRENT_NAME)) > named + 1


@pytest.mark.claims(174)
def test_the_next_file_is_asked_for_when_half_of_this_one_is_used() -> None:
    rig = Rig()
    write(rig.log, 1)
    write(rig.log, 2)
    assert not rig.requested
    write(rig.log, 3)
    write(rig.log, 4)
    assert len(rig.requested) == 1, "once, not with every group"
    rig.requested[0].prepare()
    creations = len(rig.disk.calls_of(Verb.CREATE))
    zeros = rig.disk.calls_of(Verb.ALLOCATE)
    while len(rig.names()) == 1:
        write(rig.log, 9)
    assert rig.disk.calls_of(Verb.ALLOCATE) == zeros, "the rotation found it ready"
    assert len(rig.disk.calls_of(Verb.CREATE)) == creations + 1, "CURRENT's temporary only"


def test_a_group_larger_than_a_file_gets_a_file_of_its_own_size() -> None:
    rig = Rig()
    write(rig.log, 1)
    write(rig.log, 2, size=5_000)
    write(rig.log, 3)
    rig.log.sync()
    sizes = {path.name: len(data) for path, data in rig.fake.files().items()}
    large = MARK_BYTES + len(body(2, size=5_000))
    assert sizes[wal_file_name(3)] == large
    assert rig.marks(3)[0].file_bytes == large
    assert sizes[wal_file_name(5)] == 1024


def test_a_small_file_made_ahead_is_replaced_for_a_large_group() -> None:
    rig = Rig()
    for seq in (1, 2, 3, 4):
        write(rig.log, seq)
    rig.requested[0].prepare()
    write(rig.log, 5, size=3_000)
    assert rig.marks(rig.log.active_number)[0].file_bytes > 3_000
    assert PREPARED_NAME not in rig.fake.list_directory(WAL)


@pytest.mark.claims(192)
def test_files_are_released_by_frame_with_current_first_and_the_active_one_never() -> None:
    rig = Rig()
    for seq in range(1, 18):
        write(rig.log, seq)
    rig.log.sync()
    first, second, third, *_ = numbers = [int(name[4:20]) for name in rig.names()]
    assert len(numbers) >= 4
    assert rig.log.release_before(second - 1) == []
    assert rig.current().oldest == first
    rig.disk.calls.clear()
    assert rig.log.release_before(second) == [WAL / wal_file_name(first)]
    assert rig.current().oldest == second
    assert not rig.disk.calls_of(Verb.UNLINK), "deleting is the caller's, after CURRENT is durable"
    assert rig.disk.calls_of()[-1].verb is Verb.SYNC_DIRECTORY
    released = rig.log.release_before(10**9)
    assert WAL / wal_file_name(rig.log.active_number) not in released
    assert WAL / wal_file_name(third) in released
    assert rig.current().oldest == rig.log.active_number


def test_a_clean_stop_writes_a_mark_and_tells_current_how_far_it_is_synced() -> None:
    rig = Rig()
    write(rig.log, 1)
    rig.log.witness(clean_stop=False)
    assert rig.current().durable_offset == 0
    rig.log.witness(clean_stop=True)
    group, idle, stop = rig.marks(1)
    assert (idle.kind, stop.kind) == (MarkKind.IDLE, MarkKind.CLEAN_STOP)
    assert idle.durable_offset == group.end
    assert stop.durable_offset == idle.end
    assert rig.current().durable_offset == stop.end
    rig.log.close()
    assert rig.fake.list_directory(WAL) == [CURRENT_NAME, wal_file_name(1)]


def test_opening_goes_on_where_recovery_says_and_replaces_current() -> None:
    before = Rig()
    write(before.log, 1)
    before.log.sync()
    before.log.close()
    raw = before.fake.files()[WAL / wal_file_name(1)]
    end = before.marks(1)[0].end
    position = LogPosition(3, chain_of(raw[:MARK_BYTES]), LOG_ID, 4, 1, OpenFile(1, 1024, end))
    log = FrameLog(before.disk, WAL, SETTINGS, ManualClock(), position, WalCounters())
    log.open()
    assert before.current() == Current(1, 1024, end, 1, LOG_ID)
    write(log, 2)
    mark = before.marks(1)[1]
    assert (mark.run, mark.frame, mark.offset, mark.durable_offset) == (4, 3, end, end)


def test_a_file_that_was_taken_is_not_touched_by_making_the_next() -> None:
    """The preparer may come late, when the file it was asked for was made and taken meanwhile."""
    disk = FakeDisk([WAL])
    prepared = PreparedFile(disk, WAL, 512, 512)
    file, length = prepared.take(0, WAL / "wal-a.log")
    prepared.prepare()
    file.write(0, [b"promised"])
    file.sync_data()
    assert length == 512
    assert disk.files()[WAL / "wal-a.log"].startswith(b"promised")
    assert disk.files()[WAL / PREPARED_NAME] == bytes(512)
    prepared.discard()
    assert not disk.exists(WAL / PREPARED_NAME)


def test_a_leftover_of_an_earlier_process_is_never_taken_for_a_prepared_file() -> None:
    disk = FakeDisk([WAL])
    disk.write_file(WAL / PREPARED_NAME, b"half made, not zeros")
    prepared = PreparedFile(disk, WAL, 512, 512)
    assert not prepared.ready
    prepared.take(0, WAL / "wal-a.log")
    assert disk.files()[WAL / "wal-a.log"] == bytes(512)


def test_the_preparers_thread_makes_what_it_is_asked_for_and_survives_a_full_disk() -> None:
    disk = FakeDisk([WAL, WAL / "b"], capacity_bytes=700)
    one = PreparedFile(disk, WAL, 512, 512)
    two = PreparedFile(disk, WAL / "b", 512, 512)
    clock = ManualClock()
    preparer = Preparer(clock, Waits(clock, 0))
    preparer.start()
    clock.wait_for_waiters(1)
    for prepared in (one, two):
        parks = clock.park_count
        preparer.request(prepared)
        clock.wait_for_waiters(1, after_parks=parks)
    assert one.ready
    assert not two.ready
    assert disk.list_directory(WAL / "b") == [], "nothing half made is left"
    preparer.stop()


@pytest.mark.claims(175)
def test_files_are_opened_without_any_special_mode() -> None:
    assert [mode.name for mode in OpenMode] == ["READ", "UPDATE", "CREATE"]
