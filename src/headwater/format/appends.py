"""Many append frames at once: the columns of batches in, their frames out.

The same bytes as `encode_frame` gives one by one (a test holds them together), column by column
so that the loops are the interpreter's own. Most records have neither node nor tag; they are
separated once for a batch. Making the heads as one numpy column was tried and is not faster: the
slices for the checksums cost more than the packing saves. Where it is compiled, it is a plain loop.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add
from typing import Final, NamedTuple

from headwater.core.arrays import numpy
from headwater.format.checksum import checksum64
from headwater.format.frame import CHECKSUM_BYTES, FRAME, FRAME_BYTES_MIN, FrameType
from headwater.format.segment.frame import SEGMENT_FRAME_BYTES_MIN
from headwater.format.segment.run import at_each_byte, hash_ranges
from headwater.native import compiled

_native: Final = compiled("frames")
_LENGTH: Final = struct.Struct("<I")
_AFTER_LENGTH: Final = struct.Struct("<" + FRAME.packer.format.removeprefix("<I"))
_CHECKSUM: Final = struct.Struct("<Q")
_BETWEEN: Final = struct.Struct("<QI")
"""The checksum of one frame and the length of the next."""
_APPEND: Final = int(FrameType.APPEND)
_AT_START: Final = [0]
SEGMENT_SHIFT: Final = SEGMENT_FRAME_BYTES_MIN - FRAME_BYTES_MIN
"""A record's frame in a segment is this much longer (it is negative) than in the log."""
_TYPE_AT: Final = FRAME.offset_of("type")
_TOPIC_AT: Final = FRAME.offset_of("topic_id")
_SEQ_AT: Final = FRAME.offset_of("seq")
_TS_AT: Final = FRAME.offset_of("ts")


class Appends(NamedTuple):
    buffer: bytes
    offsets: list[int]
    """Where each frame begins."""
    sizes: list[int]


# Plain tuples: they are made and taken apart for every topic of every turn.
Columns = tuple[int, int, int, int, list[int], list[bytes], list[bytes], list[bytes]]
"""Records of one topic and one moment: topic id, first seq, time, flags of all; then, equally long,
flags, nodes, tags and datas."""
FramesOfBatch = tuple[bytes, list[int], list[int], list[int]]
"""Their frames, where each begins, how long each will be in a segment, and its flags."""


def encode_batches(batches: list[Columns]) -> list[FramesOfBatch]:
    """The frames of several batches, each with a buffer of its own: what one turn of the loop
    brings is encoded with one call, and what is kept of a topic keeps no other topic's bytes."""
    if _native is not None:
        encoded: list[FramesOfBatch] = _native.encode_batches(batches, SEGMENT_SHIFT)
        return encoded
    return [_encode_batch(batch) for batch in batches]


def _encode_batch(columns: Columns) -> FramesOfBatch:
    topic_id, first_seq, ts, flags_of_all, flags, nodes, tags, datas = columns
    flags = [flags_of_all | own for own in flags]
    made = encode_appends(topic_id, first_seq, [ts] * len(datas), flags, nodes, tags, datas)
    return made.buffer, made.offsets, [size + SEGMENT_SHIFT for size in made.sizes], flags


def encode_appends(
    topic_id: int,
    first_seq: int,
    times: Sequence[int],
    flags: Sequence[int],
    nodes: Sequence[bytes],
    tags: Sequence[bytes],
    datas: Sequence[bytes],
) -> Appends:
    """The frames of records `first_seq`, `first_seq + 1` and so on. All columns equally long."""
    count = len(datas)
    if not len(times) == len(flags) == len(nodes) == len(tags) == count:
        raise ValueError("the columns of a batch are equally long")
    if not count:
        return Appends(b"", [], [])
    if _native is not None:
        columns = _native.encode_appends(topic_id, first_seq, times, flags, nodes, tags, datas)
        return Appends(*columns)
    if count == 1:
        return _encode_one(topic_id, first_seq, times[0], flags[0], nodes[0], tags[0], datas[0])
    sizes = list(map(len, datas))
    has_more = any(nodes) or any(tags)
    node_lens = map(len, nodes) if has_more else repeat(0)
    tag_lens = map(len, tags) if has_more else repeat(0)
    seqs = range(first_seq, first_seq + count)
    heads = map(
        _AFTER_LENGTH.pack, repeat(_APPEND), flags, repeat(topic_id), seqs, times, node_lens,
        tag_lens, sizes,
    )  # fmt: skip
    if has_more:
        bodies = [b"".join(body) for body in zip(heads, nodes, tags, datas, strict=True)]
    else:
        bodies = list(map(add, heads, datas))
    return _framed(bodies)


def _framed(bodies: Sequence[bytes]) -> Appends:
    """Lengths before and checksums behind. What ends a frame and begins the next is one part."""
    lengths = [len(body) + CHECKSUM_BYTES for body in bodies]
    parts = [b""] * (2 * len(bodies) + 1)
    parts[0] = _LENGTH.pack(lengths[0])
    parts[1::2] = bodies
    parts[2::2] = map(_BETWEEN.pack, map(checksum64, bodies), [*lengths[1:], 0])
    parts[-1] = parts[-1][:CHECKSUM_BYTES]
    sizes = [_LENGTH.size + length for length in lengths]
    return Appends(b"".join(parts), [0, *accumulate(sizes)][:-1], sizes)


def _encode_one(
    topic_id: int, seq: int, ts: int, flags: int, node: bytes, tag: bytes, data: bytes
) -> Appends:
    """A lone record is what most writes are: without the columns it takes half the time."""
    head = _AFTER_LENGTH.pack(_APPEND, flags, topic_id, seq, ts, len(node), len(tag), len(data))
    body = head + node + tag + data if node or tag else head + data
    length = len(body) + CHECKSUM_BYTES
    frame = _LENGTH.pack(length) + body + _CHECKSUM.pack(checksum64(body))
    return Appends(frame, _AT_START, [len(frame)])


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
