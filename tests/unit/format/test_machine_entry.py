"""The bytes of machine entries, of their names and offsets, of CURRENT and of snapshots."""

from __future__ import annotations

import pytest

from headwater.core.errors import FormatError
from headwater.format.crc32c import crc32c
from headwater.format.machines import bodies
from headwater.format.machines.current import (
    MachineCurrent,
    decode_fed,
    decode_machine_current,
    encode_fed,
    encode_machine_current,
)
from headwater.format.machines.entry import (
    ENTRY,
    HEADER_BYTES,
    EntryType,
    MachineEntry,
    decode_entry,
    encode_entry,
)
from headwater.format.machines.names import (
    SEGMENTS_MAX,
    global_offset,
    parse_segment_name,
    parse_snapshot_file_name,
    segment_name,
    segment_of,
    snapshot_file_name,
    within_segment,
)
from headwater.format.machines.snapshot import (
    BlockEncoder,
    BlockKind,
    decode_blocks,
    encode_start,
)

PAYLOAD = b'{"at":1}'


@pytest.mark.claims(55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 100)
def test_an_entry_is_laid_out_byte_for_byte_as_described() -> None:
    entry = encode_entry(EntryType.CHECKPOINT, 0x0102030405060708, PAYLOAD)
    assert HEADER_BYTES == 24 == 4 + 1 + 1 + 2 + 4 + 4 + 8
    assert entry[0:4] == b"WLOG" == bytes.fromhex("574C4F47")
    assert entry[4] == 6
    assert entry[5] == 1, "bit 0: the header's own checksum stands behind the payload"
    assert entry[6:8] == b"\0\0"
    assert entry[8:12] == len(PAYLOAD).to_bytes(4, "big")
    assert entry[12:16] == crc32c(PAYLOAD).to_bytes(4, "big")
    assert entry[16:24] == bytes(range(1, 9))
    assert entry[24:-4] == PAYLOAD
    assert entry[-4:] == crc32c(entry[:24]).to_bytes(4, "big")
    assert dict(ENTRY.offsets()) == {
        "magic": 0, "type": 4, "flags": 5, "reserved": 6, "length": 8, "crc32c": 12, "sequence": 16
    }  # fmt: skip
    assert crc32c(b"123456789") == 0xE3069283, "Castagnoli"


@pytest.mark.claims(65, 66, 67, 68, 69, 70)
def test_the_six_types_have_their_codes() -> None:
    assert {kind.name: int(kind) for kind in EntryType} == {
        "PUT_MACHINE": 1,
        "CREATE_INSTANCE": 2,
        "APPLY_EVENT": 3,
        "DELETE_INSTANCE": 4,
        "SNAPSHOT": 5,
        "CHECKPOINT": 6,
    }


def test_an_entry_comes_back_as_it_was_written() -> None:
    for more in (False, True):
        encoded = encode_entry(EntryType.APPLY_EVENT, 7, PAYLOAD, more=more)
        found = decode_entry(b"xx" + encoded + b"yy", 2, len(encoded) + 2)
        assert found == MachineEntry(EntryType.APPLY_EVENT, more, 7, PAYLOAD, len(encoded))


