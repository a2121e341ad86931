"""What bad bytes are: damage as far as a witness knew them to be synced, else a torn tail."""

from __future__ import annotations

from pathlib import PurePosixPath

from headwater.format.machines.bodies import Checkpoint, encode_body
from headwater.format.machines.entry import EntryType, encode_entry
from headwater.format.machines.names import global_offset, segment_name
from headwater.recovery.machines.judge import BadStretch, LogJudgement, judge_log
from headwater.recovery.machines.segment import (
    MachineScan,
    MachineSegment,
    scan_machine_segment,
)
from headwater.recovery.machines.table import StretchVerdict
from headwater.testing import FakeDisk

LOG = PurePosixPath("/log")
BEGIN = global_offset(1, 0)


def entry(sequence: int, synced: int = 0, *, more: bool = False) -> bytes:
    body = encode_body(Checkpoint(at=1, synced=synced))
    return encode_entry(EntryType.CHECKPOINT, sequence, body, more=more)


def scanned(*segments: bytes) -> list[MachineScan]:
    disk = FakeDisk(["/log"])
    scans = []
    for number, contents in enumerate(segments, start=1):
        path = LOG / segment_name(number)
        disk.write_file(path, contents + bytes(64))
        scans.append(scan_machine_segment(disk, MachineSegment(str(path), number, deep=False)))
    return scans


def judged(*segments: bytes, current: int = 0) -> LogJudgement:
    return judge_log(scanned(*segments), BEGIN, 1, current)


def test_an_entry_cannot_vouch_for_itself_nor_for_what_comes_after_it() -> None:
    """One that says it knew a later place as synced vouches up to its own beginning only."""
    first, liar = entry(1), entry(2, synced=global_offset(9, 0))
    (scan,) = scanned(first + liar)
    assert scan.witness == global_offset(1, len(first))
    torn = judged(first + liar + b"\xff" * 40)
    assert [each.verdict for each in torn.stretches] == [StretchVerdict.TORN]
    assert torn.end == global_offset(1, len(first + liar))
    assert judged(first + liar).stretches == []


def test_bad_bytes_before_a_witnessed_place_are_damage_and_behind_it_a_torn_tail() -> None:
    first, bad = entry(1), b"\xff" * len(entry(2))
    offset = global_offset(1, len(first))
    unknown = judged(first + bad + entry(3))
    assert [each.verdict for each in unknown.stretches] == [StretchVerdict.TORN]
    assert unknown.end == offset
    behind = global_offset(1, len(first + bad))
    known = judged(first + bad + entry(3, synced=behind))
    reason = known.stretches[0].reason
    assert known.stretches == [BadStretch(StretchVerdict.DAMAGED, offset, behind, 1, reason)]
    assert known.next_sequence == 4
    by_current = judged(first + bad + entry(3), current=behind)
    assert by_current.stretches == known.stretches


def test_a_batch_that_does_not_end_is_cut_at_its_first_entry() -> None:
    first, one, two = entry(1), entry(2, more=True), entry(3, more=True)
    found = judged(first + one + two)
    assert found.open_batch
    assert (found.end, found.next_sequence) == (global_offset(1, len(first)), 2)
    whole = judged(first + one + two + entry(4))
    assert (whole.stretches, whole.next_sequence) == ([], 5)


def test_numbers_that_skip_some_are_damage_where_a_witness_knows_of_them() -> None:
    first = entry(1)
    offset = global_offset(1, len(first))
    found = judged(first + entry(5), current=global_offset(1, len(first + entry(5))))
    reason = "3 entries are missing before this one"
    assert found.stretches == [BadStretch(StretchVerdict.MISSING, offset, offset, 3, reason)]
    assert judged(first + entry(5)).end == offset, "nobody knew of it: a torn tail"


def test_a_segment_without_an_entry_that_others_follow_is_damage() -> None:
    found = judged(entry(1), b"", entry(4))
    (stretch,) = found.stretches
    assert (stretch.verdict, stretch.offset) == (StretchVerdict.DAMAGED, global_offset(2, 0))
    assert (stretch.entries, found.next_sequence) == (2, 5)
    last = judged(entry(1), b"", b"", current=global_offset(3, 0))
    assert [each.verdict for each in last.stretches] == [StretchVerdict.LOST_END]


def test_entries_that_were_here_before_do_not_count_again() -> None:
    one, two = entry(1), entry(2)
    end = global_offset(1, len(one + two + one + two))
    found = judged(one + two + one + two + entry(3), current=end)
    (stretch,) = found.stretches
    assert stretch.verdict is StretchVerdict.DAMAGED
    assert stretch.offset == global_offset(1, len(one + two))
    assert found.next_sequence == 4


def test_synced_entries_that_are_zeros_now_are_damage_to_the_end() -> None:
    known = global_offset(1, 500)
    found = judged(entry(1), current=known)
    assert [each.verdict for each in found.stretches] == [StretchVerdict.LOST_END]
    assert found.end == known
