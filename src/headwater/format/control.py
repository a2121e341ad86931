"""Bodies of the control frames the log itself writes or reads back at recovery.

`HEAD_WATERMARK` and `IDEMPOTENCY` are fixed layouts. Their frames say which topic they are about;
an idempotency key travels in the frame's tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headwater.core.errors import FormatError
from headwater.format.frame import Frame, FrameFlag, FrameType, encode_frame
from headwater.format.layout import Field, Layout

HEAD_WATERMARK: Final = Layout(
    "head watermark",
    (Field("ceiling", "u64", "no seq of this topic up to here may be handed out again"),),
)

IDEMPOTENCY: Final = Layout(
    "idempotency",
    (
        Field("first_seq", "u64", "first seq written under the key"),
        Field("last_seq", "u64", "last seq written under the key"),
        Field("expires_ts", "u64", "wall clock ms after which the key may be forgotten"),
        Field("created", "u8", "1 when that write also created the topic"),
        Field("reserved", "pad7", ""),
    ),
)


@dataclass(frozen=True, slots=True)
class IdempotencyEntry:
    key: bytes
    first_seq: int
    last_seq: int
    expires_ts: int
    created: bool


def encode_head_watermark(topic_id: int, ceiling: int, ts: int) -> bytes:
    return encode_frame(
        FrameType.HEAD_WATERMARK,
        topic_id,
        ts=ts,
        flags=FrameFlag.DURABLE,
        data=HEAD_WATERMARK.packer.pack(ceiling),
    )


def decode_head_watermark(frame: Frame) -> int:
    return _fields(HEAD_WATERMARK, frame)["ceiling"]


def encode_idempotency(topic_id: int, entry: IdempotencyEntry, ts: int) -> bytes:
    return encode_frame(
        FrameType.IDEMPOTENCY,
        topic_id,
        ts=ts,
        flags=FrameFlag.HAS_TAG,
        tag=entry.key,
        data=IDEMPOTENCY.packer.pack(
            entry.first_seq, entry.last_seq, entry.expires_ts, entry.created
        ),
    )


def decode_idempotency(frame: Frame) -> IdempotencyEntry:
    got = _fields(IDEMPOTENCY, frame)
    if got["created"] > 1:
        raise FormatError("idempotency: created is neither 0 nor 1", frame.offset)
    return IdempotencyEntry(
        frame.tag, got["first_seq"], got["last_seq"], got["expires_ts"], bool(got["created"])
    )


def _fields(layout: Layout, frame: Frame) -> dict[str, int]:
    if len(frame.data) != layout.size:
        raise FormatError(f"{layout.name} body has {len(frame.data)} bytes", frame.offset)
    return layout.unpack(frame.data)
