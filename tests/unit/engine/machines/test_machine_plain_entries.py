"""The log in its plain form: a header of 24 bytes and JSON, nothing behind it."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from functools import partial

import pytest

from headwater.api.machine_requests import ApplyEvent, CreateInstance, Request
from headwater.format.machines.names import global_offset
from headwater.testing import FakeDisk
from tests.rig.machines import PLACE, SMALL, SteppedStore
from tests.unit.engine.machines.test_machine_compaction import begun, segments, turn

PLAIN = replace(SMALL, entry_header_checksum=False)


def read_plainly(disk: FakeDisk) -> list[tuple[int, int, dict[str, object]]]:
    """Offset, sequence and JSON of every entry, by a reader that knows the header only."""
    found = []
    for name in segments(disk):
        contents, at = disk.files()[PLACE / "wal" / name], 0
        while contents[at : at + 4] == b"WLOG":
            length, _, sequence = struct.unpack_from(">IIQ", contents, at + 8)
            payload = contents[at + 24 : at + 24 + length]
            place = global_offset(int(name.removesuffix(".wal"), 16), at)
            found.append((place, sequence, json.loads(payload)))
            at += 24 + length
        assert not contents[at:].strip(b"\0"), f"lost step in {name} at {at}"
    return found


def batch(store: SteppedStore) -> None:
    operations: list[Request] = [
        CreateInstance("order", 1, "b", {"total": 1}),
        ApplyEvent("b", "PAY"),
    ]
    store.do(partial(store.batch, operations, "atomic"))


def test_a_reader_that_knows_only_the_header_keeps_step() -> None:
    disk, store = begun(PLAIN)
    turn(store, 3)
    batch(store)
    store.close()
    entries = read_plainly(disk)
    assert [sequence for _, sequence, _ in entries] == list(range(1, len(entries) + 1))
    again = SteppedStore(disk, PLAIN)
    known = [(each.offset, each.sequence) for each in again.read_wal(0, 1_000).read().entries]
    assert [(offset, sequence) for offset, sequence, _ in entries] == known
    assert again.get_instance("b").state == "paid"


def test_it_loses_step_where_headers_have_their_checksum() -> None:
    disk, store = begun()
    turn(store, 1)
    with pytest.raises(AssertionError, match="lost step"):
        read_plainly(disk)


def test_both_forms_stand_in_one_log_and_are_read() -> None:
    disk, store = begun()
    for number in range(6):
        turn(store, 1)
        store.close()
        store = SteppedStore(disk, SMALL if number % 2 else PLAIN)
        assert store.report.log.damage == []
    batch(store)
    whole = store.history("a").read()
    assert (whole.complete, len(whole.entries)) == (True, 25)
    sequences = [each.sequence for each in store.read_wal(0, 1_000).read().entries]
    assert sequences == list(range(1, len(sequences) + 1))
    state = store.state()
    store.close()
    assert SteppedStore(disk, PLAIN).state() == state
    store = SteppedStore(FakeDisk(image=disk.snapshot()), PLAIN)
    turn(store, 2)
    store.compact()
    assert store.history("a").read().complete


def test_a_plain_entry_that_is_cut_off_never_counts() -> None:
    wide = replace(PLAIN, wal_segment_bytes=65_536)
    disk, store = begun(wide)
    before = store.committed_offset
    store.do(lambda: store.apply_event("a", "PAY"))
    end, image = store.committed_offset, disk.snapshot()
    path = PLACE / "wal" / segments(disk)[0]
    for length in range(end - before):
        torn = FakeDisk(image=image)
        contents = torn.files()[path]
        at = before - global_offset(1, 0) + length
        torn.write_file(path, contents[:at] + bytes(len(contents) - at))
        torn.unlink(PLACE / "wal" / "CURRENT")
        again = SteppedStore(torn, wide)
        assert again.get_instance("a").state == "new"
        assert again.report.log.damage == []
        again.close()


def test_a_damaged_plain_entry_is_passed_over_and_told() -> None:
    disk, store = begun(PLAIN)
    turn(store, 3)
    store.close()
    first = read_plainly(disk)[2]
    path = PLACE / "wal" / segments(disk)[0]
    contents = bytearray(disk.files()[path])
    contents[first[0] - global_offset(1, 0) + 40] ^= 1
    disk.write_file(path, bytes(contents))
    again = SteppedStore(disk, PLAIN)
    assert again.report.damaged_entries == 1
    assert again.report.log.damage[0].offset == first[0]
    assert again.get_instance("a").state == "new"
