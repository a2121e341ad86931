"""The WAL frame, byte by byte, against the seed's table written out by hand."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.control_frames import (
    IdempotencyEntry,
    decode_head_watermark,
    decode_idempotency,
    encode_head_watermark,
    encode_idempotency,
)
from headwater.format.frame import (
    FRAME,
    FRAME_BYTES_MIN,
    FRAME_LEN_MIN,
    FRAME_TYPE_MEANING,
    Frame,
    FrameFlag,
    FrameType,
    UnknownFrameError,
    decode_frame,
    encode_frame,
    join_data,
)

# From the seed, not from the code: field -> (offset, width).
SEED_TABLE = {
    "frame_len": (0, 4),
    "type": (4, 1),
    "flags": (5, 1),
    "topic_id": (6, 8),
    "seq": (14, 8),
    "ts": (22, 8),
    "node_len": (30, 2),
    "tag_len": (32, 2),
    "data_len": (34, 4),
}
SEED_TYPES = {
    "APPEND": 1,
    "TOPIC_CREATE": 2,
    "TOPIC_DELETE": 3,
    "ROUTER_CREATE": 4,
    "ROUTER_DELETE": 5,
    "DELETE": 6,
    "EVICT_WATERMARK": 7,
    "CHECKPOINT_MARK": 8,
    "CONFIG_UPDATE": 9,
    "LEASE": 10,
    "HEAD_WATERMARK": 11,
}
U16, U32, U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1


def decode(frame: bytes) -> Frame:
    return decode_frame(memoryview(frame), 0, len(frame))


@pytest.mark.claims(116, 118, 119, 120, 121, 122, 123, 124, 125, 126, 149)
def test_the_layout_has_every_field_where_the_seed_has_it() -> None:
    widths = {field.name: field.width for field in FRAME.fields}
    assert {name: (at, widths[name]) for name, at in FRAME.offsets()} == SEED_TABLE
    assert not FRAME.big_endian


@pytest.mark.claims(115, 116, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130)
def test_an_append_frame_has_exactly_these_bytes() -> None:
    frame = encode_frame(
        FrameType.APPEND,
        0x0102030405060708,
        seq=0x1112131415161718,
        ts=0x2122232425262728,
        flags=FrameFlag.HAS_TAG | FrameFlag.HAS_NODE | FrameFlag.DURABLE,
        node=b"NN",
        tag=b"TTT",
        data=b"DDDD",
    )
    head = bytes.fromhex(
        "33000000"  # frame_len 51 = 42 + 2 + 3 + 4
        "01"  # Append
        "07"  # has_tag, has_node, durable
        "0807060504030201"  # topic_id, little-endian
        "1817161514131211"  # seq
        "2827262524232221"  # ts
        "0200"  # node_len
        "0300"  # tag_len
        "04000000"  # data_len
    )
    body = head + b"NN" + b"TTT" + b"DDDD"
    assert frame == body + xxhash.xxh3_64_intdigest(body[4:], seed=0).to_bytes(8, "little")


@pytest.mark.claims(118, 129)
def test_the_smallest_frame_is_46_bytes_and_frame_len_does_not_count_itself() -> None:
    smallest = encode_frame(FrameType.TOPIC_DELETE, 1)
    assert len(smallest) == 46 == FRAME_BYTES_MIN
    assert int.from_bytes(smallest[:4], "little") == 42 == FRAME_LEN_MIN
    longer = encode_frame(FrameType.APPEND, 1, node=b"n", tag=b"tt", data=b"ddd")
    assert int.from_bytes(longer[:4], "little") == 42 + 1 + 2 + 3 == len(longer) - 4


@pytest.mark.claims(128, 145)
def test_the_checksum_is_xxh3_64_with_seed_zero_from_type_to_the_trailer() -> None:
    frame = encode_frame(FrameType.LEASE, 5, data=b"lease")
    assert int.from_bytes(frame[-8:], "little") == xxhash.xxh3_64_intdigest(frame[4:-8])
    assert checksum64(b"") == 0x2D06800538D394C2, "the published value for no bytes"


@pytest.mark.claims(130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 149)
def test_every_type_of_the_seed_has_its_number_and_is_read_back() -> None:
    assert {name: FrameType[name].value for name in SEED_TYPES} == SEED_TYPES
    assert set(FrameType) - {FrameType[name] for name in SEED_TYPES} == {
        FrameType.COMMIT_MARK,
        FrameType.IDEMPOTENCY,
        FrameType.ROUTER_MARK,
        FrameType.ROUTER_PLACES,
        FrameType.SEQ_CEILINGS,
    }
    assert (FrameType.COMMIT_MARK, FrameType.IDEMPOTENCY) == (12, 13)
    assert (FrameType.ROUTER_MARK, FrameType.ROUTER_PLACES, FrameType.SEQ_CEILINGS) == (14, 15, 16)
    for kind in FrameType:
        assert decode(encode_frame(kind, 3, data=b"x")).type is kind
        assert FRAME_TYPE_MEANING[kind]


@pytest.mark.claims(120)
def test_the_flags_are_the_seeds_bits_and_one_more_for_meta() -> None:
    assert [flag.value for flag in FrameFlag] == [1, 2, 4, 8]
    assert FrameFlag.HAS_TAG | FrameFlag.HAS_NODE | FrameFlag.DURABLE == 7


@pytest.mark.claims(122)
def test_a_control_frame_has_seq_zero() -> None:
    watermark = decode(encode_head_watermark(4, 1_000, 77))
    assert (watermark.seq, watermark.topic_id, watermark.ts) == (0, 4, 77)
    assert watermark.flags == FrameFlag.DURABLE


@pytest.mark.claims(140)
def test_a_ceiling_and_an_idempotency_key_are_read_back() -> None:
    assert decode_head_watermark(decode(encode_head_watermark(4, 1_000, 77))) == 1_000
    entry = IdempotencyEntry(b"key", 5, 9, 123, created=True)
    assert decode_idempotency(decode(encode_idempotency(4, entry, 77))) == entry


@pytest.mark.parametrize("body", [b"", b"1234567", b"123456789"])
def test_a_control_body_of_the_wrong_size_is_a_format_error(body: bytes) -> None:
    frame = decode(encode_frame(FrameType.HEAD_WATERMARK, 1, data=body))
    with pytest.raises(FormatError, match="body has"):
        decode_head_watermark(frame)


def test_an_idempotency_frame_with_an_odd_truth_value_is_a_format_error() -> None:
    entry = IdempotencyEntry(b"k", 1, 1, 1, created=True)
    body = bytearray(decode(encode_idempotency(1, entry, 0)).data)
    body[24] = 2
    with pytest.raises(FormatError, match="neither 0 nor 1"):
        decode_idempotency(decode(encode_frame(FrameType.IDEMPOTENCY, 1, data=bytes(body))))


@given(
    st.sampled_from(FrameType),
    st.integers(0, U64),
    st.integers(0, U64),
    st.integers(0, U64),
    st.integers(0, 15),
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.binary(max_size=200),
)
def test_whatever_is_encoded_is_decoded_the_same(
    kind: FrameType,
    topic_id: int,
    seq: int,
    ts: int,
    flags: int,
    node: bytes,
    tag: bytes,
    data: bytes,
) -> None:
    encoded = encode_frame(
        kind, topic_id, seq=seq, ts=ts, flags=flags, node=node, tag=tag, data=data
    )
    assert decode(encoded) == Frame(
        kind, flags, topic_id, seq, ts, node, tag, data, 0, len(encoded)
    )


@given(st.binary(max_size=50), st.none() | st.binary(max_size=50))
def test_data_and_meta_are_told_apart_again(data: bytes, meta: bytes | None) -> None:
    flags = 0 if meta is None else FrameFlag.HAS_META
    frame = decode(encode_frame(FrameType.APPEND, 1, flags=flags, data=join_data(data, meta)))
    assert frame.split_data() == (data, meta)


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff\xff\xff\xff"])
def test_a_meta_length_that_cannot_be_is_a_format_error(data: bytes) -> None:
    frame = decode(encode_frame(FrameType.APPEND, 1, flags=FrameFlag.HAS_META, data=data))
    with pytest.raises(FormatError, match="meta"):
        frame.split_data()


def resealed(frame: bytes, at: int, value: int) -> bytes:
    """The frame with one byte changed and the checksum made right again."""
    changed = bytearray(frame)
    changed[at] = value
    changed[-8:] = checksum64(bytes(changed[4:-8])).to_bytes(8, "little")
    return bytes(changed)


@pytest.mark.parametrize(("at", "value"), [(4, 0), (4, 17), (4, 255), (5, 16), (5, 0xFF)])
def test_a_whole_frame_of_an_unknown_type_or_flag_is_told_from_damage(at: int, value: int) -> None:
    frame = encode_frame(FrameType.APPEND, 1, data=b"d")
    with pytest.raises(UnknownFrameError):
        decode(resealed(frame, at, value))
    damaged = frame[:at] + bytes([value]) + frame[at + 1 :]
    with pytest.raises(FormatError) as caught:
        decode(damaged)
    assert not isinstance(caught.value, UnknownFrameError)


@pytest.mark.claims(141)
def test_lengths_that_do_not_add_up_are_refused_though_the_checksum_is_right() -> None:
    frame = encode_frame(FrameType.APPEND, 1, node=b"nn", tag=b"tt", data=b"dd")
    for at in (30, 32, 34, 37):
        with pytest.raises(FormatError, match="add up"):
            decode(resealed(frame, at, 9))
