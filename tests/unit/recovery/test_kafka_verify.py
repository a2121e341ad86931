"""Verify finds every fault planted in Kafka's files, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import msgspec
import pytest

from headwater.core.errors import StorageError
from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import encode_checkpoint
from headwater.format.kafka.entry import Entries, find_runs, read_entries
from headwater.format.kafka.names import SPARE_NAME, index_name
from headwater.recovery.kafka.repair import recover_kafka
from headwater.recovery.kafka.verify import check_kafka_segment, join_kafka, plan_kafka
from headwater.recovery.kafka.view import KafkaView
from headwater.store.verify import FaultKind, VerifyFault
from headwater.testing import FakeDisk
from headwater.testing.trace import Image
from tests.crash.kafka_story import settled
from tests.crash.matrix import tried
from tests.rig.kafka import KAFKA, SMALL_KAFKA, KafkaLife, batch_of
from tests.rig.planted_faults import faulty, unfound

EVERY = {"log": 13, "oidx": 11, "checkpoint": 5, "copy": 5}


def faults_of(disk: FakeDisk) -> list[VerifyFault]:
    plan = plan_kafka(disk, KAFKA)
    return join_kafka(plan, [check_kafka_segment(disk, each) for each in plan.segments])


def lived() -> KafkaLife:
    """Several segments, one rewritten, one gone, topics dropped and made again, a group."""
    life = KafkaLife(settings=replace(SMALL_KAFKA, cache_bytes=0))
    life.create("orders", 2)
    life.create("clicks")
    for number in range(24):
        life.append("orders", batch_of(f"o{number}", f"p{number}"), number % 2)
        life.append("clicks", batch_of(f"c{number}"))
    life.do(lambda: life.store.log_membership(settled("readers", 1, "m1", "m2")))
    life.do(lambda: life.partition("orders").delete_records(10))
    life.do(lambda: life.partition("orders", 1).delete_records(10))
    life.store.housekeep()
    clicks = life.store.topic(1, "clicks")
    assert clicks is not None
    life.do(clicks.drop)
    life.create("clicks")
    life.append("clicks", batch_of("again", "and again"))
    life.do(lambda: life.store.log_membership(settled("readers", 2, "m2")))
    return life


@cache
def image(cleanly: bool) -> Image:
    life = lived()
    assert isinstance(life.disk, FakeDisk)
    if cleanly:
        life.close()
    return life.disk.snapshot()


def test_a_sound_log_has_no_findings_stopped_killed_or_empty() -> None:
    for cleanly in (True, False):
        disk = FakeDisk(image=image(cleanly))
        assert faults_of(disk) == []
        plan = plan_kafka(disk, KAFKA)
        checks = [check_kafka_segment(disk, each) for each in plan.segments]
        assert len(checks) > 2
        assert sum(check.batches for check in checks) > 15
        assert any(s.meta.log_number != s.meta.number for s in plan.segments), "none rewritten"
    assert faults_of(FakeDisk(["/data"])) == []


def test_dead_batches_before_a_segment_that_is_gone_are_no_finding() -> None:
    """They are in a segment that other topics keep, and cannot be counted any more."""
    life = KafkaLife(settings=replace(SMALL_KAFKA, cache_bytes=0, rewrite_dead_ratio=1.0))
    life.create("orders")
    life.create("clicks")
    for number in range(10):
        life.append("orders", batch_of(f"o{number}"))
        life.append("clicks", batch_of(f"c{number}"))
    for number in range(10, 80):
        life.append("clicks", batch_of(f"c{number}"))
    life.do(lambda: life.partition("clicks").delete_records(78))
    life.store.housekeep()
    assert life.store.counters.segments_deleted > 0
    life.append("clicks", batch_of("c80"))
    life.close()
    assert isinstance(life.disk, FakeDisk)
    assert faults_of(life.disk) == []


@pytest.mark.parametrize("cleanly", [True, False])
def test_every_planted_fault_of_kafkas_files_is_found(cleanly: bool) -> None:
    there = [path for path in FakeDisk(image=image(cleanly)).files() if path.parent == KAFKA]
    files = [path for path in there if path.name != SPARE_NAME]
    assert {path.suffix for path in files} == {".log", ".oidx", "", ".copy"}
    disk = FakeDisk(image=image(cleanly))
    empty = {path.name for path in files if not disk.files()[path]}
    for name, what, found in unfound(image(cleanly), faults_of, files, EVERY):
        tried("a fault in kafka/")
        if not found and name in empty:
            continue  # the index that a rewrite gave its log says nothing
        if not found and not cleanly and what.startswith(("cut to", "bytes")):
            continue  # room made ahead, which nobody promised
        assert found, f"{name}, {what}: not found"


@pytest.mark.parametrize("cleanly", [True, False])
def test_what_a_start_refuses_is_told_as_bad(cleanly: bool) -> None:
    source = FakeDisk(image=image(cleanly)).files()
    refused = 0
    for path in [path for path in source if path.parent == KAFKA]:
        content = source[path]
        third = len(content) // 3
        flipped = content[:third] + b"\xa5" + content[third + 1 :]
        for planted in (flipped, content[:third], None):
            if is_refused(faulty(image(cleanly), path, planted)):
                refused += 1
                found = faults_of(faulty(image(cleanly), path, planted))
                assert any(fault.bad for fault in found), f"{path}, {planted is None}"
    assert refused > 5


def is_refused(disk: FakeDisk) -> bool:
    try:
        recover_kafka(disk, KAFKA)
    except StorageError:
        return True
    return False


@pytest.mark.parametrize("gone", [("1.oidx",), ("1.log",), ("1.log", "1.oidx"), ("2.oidx",)])
def test_a_missing_segment_that_the_checkpoint_does_not_know_is_noticed(
    gone: tuple[str, ...],
) -> None:
    life = KafkaLife(settings=replace(SMALL_KAFKA, cache_bytes=0))
    life.create("orders")
    life.store.checkpoint()
    for number in range(40):
        life.append("orders", batch_of(f"{number}" + "." * 40))
    assert isinstance(life.disk, FakeDisk)
    disk = life.disk.after_kill()
    assert not [fault for fault in faults_of(disk) if fault.bad]
    for name in gone:
        disk.unlink(KAFKA / name)
    found = faults_of(disk)
    assert any(fault.bad and "missing" in fault.what for fault in found), found
    with pytest.raises(StorageError, match="missing"):
        recover_kafka(disk, KAFKA)
    with pytest.raises(StorageError, match="missing"):
        KafkaView(disk, KAFKA)


def test_a_fault_is_told_with_its_file_and_offset() -> None:
    source = FakeDisk(image=image(True)).files()
    plan = plan_kafka(FakeDisk(image=image(True)), KAFKA)
    log = KAFKA / f"{plan.segments[-1].meta.log_number}.log"
    content = bytearray(source[log])
    content[80] ^= 1
    [fault] = faults_of(faulty(image(True), log, bytes(content)))
    assert (fault.path, fault.offset, fault.bad) == (log, 0, True)
    assert "CRC32C" in fault.what


def forged(change: Callable[[Entries], None]) -> list[VerifyFault]:
    """An index that is not what was meant, with a checkpoint that vouches for it."""
    disk = FakeDisk(image=image(True))
    plan = plan_kafka(disk, KAFKA)
    assert plan.checkpoint is not None
    metas = list(plan.checkpoint.segments)
    meta = metas[1]
    path = KAFKA / index_name(meta.number)
    entries = read_entries(disk.files()[path], meta.entries).copy()
    change(entries)
    content = entries.tobytes()
    disk.write_file(path, content)
    metas[1] = msgspec.structs.replace(meta, checksum=checksum64(content))
    checkpoint = msgspec.structs.replace(plan.checkpoint, segments=tuple(metas))
    disk.write_file(KAFKA / "checkpoint", encode_checkpoint(checkpoint))
    return faults_of(disk)


def test_an_entry_of_the_neighbouring_batch_is_found_by_the_number_of_records() -> None:
    def change(entries: Entries) -> None:
        border = int(find_runs(entries).starts[1])
        entries[border] = entries[border - 1]

    found = forged(change)
    assert any("entries for" in fault.what and fault.bad for fault in found)


def test_entries_of_two_batches_exchanged_are_found_by_their_places() -> None:
    def change(entries: Entries) -> None:
        runs = find_runs(entries)
        sizes = list(zip(runs.counts.tolist(), runs.entries["length"].tolist(), strict=True))
        first, second = [at for at, size in enumerate(sizes) if size == sizes[1]][:2]
        a, b = int(runs.starts[first]), int(runs.starts[second])
        count = int(runs.counts[first])
        kept = entries[a : a + count].copy()
        entries[a : a + count] = entries[b : b + count]
        entries[b : b + count] = kept

    found = forged(change)
    assert [fault.kind for fault in found if fault.bad] == [FaultKind.INDEX] * len(found)
    assert any("do not follow" in fault.what for fault in found)


def test_a_log_that_waits_for_its_first_batch_has_no_findings() -> None:
    """Every server that listens for Kafka clients has one, most of them for ever."""
    life = KafkaLife()
    assert isinstance(life.disk, FakeDisk)
    assert {path.name for path in life.disk.files()} >= {"0.log", "0.oidx", "checkpoint"}
    assert faults_of(life.disk) == []


def test_batches_that_no_index_leads_to_are_told() -> None:
    life = KafkaLife()
    assert isinstance(life.disk, FakeDisk)
    life.disk.write_file(KAFKA / "0.log", b"not nothing")
    assert [fault.path.name for fault in faults_of(life.disk)] == ["0.oidx", "0.log"]
