"""Which entries a start takes: what follows, what is behind damage, and what it refuses."""

from __future__ import annotations

import pytest
from msgspec import Raw

from headwater.core.errors import DamageError
from headwater.engine.machines.recovery import MachineReport, inspect_machines
from headwater.engine.machines.tables import Tables
from headwater.format.machines.bodies import CreateInstanceEntry, encode_body
from headwater.format.machines.entry import EntryType, encode_entry
from headwater.format.machines.names import global_offset, segment_name
from headwater.testing import FakeDisk
from tests.rig.machines import PLACE, SMALL

FIRST = PLACE / "wal" / segment_name(1)


def entry(number: int, *, synced: int = 0, more: bool = False) -> bytes:
    """It makes the instance of its number."""
    body = CreateInstanceEntry(f"i{number}", "order", 1, "new", Raw(b"{}"), number, synced)
    return encode_entry(EntryType.CREATE_INSTANCE, number, encode_body(body), more=more)


def started(*segments: bytes) -> tuple[list[str], MachineReport]:
    """The instances that a start knows, in the order they were delivered."""
    disk = FakeDisk(["/data"])
    for path in (PLACE, PLACE / "wal", PLACE / "snapshots"):
        disk.make_directory(path)
    for number, contents in enumerate(segments, start=1):
        disk.write_file(PLACE / "wal" / segment_name(number), contents)
    opened = inspect_machines(disk, PLACE, SMALL)
    assert isinstance(opened.tables, Tables)
    return list(opened.tables.instances), opened.report


def test_entries_follow_each_other_from_segment_to_segment() -> None:
    known, report = started(entry(1) + entry(2) + bytes(40), entry(3))
    assert known == ["i1", "i2", "i3"]
    assert report.log.last_offset == global_offset(2, 0)
    assert (report.log.entries, report.log.first_sequences) == (3, {1: 1, 2: 3})


@pytest.mark.parametrize("between", [b"junk", bytes(16), b"WLOG" + bytes(40)])
def test_the_next_number_behind_bad_bytes_that_nobody_saw_synced_does_not_count(
    between: bytes,
) -> None:
    known, report = started(entry(1) + entry(2) + between + entry(3))
    assert known == ["i1", "i2"]
    assert report.log.torn is not None
    assert not report.log.damage


def test_bad_bytes_at_the_end_of_a_segment_take_nothing_of_the_next() -> None:
    known, report = started(entry(1) + b"junk", entry(2))
    assert known == ["i1", "i2"]
    assert len(report.log.damage) == 1, "a segment is synced before the next begins"


def test_a_batch_over_two_segments_counts_when_it_ends() -> None:
    known, _ = started(entry(1) + entry(2, more=True), entry(3, more=True) + entry(4))
    assert known == ["i1", "i2", "i3", "i4"]
    known, report = started(entry(1) + entry(2, more=True), entry(3, more=True))
    assert known == ["i1"]
    assert report.log.position.next_sequence == 2


def test_behind_damage_a_batch_that_does_not_end_is_left_out_as_well() -> None:
    damaged = bytearray(entry(2))
    damaged[30] ^= 0xFF
    seen = global_offset(1, len(entry(1)) + len(damaged))
    log = entry(1) + damaged + entry(3, synced=seen) + entry(4) + entry(5, more=True)
    known, report = started(bytes(log))
    assert known == ["i1", "i3", "i4"]
    assert (report.log.entries, report.damaged_entries) == (3, 1)
    assert report.log.position.next_sequence == 5


def test_an_entry_that_no_fold_understands_is_refused_with_its_place() -> None:
    strange = encode_entry(EntryType.APPLY_EVENT, 2, b"{}")
    with pytest.raises(DamageError, match="not that of a APPLY_EVENT") as caught:
        started(entry(1) + strange + entry(3))
    assert (caught.value.path, caught.value.offset) == (FIRST, len(entry(1)))
    assert "use the version of Headwater that wrote it" in str(caught.value)
