"""Segment frames, index entries and names: the bytes of the seed, and nothing but FormatError."""

from __future__ import annotations

import struct

import numpy
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.segment import (
    ENTRY_BYTES,
    INDEX_ENTRY,
    SEGMENT_FRAME,
    SEGMENT_FRAME_BYTES_MIN,
    FrameState,
    IndexFlag,
    SegmentFile,
    SegmentPart,
    bad_entries,
    decode_segment_frame,
    deleted_directory_name,
    parse_deleted_directory_name,
    parse_segment_file,
    parse_segment_name,
    parse_topic_directory_name,
    rebuild_entries,
    seal_checks,
    segment_file_name,
    segment_name,
    topic_directory_name,
)
from headwater.store.pair import whole_entries
from tests.rig.segment_frames import encode_segment_frame
from tests.unit.store.records import encoded, some


@pytest.mark.claims(245, 246)
def test_a_frame_has_the_fields_of_the_seed_in_its_order() -> None:
    frame = encode_segment_frame(5, 9, flags=3, node=b"n1", tag=b"tag", data=b"{}")
    body = struct.pack("<BQQHHI", 3, 5, 9, 2, 3, 2) + b"n1tag{}"
    checksum = struct.pack("<Q", xxhash.xxh3_64_intdigest(body))
    assert frame == struct.pack("<I", len(body) + 8) + body + checksum + b"\x00"


@pytest.mark.claims(247)
def test_the_smallest_frame_is_the_seeds_and_one_state_byte() -> None:
    assert SEGMENT_FRAME.size - 4 == 25
    assert len(encode_segment_frame(1, 1)) == 37 + 1 == SEGMENT_FRAME_BYTES_MIN
    frame = encode_segment_frame(1, 1, node=b"a", tag=b"bc", data=b"def")
    assert struct.unpack_from("<I", frame)[0] == 33 + 1 + 2 + 3


@pytest.mark.claims(250, 251, 252)
def test_an_index_entry_is_twenty_packed_bytes() -> None:
    assert ENTRY_BYTES == INDEX_ENTRY.dtype.itemsize == 4 + 4 + 8 + 1 + 3
    assert list(INDEX_ENTRY.offsets()) == [
        ("offset", 0),
        ("len", 4),
        ("ts", 8),
        ("flags_check", 16),
    ]
    entry = numpy.array([(1, 2, 3, IndexFlag.DELETED)], INDEX_ENTRY.dtype)
    assert entry.tobytes() == struct.pack("<IIQB3x", 1, 2, 3, 0x80)


@pytest.mark.claims(253)
def test_the_entry_of_a_seq_is_found_by_arithmetic() -> None:
    _, entries = encoded(40, some(40, 5))
    stored = entries.tobytes()
    for seq in range(40, 45):
        at = (seq - 40) * 20
        assert stored[at : at + 20] == entries[seq - 40].tobytes()


@pytest.mark.claims(248, 287)
def test_names_sort_by_seq_and_read_back() -> None:
    assert segment_name(1) == "seg-0000000000000001"
    names = [segment_file_name(seq, SegmentPart.DATA) for seq in (9, 10, 99, 100, 10**15)]
    assert names == sorted(names)
    assert parse_segment_name("seg-0000000000000012.idx") == (12, SegmentPart.IDX)
    assert parse_segment_file("seg-0000000000000012.cold") == (12, SegmentFile.COLD)


@pytest.mark.parametrize(
    "name",
    ["seg-1.data", "seg-0000000000000001", "seg-0000000000000001.DATA", "x-0000000000000001.data",
     "seg-0000000000000001.data.new", "seg-00000000000000011.data", "../seg-0000000000000001.idx",
     "seg-" + "\N{ARABIC-INDIC DIGIT ONE}" * 16 + ".idx"],
)  # fmt: skip
def test_other_names_are_not_the_names_of_segments(name: str) -> None:
    assert parse_segment_name(name) is None


def test_a_topic_directory_is_named_by_its_number_alone() -> None:
    assert topic_directory_name(10) == "0000000A"
    assert parse_topic_directory_name("0000000A") == 10
    assert deleted_directory_name(10) == "0000000A.deleted"
    assert parse_deleted_directory_name("0000000A.deleted") == 10
    for other in ("0000000a", "A", "000000000A", "orders", "0000000A.deleted"):
        assert parse_topic_directory_name(other) is None
    assert parse_deleted_directory_name("0000000A") is None


@given(st.integers(0, 2**64 - 1))
def test_each_topic_number_has_one_directory_name(topic_id: int) -> None:
    assert parse_topic_directory_name(topic_directory_name(topic_id)) == topic_id


