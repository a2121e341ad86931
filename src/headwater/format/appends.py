"""Many append frames at once: the columns of a batch in, its frames out.

The same bytes as `encode_frame` gives one by one (a test holds them together), in one loop
without a call of ours per record. Most records have neither node nor tag; they are told apart
once for a batch. Making the heads as one numpy column was tried and is not faster: the slices
for the checksums cost more than the packing saves.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy

from headwater.format.checksum import checksum64
from headwater.format.frame import (
    CHECKSUM_BYTES,
    FRAME,
    FRAME_BYTES_MIN,
    FRAME_LEN_MIN,
    FrameType,
)
from headwater.format.segment.run import at_each_byte, hash_ranges

_LENGTH: Final = struct.Struct("<I")
_AFTER_LENGTH: Final = struct.Struct("<" + FRAME.packer.format.removeprefix("<I"))
_CHECKSUM: Final = struct.Struct("<Q")
_APPEND: Final = int(FrameType.APPEND)
_AT_START: Final = [0]
_TYPE_AT: Final = FRAME.offset_of("type")
_TOPIC_AT: Final = FRAME.offset_of("topic_id")
_SEQ_AT: Final = FRAME.offset_of("seq")
_TS_AT: Final = FRAME.offset_of("ts")


class Appends(NamedTuple):
    buffer: bytes
    offsets: list[int]
    """Where each frame begins."""
    sizes: list[int]


def encode_appends(
    topic_id: int,
    first_seq: int,
    ts: int,
    flags_base: int,
    flags: Sequence[int],
    nodes: Sequence[bytes],
    tags: Sequence[bytes],
    datas: Sequence[bytes],
) -> Appends:
    """The frames of records `first_seq`, `first_seq + 1` and so on.

    `flags_base` (such as DURABLE) is added to the flags of each. All columns are equally long.
    """
    if not len(flags) == len(nodes) == len(tags) == len(datas):
        raise ValueError("the columns of a batch are equally long")
    base = int(flags_base)  # the operators of an IntFlag are written in Python
    pack, pack_length, pack_checksum = _AFTER_LENGTH.pack, _LENGTH.pack, _CHECKSUM.pack
    pieces: list[bytes] = []
    add = pieces.append
    seq = first_seq
    if any(nodes) or any(tags):
        sizes = []
        for own, node, tag, data in zip(flags, nodes, tags, datas, strict=True):
            node_len, tag_len, data_len = len(node), len(tag), len(data)
            size = node_len + tag_len + data_len
            head = pack(_APPEND, base | own, topic_id, seq, ts, node_len, tag_len, data_len)
            body = head + node + tag + data
            sizes.append(FRAME_BYTES_MIN + size)
            add(pack_length(FRAME_LEN_MIN + size))
            add(body)
            add(pack_checksum(checksum64(body)))
            seq += 1
    else:
        for own, data in zip(flags, datas, strict=True):
            size = len(data)
            body = pack(_APPEND, base | own, topic_id, seq, ts, 0, 0, size) + data
            add(pack_length(FRAME_LEN_MIN + size))
            add(body)
            add(pack_checksum(checksum64(body)))
            seq += 1
        sizes = [FRAME_BYTES_MIN + len(data) for data in datas]
    offsets = _AT_START if len(sizes) == 1 else [0, *accumulate(sizes)][:-1]
    return Appends(b"".join(pieces), offsets, sizes)


def encode_copies(
    topic_id: int,
    first_seq: int,
    times: Sequence[int],
    flags: Sequence[int],
    nodes: Sequence[bytes],
    tags: Sequence[bytes],
    datas: Sequence[bytes],
) -> Appends:
    """The frames of records of different times, each with all of its flags."""
    pack, pack_length, pack_checksum = _AFTER_LENGTH.pack, _LENGTH.pack, _CHECKSUM.pack
    pieces: list[bytes] = []
    sizes: list[int] = []
    seq = first_seq
    for ts, own, node, tag, data in zip(times, flags, nodes, tags, datas, strict=True):
        node_len, tag_len, data_len = len(node), len(tag), len(data)
        size = node_len + tag_len + data_len
        head = pack(_APPEND, own, topic_id, seq, ts, node_len, tag_len, data_len)
        body = head + node + tag + data
        sizes.append(FRAME_BYTES_MIN + size)
        pieces += (pack_length(FRAME_LEN_MIN + size), body, pack_checksum(checksum64(body)))
        seq += 1
    return Appends(b"".join(pieces), [0, *accumulate(sizes)][:-1], sizes)


def readdress(
    frames: Appends, topic_id: int, first_seq: int, times: Sequence[int] | None = None
) -> Appends:
    """The same records for another topic: new ids, seqs, times and checksums, by the column."""
    data = bytearray(frames.buffer)
    offsets = numpy.array(frames.offsets, numpy.int64)
    ends = offsets + numpy.array(frames.sizes, numpy.int64) - CHECKSUM_BYTES
    numbers = at_each_byte(data, "<u8")
    numbers[offsets + _TOPIC_AT] = topic_id
    numbers[offsets + _SEQ_AT] = numpy.arange(first_seq, first_seq + len(offsets))
    if times is not None:
        numbers[offsets + _TS_AT] = times
    numbers[ends] = hash_ranges(memoryview(data), offsets + _TYPE_AT, ends)
    del numbers
    return Appends(bytes(data), frames.offsets, frames.sizes)
