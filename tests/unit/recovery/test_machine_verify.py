"""Verify finds every fault planted in the files of machines, and none where there is none."""

from __future__ import annotations

from functools import cache, partial
from pathlib import PurePath

import msgspec
import pytest

from headwater.core.errors import HeadwaterError
from headwater.format.machines.entry import MAGIC_BYTES, decode_entry, encode_entry
from headwater.format.machines.snapshot import SnapshotIndex, decode_index, encode_index
from headwater.recovery.machines.segment import scan_machine_segment
from headwater.recovery.machines.survey import begin_survey
from headwater.recovery.machines.verify import machine_faults
from headwater.store.verify import VerifyFault
from headwater.testing import FakeDisk
from headwater.testing.trace import Image
from tests.crash.matrix import tried
from tests.rig.machines import ORDER, PLACE, SteppedStore, new_disk
from tests.rig.planted_faults import faulty, unfound

EVERY = {"wal": 11, "hist": 1, "snap": 7, "json": 7, "CURRENT": 3}
NEVER_READ = ("LOCK", "prepared.next")
ROUND = ("PAY", "SHIP", "CLOSE", "AGAIN")


def faults_of(disk: FakeDisk) -> list[VerifyFault]:
    plan = begin_survey(disk, PLACE)
    return machine_faults(plan, [scan_machine_segment(disk, each) for each in plan.segments])


@cache
def image(cleanly: bool, compacted: bool) -> Image:
    disk = new_disk()
    store = SteppedStore(disk)
    store.do(lambda: store.put_machine("order", 1, ORDER))
    for name in ("a", "b"):
        store.do(partial(store.create_instance, "order", 1, name, {"total": 5}))
        for event in ROUND * 2:
            store.do(partial(store.apply_event, name, event, {"by": "somebody"}))
    if compacted:
        store.compact()
        store.do(lambda: store.apply_event("a", "PAY"))
        store.compact()
    store.do(lambda: store.delete_instance("a"))
    store.do(lambda: store.create_instance("order", 1, "c", {"total": 5}))
    for event in ROUND:
        store.do(partial(store.apply_event, "b", event))
    if cleanly:
        store.close()
    else:
        store.tick()
    return disk.snapshot()


def files_of(source: Image) -> dict[PurePath, bytes]:
    files = FakeDisk(image=source).files()
    return {
        path: content
        for path, content in files.items()
        if path.is_relative_to(PLACE) and path.name not in NEVER_READ
    }


KINDS = [(True, True), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize(("cleanly", "compacted"), KINDS)
def test_sound_machines_have_no_findings(cleanly: bool, compacted: bool) -> None:
    disk = FakeDisk(image=image(cleanly, compacted))
    assert faults_of(disk) == []
    plan = begin_survey(disk, PLACE)
    assert len(plan.segments) > 1
    assert (plan.heading is not None) is compacted
    assert faults_of(FakeDisk(["/data"])) == []


@pytest.mark.parametrize(("cleanly", "compacted"), KINDS)
def test_every_planted_fault_of_machines_is_found(cleanly: bool, compacted: bool) -> None:
    source = image(cleanly, compacted)
    files = files_of(source)
    ends = {path.name: len(content.rstrip(b"\0")) for path, content in files.items()}
    last = max(path.name for path in files if path.suffix == ".wal")
    for name, what, found in unfound(source, faults_of, list(files), EVERY):
        tried("a fault in machines/")
        unused = what.startswith("cut to") and int(what.split()[-1]) >= ends[name]
        if not found and name.endswith(".wal") and (unused or not ends[name]):
            continue  # zeros made ahead
        if not found and what == "missing" and (name == "CURRENT" or not ends[name]):
            continue  # a start makes it again
        if not found and what == "missing" and name.endswith(".hist"):
            continue  # as if it had been dropped for its age
        ends_early = what.startswith("cut to") or what == "zeroed"
        if not found and not cleanly and ends_early and name == last:
            continue  # between two entries of the newest group, for which nobody vouches yet
        assert found, f"{name}, {what}: not found"


@pytest.mark.parametrize(("cleanly", "compacted"), KINDS)
def test_what_a_start_tells_of_or_refuses_is_bad(cleanly: bool, compacted: bool) -> None:
    source = image(cleanly, compacted)
    files = files_of(source)
    told = 0
    for path, content in files.items():
        third = len(content.rstrip(b"\0")) // 3
        flipped = content[:third] + b"\xa5" + content[third + 1 :]
        for planted in (flipped, content[:third], None):
            damaged = refused = False
            try:
                store = SteppedStore(faulty(source, path, planted))
                damaged = store.report.damaged_entries > 0
            except HeadwaterError:
                refused = True
            if damaged or refused:
                told += 1
                found = faults_of(faulty(source, path, planted))
                assert any(fault.bad for fault in found), f"{path} {third} {planted is None}"
    assert told > 2


def test_an_entry_that_was_exchanged_is_found_by_its_place() -> None:
    source = image(True, False)
    first, second = sorted(path for path in files_of(source) if path.suffix == ".wal")[:2]
    files = files_of(source)
    disk = FakeDisk(image=source)
    disk.write_file(first, files[second])
    disk.write_file(second, files[first])
    found = [fault for fault in faults_of(disk) if fault.bad]
    assert {fault.path for fault in found} >= {first, second}
    assert any("entries are missing before this one" in fault.what for fault in found)
    assert any("was here before" in fault.what for fault in found)


def test_a_sequence_number_that_skips_some_is_found_between_sound_entries() -> None:
    source = image(True, True)
    path = max(path for path in files_of(source) if path.suffix == ".wal")
    content = files_of(source)[path]
    parts, at = [], 0
    while content.startswith(MAGIC_BYTES, at):
        entry = decode_entry(content, at, len(content))
        sequence = entry.sequence + 5 * bool(at)
        parts.append(encode_entry(entry.kind, sequence, entry.payload, more=entry.more))
        at += entry.size
    assert len(parts) > 1
    written = b"".join(parts)
    disk = faulty(source, path, written + bytes(len(content) - len(written)))
    [fault] = faults_of(disk)
    assert (fault.path, fault.offset, fault.bad) == (path, len(parts[0]), True)
    assert fault.what == "5 entries are missing before this one"


def test_an_index_that_tells_another_offset_than_its_snapshot_is_not_believed() -> None:
    source = image(True, True)
    path = next(path for path in files_of(source) if path.name == "index.json")
    index = decode_index(files_of(source)[path])
    wrong = msgspec.structs.replace(index.snapshots[0], wal_offset=1 << 40)
    disk = faulty(source, path, encode_index(SnapshotIndex((wrong,))))
    [fault] = faults_of(disk)
    assert (fault.path, fault.bad) == (path, False)
    assert "says something else" in fault.what
    assert SteppedStore(disk).state() == SteppedStore(FakeDisk(image=source)).state()
    assert disk.files()[path] == files_of(source)[path], "written again"
