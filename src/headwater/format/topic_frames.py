"""Bodies of the control frames about topics: created, changed, deleted from, evicted, checkpointed.

What is small and rare is JSON, so that `headwater show` can print it as it is; floors and
checkpoints are fixed layouts. A body with a field this version does not know is refused: guessing
what a newer version meant would be worse than not starting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from headwater.core.errors import FormatError
from headwater.format.frame import Frame, FrameFlag, FrameType, encode_frame
from headwater.format.layout import Field, Layout

EVICT_WATERMARK: Final = Layout(
    "evict watermark",
    (
        Field("evict_floor", "u64", "the first seq that was not lost to a cap or an age"),
        Field("earliest_seq", "u64", "the first live seq"),
        Field("reason", "u8", "1 cap, 2 age, 3 both"),
        Field("reserved", "pad7", ""),
    ),
)

CHECKPOINT_ENTRY: Final = Layout(
    "checkpoint entry",
    (
        Field("topic_id", "u64", "the topic"),
        Field("checkpointed_seq", "u64", "everything up to this seq is in segments"),
        Field("evict_floor", "u64", "the first seq that was not lost to a cap or an age"),
        Field("earliest_seq", "u64", "the first live seq"),
        Field("active_first_seq", "u64", "first seq of the active segment; 0 when there is none"),
        Field("active_data_bytes", "u64", "length of the active segment's .data"),
    ),
)


class TopicCreated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    epoch: int
    settings: dict[str, Any]


class SettingsChanged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, Any]


class RecordsDeleted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The predicate, and the head at that moment: later records are not meant."""

    upto_seq: int
    before_seq: int | None = None
    match: str | None = None
    """A tag, or the beginning of a tag with a star behind it."""
    prefix: bool = False
    seqs: tuple[int, ...] = ()
    """Jobs of a queue that are done, or what a tag chose, by seq. The other fields then name
    nothing: 0, 0, None."""


class CheckpointEntry(msgspec.Struct, frozen=True):
    topic_id: int
    checkpointed_seq: int
    evict_floor: int
    earliest_seq: int
    active_first_seq: int
    active_data_bytes: int


Body = TypeVar("Body", TopicCreated, SettingsChanged, RecordsDeleted)


def encode_body(
    frame_type: FrameType,
    topic_id: int,
    ts: int,
    body: TopicCreated | SettingsChanged | RecordsDeleted | None,
) -> bytes:
    data = b"" if body is None else msgspec.json.encode(body)
    return encode_frame(frame_type, topic_id, ts=ts, flags=FrameFlag.DURABLE, data=data)


def decode_body(frame: Frame, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(frame.data, type=kind)
    except msgspec.MsgspecError as error:
        raise FormatError(f"{frame.type.name}: {error}", frame.offset) from error


def encode_evict_watermark(
    topic_id: int, ts: int, evict_floor: int, earliest_seq: int, reason: int
) -> bytes:
    return encode_frame(
        FrameType.EVICT_WATERMARK,
        topic_id,
        ts=ts,
        data=EVICT_WATERMARK.packer.pack(evict_floor, earliest_seq, reason),
    )


def decode_evict_watermark(frame: Frame) -> tuple[int, int, int]:
    """evict_floor, earliest_seq, reason."""
    if len(frame.data) != EVICT_WATERMARK.size:
        raise FormatError("evict watermark has the wrong size", frame.offset)
    got = EVICT_WATERMARK.unpack(frame.data)
    return got["evict_floor"], got["earliest_seq"], got["reason"]


def encode_checkpoint_mark(entries: Iterable[CheckpointEntry], ts: int) -> bytes:
    pack = CHECKPOINT_ENTRY.packer.pack
    data = b"".join(pack(*msgspec.structs.astuple(entry)) for entry in entries)
    return encode_frame(FrameType.CHECKPOINT_MARK, 0, ts=ts, flags=FrameFlag.DURABLE, data=data)


def decode_checkpoint_mark(frame: Frame) -> Iterator[CheckpointEntry]:
    if len(frame.data) % CHECKPOINT_ENTRY.size:
        raise FormatError("checkpoint mark is not a whole number of entries", frame.offset)
    for values in CHECKPOINT_ENTRY.packer.iter_unpack(frame.data):
        yield CheckpointEntry(*values)
