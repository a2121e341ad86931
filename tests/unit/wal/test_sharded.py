"""All shards together: routing, layout, another count at every start, the switch interval."""

from __future__ import annotations

import sys
import threading
from pathlib import Path, PurePath, PurePosixPath

import pytest
import xxhash

from headwater.config.engine import EngineSettings
from headwater.config.wal import WalSettings
from headwater.core.clock import SystemClock
from headwater.core.durability import Durability
from headwater.core.errors import AccessError, ClosedError, DirectoryInUseError, PoisonedError
from headwater.disk import PosixDisk
from headwater.format.frame import FrameType, encode_frame
from headwater.recovery.topics.repair import OpenWal, open_wal
from headwater.recovery.topics.report import inspect_wal
from headwater.testing import FakeDisk, Fault, FaultDisk, Verb
from headwater.wal.committer import LogState
from headwater.wal.shard import SwitchInterval
from headwater.wal.sharded import shard_directory, shard_of
from headwater.wal.ticket import Ticket

DATA = PurePosixPath("/data")
TOPICS = range(1, 13)


def settings(shards: int = 1, file_bytes: int = 4096) -> WalSettings:
    return WalSettings(
        shards=shards, file_bytes=file_bytes, reserve_bytes=256, zero_chunk_bytes=4096
    )


def open_log(disk: FakeDisk | FaultDisk, shards: int) -> OpenWal:
    return open_wal(disk, DATA, settings(shards), SystemClock())


def append(log: OpenWal, topic: int, seq: int, durability: Durability = Durability.FSYNC) -> None:
    body = encode_frame(FrameType.APPEND, topic, seq=seq, data=f"{topic}/{seq}".encode())
    ticket = Ticket(body, 1, durability)
    log.wal.submit(topic, ticket)
    assert ticket.wait(10)


def replayed(log: OpenWal) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {topic: [] for topic in TOPICS}
    for group in log.replay():
        for frame in group.frames():
            assert frame.data == f"{frame.topic_id}/{frame.seq}".encode()
            found[frame.topic_id].append(frame.seq)
    return found


@pytest.mark.claims(153, 154)
def test_a_topic_belongs_to_the_shard_its_id_hashes_to() -> None:
    for topic in (0, 1, 2, 77, 2**64 - 1):
        for shards in (1, 2, 3, 8):
            digest = xxhash.xxh3_64_intdigest(topic.to_bytes(8, "little"), seed=0)
            assert shard_of(topic, shards) == digest % shards
    assert [shard_of(topic, 4) for topic in range(1, 9)] == [
        shard_of(topic, 4) for topic in range(1, 9)
    ]
    assert {shard_of(topic, 4) for topic in range(100)} == {0, 1, 2, 3}


@pytest.mark.claims(150)
def test_there_is_one_shard_unless_more_are_asked_for() -> None:
    """The document's default, one per core, was measured and is slower: see docs/decisions."""
    assert EngineSettings().wal.shards == WalSettings().shards == 1


@pytest.mark.claims(156, 157)
def test_one_shard_lies_flat_and_several_in_numbered_directories() -> None:
    wal = PurePosixPath("/data/wal")
    assert shard_directory(wal, 0, 1) == wal
    assert shard_directory(wal, 2, 3) == wal / "shard-02"
    disk = FakeDisk([DATA])
    log = open_log(disk, 1)
    log.start()
    log.close()
    assert "wal-0000000000000001.log" in disk.list_directory(wal)
    many = FakeDisk([DATA])
    log = open_log(many, 3)
    log.start()
    log.close()
    assert many.list_directory(wal) == ["shard-00", "shard-01", "shard-02"]


@pytest.mark.claims(147, 151, 153, 155, 158)
def test_the_count_may_change_at_every_start_and_each_topic_keeps_its_order() -> None:
    disk = FakeDisk([DATA])
    runs = []
    seqs = dict.fromkeys(TOPICS, 0)
    for round_number, shards in enumerate((1, 3, 2, 1, 5, 1)):
        log = open_log(disk, shards)
        assert replayed(log) == {topic: list(range(1, seqs[topic] + 1)) for topic in TOPICS}
        runs.append(log.recovered.run)
        log.start()
        for topic in TOPICS:
            for _ in range(1 + (topic + round_number) % 3):
                seqs[topic] += 1
                append(log, topic, seqs[topic], Durability.FSYNC if topic % 2 else Durability.DISK)
        log.close()
    final = open_log(disk, 2)
    assert replayed(final) == {topic: list(range(1, seqs[topic] + 1)) for topic in TOPICS}
    assert runs == sorted(set(runs)), "runs grow"
    final.close()