@pytest.mark.claims(100, 105)
def test_every_flipped_bit_and_every_cut_of_an_entry_is_found() -> None:
    encoded = encode_entry(EntryType.APPLY_EVENT, 7, PAYLOAD)
    for at in range(len(encoded) * 8):
        bad = bytearray(encoded)
        bad[at // 8] ^= 1 << at % 8
        if at == ENTRY.offset_of("flags") * 8:
            # Without the flag nothing else is different but that the entry ends four bytes early,
            # and what is found there is no entry.
            found = decode_entry(bytes(bad), 0, len(bad))
            assert (found.sequence, found.payload, found.size) == (7, PAYLOAD, len(bad) - 4)
            continue
        with pytest.raises(FormatError):
            decode_entry(bytes(bad), 0, len(bad))
    for length in range(len(encoded)):
        with pytest.raises(FormatError):
            decode_entry(encoded[:length], 0, length)


def test_a_hostile_length_is_refused_before_anything_is_read() -> None:
    header = ENTRY.packer.pack(0x574C4F47, 3, 0, 0, 0xFFFF_FFFF, 0, 1)
    with pytest.raises(FormatError, match="length"):
        decode_entry(header + bytes(64), 0, len(header) + 64)


@pytest.mark.claims(71, 72, 73, 74)
def test_a_global_offset_names_segment_and_place_in_one_number() -> None:
    assert global_offset(1, 0) == 1 << 40
    assert global_offset(3, 17) == (3 << 40) | 17
    assert segment_of(global_offset(SEGMENTS_MAX, 2**40 - 1)) == SEGMENTS_MAX == 2**24 - 1
    assert within_segment(global_offset(5, 2**40 - 1)) == 2**40 - 1
    assert global_offset(8191, 0) < 2**53 <= global_offset(8192, 0)
    places = [global_offset(1, 9), global_offset(1, 10), global_offset(2, 0)]
    assert places == sorted(places)


@pytest.mark.claims(53)
def test_segments_have_sixteen_digits_and_begin_at_one() -> None:
    assert segment_name(1) == "0000000000000001.wal"
    assert segment_name(26) == "000000000000001a.wal"
    for name in ("0000000000000000.wal", "1.wal", "000000000000001A.wal", "0000000000000001.log"):
        assert parse_segment_name(name) is None
    assert parse_segment_name("00000000000000ff.wal") == 255


@pytest.mark.claims(96)
def test_snapshots_are_named_after_the_second_they_are_of() -> None:
    assert snapshot_file_name(1_705_312_200, 0) == "snap-1705312200.snap"
    assert snapshot_file_name(1_705_312_200, 2) == "snap-1705312200-2.snap"
    assert parse_snapshot_file_name("snap-1705312200-2.snap") == (1_705_312_200, 2)
    assert parse_snapshot_file_name("snap-x.snap") is None


def test_the_lines_beside_the_log_are_read_back_or_refused() -> None:
    current = MachineCurrent(3, 4_096, 2)
    line = encode_machine_current(current)
    assert decode_machine_current(line) == current
    assert decode_fed(encode_fed(77)) == 77
    for good, decode in ((line, decode_machine_current), (encode_fed(77), decode_fed)):
        for at in range(len(good)):
            bad = bytearray(good)
            bad[at] ^= 4
            with pytest.raises(FormatError):
                decode(bytes(bad))
            with pytest.raises(FormatError):
                decode(good[:at])


def test_a_body_of_another_shape_is_a_format_error() -> None:
    entry = MachineEntry(EntryType.APPLY_EVENT, False, 1, b'{"instance_id":3}', 0)
    with pytest.raises(FormatError, match="APPLY_EVENT"):
        bodies.decode_body(entry)
    assert bodies.witness_of(entry.payload) == 0


def test_every_changed_or_missing_byte_of_a_snapshot_is_found() -> None:
    encoder = BlockEncoder()
    whole = b"".join(
        [
            encode_start(),
            encoder.encode(BlockKind.INSTANCES, [["a", 1], ["b", 2]]),
            encoder.encode(BlockKind.END, 2),
        ]
    )
    assert [kind for kind, _ in decode_blocks(whole)] == [BlockKind.INSTANCES, BlockKind.END]
    for at in range(len(whole)):
        bad = bytearray(whole)
        bad[at] ^= 0x10
        with pytest.raises(FormatError):
            list(decode_blocks(bytes(bad)))
        with pytest.raises(FormatError):
            list(decode_blocks(whole[:at]))
    with pytest.raises(FormatError, match="behind the end"):
        list(decode_blocks(whole + b"\0"))
