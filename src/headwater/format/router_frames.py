"""What the log says of routers, and what a snapshot remembers of them.

All frames about a router stand in the shard of its destination: so its definition, its marks and
the records it has left there have one order. Copies themselves are not in the log, unless something
else about the destination is: whatever is written about it is preceded, in the same group, by a
mark and the copies that the mark counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headwater.core.errors import FormatError
from headwater.format.frame import Frame, FrameFlag, FrameType, encode_frame
from headwater.format.layout import Field, Layout

ROUTER_MARK: Final = Layout(
    "router mark",
    (
        Field("router_id", "u64", "the router"),
        Field("number", "u64", "counts the marks of this router; the largest one holds"),
        Field("source_seq", "u64", "the source was read up to here"),
        Field("dest_seq", "u64", "when the destination ended here"),
        Field("forwarded_total", "u64", "copies it had made until then"),
    ),
)

SEQ_CEILING: Final = Layout(
    "seq ceiling",
    (
        Field("topic_id", "u64", "the topic"),
        Field("ceiling", "u64", "no seq of it up to here may be given to another record"),
    ),
)

ROUTER_PLACES: Final = Layout(
    "router places",
    (
        Field("lost", "u8", "1 when the source lost the records, 0 when it has none to copy"),
        Field("reserved", "pad7", ""),
    ),
)

ROUTER_FRAMES: Final = frozenset(
    {
        FrameType.ROUTER_CREATE,
        FrameType.ROUTER_DELETE,
        FrameType.ROUTER_MARK,
        FrameType.SEQ_CEILINGS,
    }
)
"""Frames that say which routers there are, how far each has come, and how far it may have."""


class RouterCreated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    router_id: int
    name: str
    source_id: int
    source_seq: int
    """Where it begins: records of the source up to here are not copied."""
    settings: dict[str, Any]


class RouterDeleted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    router_id: int


class RouterMeta(msgspec.Struct, frozen=True, array_like=True):
    router_id: int
    name: str
    source_id: int
    dest_id: int
    settings: dict[str, Any]
    number: int
    source_seq: int
    dest_seq: int
    forwarded_total: int


class RouterMark(NamedTuple):
    router_id: int
    number: int
    source_seq: int
    dest_seq: int
    forwarded_total: int


Body = TypeVar("Body", RouterCreated, RouterDeleted)


def encode_router_created(dest_id: int, body: RouterCreated, ts: int) -> bytes:
    return _encode_json(FrameType.ROUTER_CREATE, dest_id, body, ts)


def encode_router_deleted(dest_id: int, body: RouterDeleted, ts: int) -> bytes:
    return _encode_json(FrameType.ROUTER_DELETE, dest_id, body, ts)


def _encode_json(
    frame_type: FrameType, dest_id: int, body: RouterCreated | RouterDeleted, ts: int
) -> bytes:
    data = msgspec.json.encode(body)
    return encode_frame(frame_type, dest_id, ts=ts, flags=FrameFlag.DURABLE, data=data)


def decode_router_body(frame: Frame, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(frame.data, type=kind)
    except msgspec.MsgspecError as error:
        raise FormatError(f"{frame.type.name}: {error}", frame.offset) from error


def encode_router_marks(dest_id: int, marks: Iterable[RouterMark], ts: int) -> bytes:
    """`dest_id` is 0 for a frame with marks of routers into several topics."""
    data = b"".join(ROUTER_MARK.packer.pack(*mark) for mark in marks)
    flags = FrameFlag.DURABLE
    return encode_frame(FrameType.ROUTER_MARK, dest_id, ts=ts, flags=flags, data=data)


def decode_router_marks(frame: Frame) -> Iterator[RouterMark]:
    for values in _entries(ROUTER_MARK, frame):
        yield RouterMark(*values)


def encode_seq_ceilings(ceilings: Iterable[tuple[int, int]], ts: int) -> bytes:
    data = b"".join(SEQ_CEILING.packer.pack(*pair) for pair in ceilings)
    return encode_frame(FrameType.SEQ_CEILINGS, 0, ts=ts, flags=FrameFlag.DURABLE, data=data)


def decode_seq_ceilings(frame: Frame) -> Iterator[tuple[int, int]]:
    """Topic id and ceiling."""
    return ((topic_id, ceiling) for topic_id, ceiling in _entries(SEQ_CEILING, frame))


def encode_router_places(dest_id: int, last_seq: int, ts: int, *, lost: bool) -> bytes:
    """Places without a record, from the end of what stands before this frame up to `last_seq`."""
    data = ROUTER_PLACES.packer.pack(lost)
    return encode_frame(FrameType.ROUTER_PLACES, dest_id, seq=last_seq, ts=ts, data=data)


def decode_router_places(frame: Frame) -> bool:
    """Were their records lost?"""
    if len(frame.data) != ROUTER_PLACES.size:
        raise FormatError("router places have the wrong size", frame.offset)
    return bool(ROUTER_PLACES.unpack(frame.data)["lost"])


def _entries(layout: Layout, frame: Frame) -> Iterator[tuple[int, ...]]:
    if len(frame.data) % layout.size:
        raise FormatError(f"{frame.type.name} is not a whole number of entries", frame.offset)
    return layout.packer.iter_unpack(frame.data)
