"""Segment frames one by one. The program makes whole runs of them; a test compares the two."""

from __future__ import annotations

from headwater.format.checksum import checksum64
from headwater.format.frame import CHECKSUM_BYTES, LENGTH_BYTES
from headwater.format.segment import SEGMENT_FRAME, FrameState


def encode_segment_frame(
    seq: int,
    ts: int,
    *,
    flags: int = 0,
    node: bytes = b"",
    tag: bytes = b"",
    data: bytes = b"",
    state: FrameState = FrameState.LIVE,
) -> bytes:
    """One frame; `data` holds the meta too when the flags say so, as in a WAL frame."""
    head = SEGMENT_FRAME.packer.pack(0, flags, seq, ts, len(node), len(tag), len(data))
    body = b"".join((head[LENGTH_BYTES:], node, tag, data))
    length = (len(body) + CHECKSUM_BYTES).to_bytes(LENGTH_BYTES, "little")
    checksum = checksum64(body).to_bytes(CHECKSUM_BYTES, "little")
    return b"".join((length, body, checksum, bytes((state,))))