def test_a_segment_cannot_begin_where_its_name_would_not_sort() -> None:
    for seq in (-1, 10**16):
        with pytest.raises(ValueError, match="no segment"):
            segment_name(seq)


@given(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=50))
def test_a_frame_reads_back_as_it_was_written(node: bytes, tag: bytes, data: bytes) -> None:
    frame = encode_segment_frame(7, 8, node=node, tag=tag, data=data, state=FrameState.DELETED)
    record = decode_segment_frame(memoryview(b"??" + frame), 2, 2 + len(frame))
    assert (record.seq, record.ts, record.node, record.tag, record.data) == (7, 8, node, tag, data)
    assert (record.state, record.meta) == (FrameState.DELETED, None)
    assert (record.offset, record.size) == (2, len(frame))


@given(st.data(), st.binary(max_size=120))
def test_hostile_bytes_raise_nothing_but_format_errors(data: st.DataObject, noise: bytes) -> None:
    frame = encode_segment_frame(7, 8, node=b"n", tag=b"t", data=b"data", flags=3)
    mixed = data.draw(st.sampled_from([noise, frame + noise, frame[:9] + noise, noise + frame]))
    offset = data.draw(st.integers(-5, len(mixed) + 5))
    end = data.draw(st.integers(-5, len(mixed) + 5))
    try:
        record = decode_segment_frame(memoryview(mixed), offset, end)
    except FormatError:
        return
    assert offset >= 0
    assert offset + record.size <= end <= len(mixed)


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    frame = encode_segment_frame(7, 8, node=b"n", tag=b"t", data=b"data", flags=3)
    for bit in range(len(frame) * 8):
        broken = bytearray(frame)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decode_segment_frame(memoryview(broken), 0, len(broken))


def test_every_truncation_of_a_frame_is_noticed() -> None:
    frame = encode_segment_frame(7, 8, data=b"data")
    for length in range(len(frame)):
        with pytest.raises(FormatError):
            decode_segment_frame(memoryview(frame[:length]), 0, length)


def test_meta_is_split_from_the_data_and_a_lying_meta_is_refused() -> None:
    sound = encode_segment_frame(1, 1, flags=8, data=b"dataM\x01\x00\x00\x00")
    record = decode_segment_frame(memoryview(sound), 0, len(sound))
    assert (record.data, record.meta) == (b"data", b"M")
    lying = encode_segment_frame(1, 1, flags=8, data=b"M\x05\x00\x00\x00")
    with pytest.raises(FormatError):
        decode_segment_frame(memoryview(lying), 0, len(lying))


def test_every_flipped_bit_of_an_index_is_noticed_at_its_entry() -> None:
    _, entries = encoded(90, some(90, 6))
    for bit in range(len(entries) * ENTRY_BYTES * 8):
        broken = bytearray(entries.tobytes())
        broken[bit // 8] ^= 1 << bit % 8
        assert bad_entries(whole_entries(bytes(broken)), 90).tolist() == [bit // 8 // ENTRY_BYTES]


def test_an_entry_in_the_wrong_place_or_of_zeros_is_bad() -> None:
    _, entries = encoded(90, some(90, 3))
    assert len(bad_entries(entries, 90)) == 0
    assert bad_entries(entries, 91).tolist() == [0, 1, 2]
    assert bad_entries(numpy.zeros(2, INDEX_ENTRY.dtype), 0).tolist() == [0, 1]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**32 - 1),
            st.integers(38, 2**32 - 1),
            st.integers(0, 2**64 - 1),
            st.integers(0, 255),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 2**63),
)
def test_sealed_entries_are_good_for_all_values(
    rows: list[tuple[int, int, int, int]], first_seq: int
) -> None:
    entries = numpy.array(rows, INDEX_ENTRY.dtype)
    seal_checks(entries, first_seq)
    assert len(bad_entries(entries, first_seq)) == 0
    assert [int(value) & 0xFF for value in entries["flags_check"]] == [row[3] for row in rows]


@pytest.mark.claims(254)
def test_an_index_can_be_read_again_from_its_data_up_to_the_first_damage() -> None:
    data, entries = encoded(5, some(5, 6))
    again, ended = rebuild_entries(data, 5)
    assert again.tobytes() == entries.tobytes()
    assert ended is None
    data[int(entries["offset"][3]) + 30] ^= 1
    again, ended = rebuild_entries(data, 5)
    assert again.tobytes() == entries[:3].tobytes()
    assert ended is not None
    assert ended.offset == entries["offset"][3]
    none, ended = rebuild_entries(data, 6)
    assert len(none) == 0
    assert ended is not None
