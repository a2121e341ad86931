"""Bulk work on segment bytes against its slow and obvious twin."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.frame import FrameType, encode_frame
from headwater.format.segment import (
    INDEX_ENTRY,
    IndexFlag,
    WalSlice,
    bad_entries,
    compact_run,
    encode_run,
    frame_faults,
    index_flags,
    rebuild_entries,
    seal_checks,
)
from headwater.format.segment.verify import FrameFault
from tests.unit.store.records import Sent, encode_run_slowly, encoded, some, ts_of, wal_slice

LOST = int(IndexFlag.DELETED | IndexFlag.LOST)
SENT = st.builds(
    Sent,
    data=st.binary(max_size=40),
    node=st.binary(max_size=4),
    tag=st.binary(max_size=4),
    meta=st.none() | st.binary(max_size=6),
    durable=st.booleans(),
)
RECORDS = st.lists(SENT, max_size=30)
FIRST_SEQ = st.integers(0, 2**40)


@st.composite
def slices(draw: st.DrawFn, first_seq: int, records: list[Sent]) -> list[WalSlice]:
    """The records in some number of buffers of different kinds, with noise between frames."""
    borders = sorted(draw(st.lists(st.integers(0, len(records)), max_size=3)))
    parts = []
    for low, high in zip([0, *borders], [*borders, len(records)], strict=True):
        part = wal_slice(first_seq + low, records[low:high], draw(st.binary(max_size=20)))
        wrap = draw(st.sampled_from([bytes, bytearray, memoryview]))
        parts.append(WalSlice(wrap(bytes(part.buffer)), part.offsets))
    return parts


@given(st.data(), FIRST_SEQ, RECORDS)
def test_a_run_has_the_bytes_of_its_records_one_by_one(
    data: st.DataObject, first_seq: int, records: list[Sent]
) -> None:
    parts = data.draw(slices(first_seq, records))
    verify = data.draw(st.booleans())
    expected_data, expected = encode_run_slowly(
        records, first_seq, [0] * len(records), [0] * len(records)
    )
    found, entries = encode_run(parts, first_seq, verify=verify)
    assert bytes(found) == expected_data
    assert entries.tobytes() == expected.tobytes()
    assert not frame_faults(found, entries, first_seq).any()


@given(st.data(), FIRST_SEQ, RECORDS)
def test_dead_records_become_empty_frames_wherever_they_stand(
    data: st.DataObject, first_seq: int, records: list[Sent]
) -> None:
    count = len(records)
    choice = st.sampled_from([0, int(IndexFlag.DELETED), LOST])
    dead = data.draw(st.lists(choice, min_size=count, max_size=count))
    times = data.draw(st.lists(st.integers(0, 2**63), min_size=count, max_size=count))
    parts = data.draw(slices(first_seq, records))
    gone = numpy.array(dead, numpy.uint8) != 0
    done = 0
    blanked = []
    for part in parts:
        here = gone[done : done + len(part.offsets)]
        blanked.append(WalSlice(part.buffer, numpy.where(here, -1, part.offsets)))
        done += len(part.offsets)
    expected_data, expected = encode_run_slowly(records, first_seq, dead, times)
    found, entries = encode_run(
        blanked, first_seq, numpy.array(dead, numpy.uint8), numpy.array(times, numpy.uint64)
    )
    assert bytes(found) == expected_data
    assert entries.tobytes() == expected.tobytes()
    assert not frame_faults(found, entries, first_seq).any()


@given(st.data(), FIRST_SEQ, st.lists(SENT, min_size=1, max_size=20))
def test_compacting_gives_what_writing_the_dead_as_dead_would_have_given(
    data: st.DataObject, first_seq: int, records: list[Sent]
) -> None:
    count = len(records)
    flags = st.sampled_from([0, int(IndexFlag.DELETED), LOST])
    dead = data.draw(st.lists(flags, min_size=count, max_size=count))
    run, entries = encoded(first_seq, records)
    entries["flags_check"] |= numpy.array(dead, numpy.uint32)
    expected_data, expected = encode_run_slowly(
        records, first_seq, dead, [ts_of(first_seq + row) for row in range(count)]
    )
    compacted, again = compact_run(run, entries, first_seq)
    assert bytes(compacted) == expected_data
    assert again.tobytes() == expected.tobytes()


@given(FIRST_SEQ, st.lists(SENT, min_size=1, max_size=12))
def test_an_index_rebuilt_from_a_run_is_the_index_of_the_run(
    first_seq: int, records: list[Sent]
) -> None:
    data, entries = encoded(first_seq, records)
    again, ended = rebuild_entries(data, first_seq)
    assert again.tobytes() == entries.tobytes()
    assert ended is None
    assert not len(bad_entries(again, first_seq))


@given(st.data(), st.lists(SENT, min_size=1, max_size=12))
def test_a_changed_byte_is_found_in_the_record_it_belongs_to(
    data: st.DataObject, records: list[Sent]
) -> None:
    run, entries = encoded(50, records)
    at = data.draw(st.integers(0, len(run) - 1))
    bit = data.draw(st.integers(0, 7))
    run[at] ^= 1 << bit
    row = int(numpy.searchsorted(entries["offset"], at, side="right")) - 1
    assert numpy.flatnonzero(frame_faults(run, entries, 50)).tolist() == [row]


@given(st.data(), st.binary(max_size=300))
def test_verifying_hostile_bytes_never_fails_and_trusts_nothing(
    data: st.DataObject, noise: bytes
) -> None:
    _, entries = encoded(1, some(1, 4))
    for name, limit in (("offset", 2**32 - 1), ("len", 2**32 - 1)):
        values = st.lists(st.integers(0, 400) | st.integers(0, limit), min_size=4, max_size=4)
        entries[name] = numpy.array(data.draw(values), numpy.uint32)
    base = data.draw(st.integers(0, 100))
    assert numpy.flatnonzero(frame_faults(noise, entries, 1, base)).tolist() == [0, 1, 2, 3]


def test_each_kind_of_disagreement_has_its_name() -> None:
    run, entries = encoded(1, some(1, 8, size=8))
    wrong = entries.copy()
    wrong["offset"][0] = 2**31
    wrong["len"][1] += 1
    wrong["ts"][3] += 1
    wrong["flags_check"][4] ^= 4
    starts = entries["offset"].astype(int)
    ends = starts + entries["len"]
    run[starts[2] + 5] ^= 1
    run[ends[5] - 1] = 7
    run[ends[6] - 12] ^= 1
    run[ends[7] - 1] = 0xD5
    assert frame_faults(run, wrong, 1).tolist() == [
        FrameFault.OUTSIDE,
        FrameFault.LENGTH,
        FrameFault.SEQ,
        FrameFault.TS,
        FrameFault.FLAGS,
        FrameFault.STATE,
        FrameFault.CHECKSUM,
        FrameFault.DELETED,
    ]
    entries["flags_check"][0] |= IndexFlag.DELETED
    assert frame_faults(run, entries, 1)[0] == FrameFault.NOT_DELETED


@pytest.mark.claims(249, 267)
def test_a_run_with_a_gap_or_out_of_order_is_refused() -> None:
    records = some(1, 3)
    part = wal_slice(1, records)
    for parts, first_seq in (
        ([part], 2),
        ([part, wal_slice(5, records)], 1),
        ([part, part], 1),
        ([WalSlice(part.buffer, part.offsets[::-1])], 1),
        ([WalSlice(part.buffer, part.offsets[[0, 2]])], 1),
    ):
        with pytest.raises(FormatError, match="gap"):
            encode_run(parts, first_seq)


def test_a_frame_that_is_no_record_or_not_there_is_refused() -> None:
    other = encode_frame(FrameType.DELETE, 7, seq=1)
    with pytest.raises(FormatError, match="not a record"):
        encode_run([WalSlice(other, numpy.array([0]))], 1)
    part = wal_slice(1, some(1, 2))
    for offset in (-1, 1, len(part.buffer) - 10, len(part.buffer), 2**40):
        with pytest.raises(FormatError):
            encode_run([WalSlice(part.buffer, numpy.array([offset]))], 1)
    with pytest.raises(FormatError):
        encode_run([WalSlice(b"", numpy.array([0]))], 1)


def test_damaged_log_bytes_never_get_a_new_and_sound_checksum() -> None:
    part = wal_slice(1, some(1, 2))
    broken = bytearray(part.buffer)
    broken[int(part.offsets[1]) + 45] ^= 1
    with pytest.raises(FormatError, match="checksum"):
        encode_run([WalSlice(broken, part.offsets)], 1)


def test_dead_flags_without_times_or_of_another_kind_are_refused() -> None:
    part = wal_slice(1, some(1, 2))
    times = numpy.zeros(2, numpy.uint64)
    with pytest.raises(FormatError):
        encode_run([part], 1, numpy.array([0, 0x80], numpy.uint8))
    for dead in ([0, 0x20], [0, 0x81], [0x80]):
        with pytest.raises(FormatError):
            encode_run([part], 1, numpy.array(dead, numpy.uint8), times)


@pytest.mark.claims(256)
def test_the_inline_flags_answer_tag_node_and_deleted() -> None:
    records = [Sent(b"1", tag=b"t"), Sent(b"2", node=b"n"), Sent(b"3")]
    dead = numpy.array([0, 0, IndexFlag.DELETED], numpy.uint8)
    _, entries = encode_run([wal_slice(1, records)], 1, dead, numpy.zeros(3, numpy.uint64))
    flags = index_flags(entries)
    assert [bool(flag & IndexFlag.HAS_TAG) for flag in flags] == [True, False, False]
    assert [bool(flag & IndexFlag.HAS_NODE) for flag in flags] == [False, True, False]
    assert [bool(flag & IndexFlag.DELETED) for flag in flags] == [False, False, True]


@pytest.mark.claims(255)
def test_the_border_of_an_age_is_found_by_binary_search_on_the_inline_times() -> None:
    _, entries = encoded(100, some(100, 50))
    assert int(numpy.searchsorted(entries["ts"], ts_of(120))) == 20


def test_a_frame_that_lies_about_its_lengths_is_refused_though_its_checksum_is_sound() -> None:
    frame = bytearray(encode_frame(FrameType.APPEND, 7, seq=1, data=b"data"))
    frame[30] = 1  # node_len
    frame[-8:] = checksum64(frame[4:-8]).to_bytes(8, "little")
    with pytest.raises(FormatError, match="do not add up"):
        encode_run([WalSlice(frame, numpy.array([0]))], 1)


def test_a_run_whose_last_frame_is_cut_is_refused_at_every_length() -> None:
    part = wal_slice(1, some(1, 2))
    for length in range(int(part.offsets[1]), len(part.buffer)):
        for verify in (True, False):
            with pytest.raises(FormatError):
                encode_run([WalSlice(part.buffer[:length], part.offsets)], 1, verify=verify)


def test_an_entry_of_zeros_is_bad_even_where_zero_is_the_right_check() -> None:
    weight, start, prime = 0x510E53, 0x1F83D9, 16_777_213
    seq = -start * pow(weight, -1, prime) % prime
    assert bad_entries(numpy.zeros(1, INDEX_ENTRY.dtype), seq).tolist() == [0]
    sealed = numpy.zeros(1, INDEX_ENTRY.dtype)
    seal_checks(sealed, seq)
    assert not sealed["flags_check"].any()