@pytest.mark.claims(151)
def test_one_poisoned_shard_leaves_the_others_writing() -> None:
    fake = FakeDisk([DATA])
    disk = FaultDisk(fake)
    log = open_log(disk, 2)
    log.start()
    sick, well = (next(t for t in TOPICS if shard_of(t, 2) == shard) for shard in (0, 1))
    disk.add(Fault(Verb.SYNC_DATA, path="/data/wal/shard-00/*"))
    with pytest.raises(PoisonedError):
        append(log, sick, 1)
    append(log, well, 1)
    assert log.wal.state is LogState.POISONED
    assert log.wal.shards[1].state is LogState.WRITABLE
    assert log.wal.poison is not None
    log.close()


def test_a_log_that_was_never_started_closes_and_can_be_opened_again() -> None:
    disk = FakeDisk([DATA])
    before = sys.getswitchinterval()
    log = open_log(disk, 2)
    log.close()
    log.close()
    assert sys.getswitchinterval() == before
    open_log(disk, 2).close()


def test_a_directory_in_use_is_refused_until_its_holder_closes() -> None:
    disk = FakeDisk([DATA])
    first = open_log(disk, 1)
    with pytest.raises(DirectoryInUseError, match="in use"):
        open_log(disk, 1)
    first.close()
    open_log(disk, 1).close()


@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.ALLOCATE, Verb.RENAME])
def test_a_disk_that_fails_at_start_is_one_clear_error_and_nothing_stays_locked(
    verb: Verb,
) -> None:
    disk = FaultDisk(FakeDisk([DATA]), [Fault(verb)])
    log = open_log(disk, 1)
    with pytest.raises(AccessError, match="input/output error"):
        log.start()
    log.close()
    disk.clear()
    again = open_log(disk, 1)
    again.start()
    append(again, 1, 1)
    again.close()


def test_the_switch_interval_is_lowered_while_a_log_is_open_and_then_restored() -> None:
    before = sys.getswitchinterval()
    one, two = open_log(FakeDisk([DATA]), 1), open_log(FakeDisk([DATA]), 1)
    one.start()
    assert sys.getswitchinterval() == pytest.approx(200e-6)
    two.start()
    one.close()
    assert sys.getswitchinterval() == pytest.approx(200e-6), "another log still wants it"
    two.close()
    assert sys.getswitchinterval() == before


def test_the_smallest_interval_anybody_asks_for_wins() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)  # another log may be open in this process
    interval = SwitchInterval()
    interval.lower(900)
    interval.lower(100)
    assert sys.getswitchinterval() == pytest.approx(100e-6)
    interval.restore(100)
    assert sys.getswitchinterval() == pytest.approx(900e-6)
    interval.lower(10**9)
    assert sys.getswitchinterval() == pytest.approx(900e-6), "never above what it was"
    interval.restore(10**9)
    interval.restore(900)
    assert sys.getswitchinterval() == pytest.approx(0.005)
    sys.setswitchinterval(before)


@pytest.mark.claims(117, 155, 164, 202)
def test_many_threads_on_the_real_disk_find_everything_again(tmp_path: Path) -> None:
    directory = PurePath(tmp_path)
    log = open_wal(PosixDisk(), directory, settings(3), SystemClock())
    log.start()

    def write(topic: int) -> None:
        for seq in range(1, 61):
            append(log, topic, seq)

    writers = [threading.Thread(target=write, args=(topic,)) for topic in TOPICS]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert sum(shard.counters.rotations for shard in log.wal.shards) > 3
    log.close()
    with pytest.raises(ClosedError):
        append(log, 1, 61)
    again = open_wal(PosixDisk(), directory, settings(2), SystemClock())
    assert replayed(again) == {topic: list(range(1, 61)) for topic in TOPICS}
    again.close()
    report = inspect_wal(PosixDisk(), directory / "wal", deep=True)
    assert not report.findings, [finding.line() for finding in report.findings]
    assert all(shard.files[-1].clean_stop for shard in report.shards)
