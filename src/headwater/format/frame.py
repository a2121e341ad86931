"""WAL frames: one record or one control change each, length first, checksum last.

The layout is the seed's, byte for byte. Reading checks every length against what is really
there before anything is sliced, so hostile bytes cost nothing and raise only `FormatError`.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from functools import cache
from typing import Final, TypeAlias

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.layout import Field, Layout

FRAME: Final = Layout(
    "WAL frame",
    (
        Field("frame_len", "u32", "bytes of this frame, not counting this field"),
        Field("type", "u8", "what the frame is; see the frame types"),
        Field("flags", "u8", "bit 0 has_tag, bit 1 has_node, bit 2 durable, bit 3 has_meta"),
        Field("topic_id", "u64", "interned topic number; 0 where no topic is meant"),
        Field("seq", "u64", "the record's seq; 0 in control frames"),
        Field("ts", "u64", "commit time, milliseconds since 1970"),
        Field("node_len", "u16", "bytes of node"),
        Field("tag_len", "u16", "bytes of tag"),
        Field("data_len", "u32", "bytes of data and meta together"),
    ),
    tail=(
        ("node_len", "node", "who wrote it, UTF-8"),
        ("tag_len", "tag", "what it is about, UTF-8"),
        (
            "data_len",
            "data",
            "the payload as it was sent; with has_meta: data, then meta, then u32 bytes of meta",
        ),
        ("8", "xxh3", "XXH3-64, seed 0, over everything from `type` up to here"),
    ),
)


class FrameType(IntEnum):
    APPEND = 1
    TOPIC_CREATE = 2
    TOPIC_DELETE = 3
    ROUTER_CREATE = 4
    ROUTER_DELETE = 5
    DELETE = 6
    EVICT_WATERMARK = 7
    CHECKPOINT_MARK = 8
    CONFIG_UPDATE = 9
    LEASE = 10
    HEAD_WATERMARK = 11
    COMMIT_MARK = 12
    IDEMPOTENCY = 13
    ROUTER_MARK = 14
    ROUTER_PLACES = 15
    SEQ_CEILINGS = 16


FRAME_TYPE_MEANING: Final[dict[FrameType, str]] = {
    FrameType.APPEND: "a record: seq, ts, node, tag, payload",
    FrameType.TOPIC_CREATE: "a topic with its name and settings",
    FrameType.TOPIC_DELETE: "a topic is gone",
    FrameType.ROUTER_CREATE: "a router is defined",
    FrameType.ROUTER_DELETE: "a router is removed",
    FrameType.DELETE: "records deleted for good: what chose them, or the jobs that are done",
    FrameType.EVICT_WATERMARK: "records lost to a cap or an age: the floor that tombstones tell of",
    FrameType.CHECKPOINT_MARK: "which seqs are in segments",
    FrameType.CONFIG_UPDATE: "new settings of a topic",
    FrameType.LEASE: "what happens to the jobs of a queue; see the lease event",
    FrameType.HEAD_WATERMARK: "no seq up to this ceiling is handed out again",
    FrameType.COMMIT_MARK: "first frame of every group write; see the commit mark",
    FrameType.IDEMPOTENCY: "a key and the seqs it stands for, in the group of those records",
    FrameType.ROUTER_MARK: "how far routers have come, with what stands in their destinations",
    FrameType.ROUTER_PLACES: "seqs of a destination that have no record, up to the frame's seq",
    FrameType.SEQ_CEILINGS: "as HEAD_WATERMARK, for many topics at once",
}


class FrameFlag(IntFlag):
    HAS_TAG = 1
    HAS_NODE = 2
    DURABLE = 4
    HAS_META = 8


_KNOWN_FLAGS: Final = sum(FrameFlag)
_KNOWN_TYPES: Final = {int(kind): kind for kind in FrameType}
_ALIKE_MIN: Final = 64
_PATIENCE_MAX: Final = 1_024
"""Frames that are read one by one before the next check of whether they are alike."""

_LENGTH: Final = struct.Struct("<I")
_CHECKSUM: Final = struct.Struct("<Q")
_HEAD_PACK: Final = FRAME.packer.pack
_HEAD_UNPACK: Final = FRAME.packer.unpack_from
_CHECKSUM_PACK: Final = _CHECKSUM.pack

CHECKSUM_BYTES: Final = _CHECKSUM.size
LENGTH_BYTES: Final = _LENGTH.size


FrameParts: TypeAlias = tuple[int, tuple[int, ...], bytes, bytes, bytes]
"""The size of a frame, its fixed fields but for the lengths, then node, tag and data. Plain: the
frames of a whole log are read so."""


class FrameForm:
    """What frames of the log and of segments have in common: a length, fixed fields of which the
    last are the lengths of node, tag and data, those three, a checksum over all behind the first
    length, and so many bytes `behind`."""

    def __init__(self, layout: Layout, behind: int = 0) -> None:
        self._head_size = layout.size
        self._behind = behind
        self._after_length = struct.Struct("<" + layout.packer.format.removeprefix("<I"))
        self.len_min: Final = self._after_length.size + CHECKSUM_BYTES
        """What `frame_len` says of a frame with empty node, tag and data."""
        self.bytes_min: Final = LENGTH_BYTES + self.len_min + behind
        """The smallest whole frame."""

    def size_at(self, buffer: memoryview, offset: int, end: int) -> int:
        """The whole size of the frame at `offset`, or FormatError when it cannot be one."""
        if offset < 0 or end > len(buffer) or end - offset < self.bytes_min:
            raise FormatError("no room for a frame", offset)
        length = int(_LENGTH.unpack_from(buffer, offset)[0])
        if length < self.len_min:
            raise FormatError(f"frame_len {length} is too small", offset)
        if length > end - offset - LENGTH_BYTES - self._behind:
            raise FormatError(f"frame_len {length} runs past the end", offset)
        return length + LENGTH_BYTES + self._behind

    def parts_at(self, buffer: memoryview, offset: int, end: int, *, verify: bool) -> FrameParts:
        """Read one frame after a check of its lengths and its checksum, in this order."""
        size = self.size_at(buffer, offset, end)
        border = offset + size - self._behind - CHECKSUM_BYTES
        if verify:
            expected = int(_CHECKSUM.unpack_from(buffer, border)[0])
            if checksum64(buffer[offset + LENGTH_BYTES : border]) != expected:
                raise FormatError("checksum does not match", offset)
        fields = self._after_length.unpack_from(buffer, offset + LENGTH_BYTES)
        node_len, tag_len, data_len = fields[-3:]
        if self.bytes_min + node_len + tag_len + data_len != size:
            raise FormatError("node, tag and data do not add up to frame_len", offset)
        at = offset + self._head_size
        tag_at = at + node_len
        data_at = tag_at + tag_len
        node, tag = bytes(buffer[at:tag_at]), bytes(buffer[tag_at:data_at])
        return size, fields[:-3], node, tag, bytes(buffer[data_at:border])


_FORM: Final = FrameForm(FRAME)
FRAME_LEN_MIN: Final = _FORM.len_min
"""42."""
FRAME_BYTES_MIN: Final = _FORM.bytes_min
"""46."""


@cache
def known_types() -> NDArray[numpy.bool_]:
    """Of each byte whether it is the type of a frame."""
    return numpy.isin(numpy.arange(256), list(_KNOWN_TYPES))


class UnknownFrameError(FormatError):
    """A whole frame, checksum and all, of a type this version does not know."""


class Frame(msgspec.Struct, frozen=True):
    """A decoded frame. `offset` and `size` say where it lay in the buffer it came from."""

    type: FrameType
    flags: int
    topic_id: int
    seq: int
    ts: int
    node: bytes
    tag: bytes
    data: bytes
    offset: int
    size: int

    def split_data(self) -> tuple[bytes, bytes | None]:
        """The payload and, when there is one, the meta."""
        return split_data(self.flags, self.data, self.offset)


def encode_frame(
    frame_type: int,
    topic_id: int,
    *,
    seq: int = 0,
    ts: int = 0,
    flags: int = 0,
    node: bytes = b"",
    tag: bytes = b"",
    data: bytes = b"",
) -> bytes:
    node_len, tag_len, data_len = len(node), len(tag), len(data)
    length = FRAME_LEN_MIN + node_len + tag_len + data_len
    head = _HEAD_PACK(
        length, frame_type, flags, topic_id, seq, ts, node_len, tag_len, data_len
    )  # fmt: skip
    frame = b"".join((head, node, tag, data))
    return frame + _CHECKSUM_PACK(checksum64(frame[LENGTH_BYTES:]))


def join_data(data: bytes, meta: bytes | None) -> bytes:
    """The `data` part of a frame. With meta, the frame carries HAS_META."""
    return data if meta is None else b"".join((data, meta, _LENGTH.pack(len(meta))))


def split_data(flags: int, data: bytes, offset: int = 0) -> tuple[bytes, bytes | None]:
    if not flags & FrameFlag.HAS_META:
        return data, None
    border = len(data) - _LENGTH.size
    if border < 0:
        raise FormatError("meta length is missing", offset)
    start = border - int(_LENGTH.unpack_from(data, border)[0])
    if start < 0:
        raise FormatError("meta is longer than the data it is part of", offset)
    return data[:start], data[start:border]


def decode_frame(buffer: memoryview, offset: int, end: int, *, verify: bool = True) -> Frame:
    """Read and verify one frame: lengths, checksum, type, flags, in this order.

    `verify=False` leaves out the checksum, for bytes whose group hash was just checked.
    """
    size, head, node, tag, data = _FORM.parts_at(buffer, offset, end, verify=verify)
    kind, flags, topic_id, seq, ts = head
    if kind not in _KNOWN_TYPES:
        raise UnknownFrameError(f"frame type {kind} is not known", offset)
    if flags & ~_KNOWN_FLAGS:
        raise UnknownFrameError(f"frame flags {flags:#04x} are not known", offset)
    frame_type = _KNOWN_TYPES[kind]
    return Frame(frame_type, flags, topic_id, seq, ts, node, tag, data, offset, size)


def skim_frames(buffer: memoryview, start: int, end: int) -> int:
    """Count the frames that fill a stretch exactly, all of known types and flags.

    Checks what `decode_frame` checks but for the checksums, and makes no objects. The error is
    the one `decode_frame` gives for the first bad frame.
    """
    at, count, patience = start, 0, 1
    while at < end:
        walked, at, size = _walk_frames(buffer, at, end, patience)
        if not walked:
            decode_frame(buffer, at, end, verify=False)
            raise FormatError("a frame cannot be read", at)  # never reached: two verdicts on one
        count += walked
        most = _ALIKE_MIN
        while (run := _run_alike(buffer, at, end, size, most)) == most:
            at += run * size
            count += run
            most *= 8
        at += run * size
        count += run
        # Records of one length come in thousands; where they do not, looking for them is no use.
        patience = 1 if most > _ALIKE_MIN else min(2 * patience, _PATIENCE_MAX)
    return count


def _walk_frames(buffer: memoryview, at: int, end: int, most: int) -> tuple[int, int, int]:
    """Up to so many sound frames, one by one: how many, where they end, the size of the last."""
    last = end - FRAME_BYTES_MIN
    count = size = 0
    while at <= last and count < most:
        length, kind, flags, _, _, _, node_len, tag_len, data_len = _HEAD_UNPACK(buffer, at)
        after = at + LENGTH_BYTES + length
        if (
            length != FRAME_LEN_MIN + node_len + tag_len + data_len
            or after > end
            or kind not in _KNOWN_TYPES
            or flags & ~_KNOWN_FLAGS
        ):
            break
        size = after - at
        at = after
        count += 1
    return count, at, size


def _run_alike(buffer: memoryview, at: int, end: int, size: int, most: int) -> int:
    """How many sound frames of this size follow each other from here on; no more than `most`."""
    count = min((end - at) // size, most)
    heads = numpy.ndarray((count,), FRAME.dtype, buffer, at, (size,))
    parts = heads["data_len"] + heads["node_len"].astype(numpy.int64) + heads["tag_len"]
    sound = (heads["frame_len"] == size - LENGTH_BYTES) & (parts == size - FRAME_BYTES_MIN)
    sound &= known_types()[heads["type"]] & (heads["flags"] | _KNOWN_FLAGS == _KNOWN_FLAGS)
    return count if sound.all() else int(sound.argmin())
