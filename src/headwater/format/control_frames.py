"""Bodies of the control frames: what the log says of topics, their records, routers and leases.

What is small and rare is JSON, so that `headwater show` can print it as it is; the rest are fixed
layouts, or rows of one. A body with a field this version does not know is refused: guessing what a
newer version meant would be worse than not starting. Frames say which topic they are about; an
idempotency key travels in the frame's tag.

All frames about a router stand in the shard of its destination: so its definition, its marks and
the records it has left there have one order. Copies themselves are not in the log, unless something
else about the destination is: whatever is written about it is preceded, in the same group, by a
mark and the copies that the mark counts.

One LEASE frame is one event about one or more jobs: the worker is the frame's node, the moment its
ts. A time span is written, not a deadline: when it runs out is the frame's ts plus the span, and
never later than the span after the read back at a start. An ack is no event of its own: the job is
deleted, and the DELETE frame says so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from headwater.core.errors import FormatError
from headwater.format.frame import Frame, FrameFlag, FrameType, UnknownFrameError, encode_frame
from headwater.format.layout import Field, Layout
from headwater.format.mark import COMMIT_MARK

# -- what the frames have in common


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


class RouterCreated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    router_id: int
    name: str
    source_id: int
    source_seq: int
    """Where it begins: records of the source up to here are not copied."""
    settings: dict[str, Any]


class RouterDeleted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    router_id: int


Body = TypeVar("Body", TopicCreated, SettingsChanged, RecordsDeleted, RouterCreated, RouterDeleted)


def encode_body(frame_type: FrameType, topic_id: int, ts: int, body: Body | None) -> bytes:
    """A frame whose body is JSON. `topic_id` of a router's frames is its destination's."""
    data = b"" if body is None else msgspec.json.encode(body)
    return encode_frame(frame_type, topic_id, ts=ts, flags=FrameFlag.DURABLE, data=data)


def decode_body(frame: Frame, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(frame.data, type=kind)
    except msgspec.MsgspecError as error:
        raise FormatError(f"{frame.type.name}: {error}", frame.offset) from error


def _fields(layout: Layout, frame: Frame) -> dict[str, int]:
    """Of a body that is one fixed layout."""
    if len(frame.data) != layout.size:
        raise FormatError(f"{layout.name} body has {len(frame.data)} bytes", frame.offset)
    return layout.unpack(frame.data)


def _is_set(layout: Layout, frame: Frame, fields: dict[str, int], name: str) -> bool:
    if fields[name] > 1:
        raise FormatError(f"{layout.name}: {name} is neither 0 nor 1", frame.offset)
    return bool(fields[name])


def _rows(layout: Layout, frame: Frame) -> Iterator[tuple[int, ...]]:
    """Of a body that is any number of them."""
    if len(frame.data) % layout.size:
        raise FormatError(f"{frame.type.name} is not a whole number of entries", frame.offset)
    return layout.packer.iter_unpack(frame.data)


# -- topics and their records

HEAD_WATERMARK: Final = Layout(
    "head watermark",
    (Field("ceiling", "u64", "no seq of this topic up to here may be handed out again"),),
)

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


class CheckpointEntry(msgspec.Struct, frozen=True):
    topic_id: int
    checkpointed_seq: int
    evict_floor: int
    earliest_seq: int
    active_first_seq: int
    active_data_bytes: int


class IdempotencyEntry(msgspec.Struct, frozen=True, array_like=True):
    """A key and the records written under it. In snapshots it is a list in this order."""

    key: bytes
    first_seq: int
    last_seq: int
    expires_ts: int
    created: bool


def encode_head_watermark(topic_id: int, ceiling: int, ts: int) -> bytes:
    data = HEAD_WATERMARK.packer.pack(ceiling)
    kind, flags = FrameType.HEAD_WATERMARK, FrameFlag.DURABLE
    return encode_frame(kind, topic_id, ts=ts, flags=flags, data=data)


def decode_head_watermark(frame: Frame) -> int:
    return _fields(HEAD_WATERMARK, frame)["ceiling"]


def encode_evict_watermark(
    topic_id: int, ts: int, evict_floor: int, earliest_seq: int, reason: int
) -> bytes:
    data = EVICT_WATERMARK.packer.pack(evict_floor, earliest_seq, reason)
    return encode_frame(FrameType.EVICT_WATERMARK, topic_id, ts=ts, data=data)


def decode_evict_watermark(frame: Frame) -> tuple[int, int, int]:
    """evict_floor, earliest_seq, reason."""
    got = _fields(EVICT_WATERMARK, frame)
    return got["evict_floor"], got["earliest_seq"], got["reason"]


def encode_checkpoint_mark(entries: Iterable[CheckpointEntry], ts: int) -> bytes:
    pack = CHECKPOINT_ENTRY.packer.pack
    data = b"".join(pack(*msgspec.structs.astuple(entry)) for entry in entries)
    return encode_frame(FrameType.CHECKPOINT_MARK, 0, ts=ts, flags=FrameFlag.DURABLE, data=data)


def decode_checkpoint_mark(frame: Frame) -> Iterator[CheckpointEntry]:
    return (CheckpointEntry(*values) for values in _rows(CHECKPOINT_ENTRY, frame))


def encode_idempotency(topic_id: int, entry: IdempotencyEntry, ts: int) -> bytes:
    data = IDEMPOTENCY.packer.pack(*msgspec.structs.astuple(entry)[1:])
    kind, flags = FrameType.IDEMPOTENCY, FrameFlag.HAS_TAG
    return encode_frame(kind, topic_id, ts=ts, flags=flags, tag=entry.key, data=data)


def decode_idempotency(frame: Frame) -> IdempotencyEntry:
    got = _fields(IDEMPOTENCY, frame)
    created = _is_set(IDEMPOTENCY, frame, got, "created")
    return IdempotencyEntry(
        frame.tag, got["first_seq"], got["last_seq"], got["expires_ts"], created
    )


# -- routers

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


class RouterMeta(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot remembers of a router."""

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


def encode_router_marks(dest_id: int, marks: Iterable[RouterMark], ts: int) -> bytes:
    """`dest_id` is 0 for a frame with marks of routers into several topics."""
    data = b"".join(ROUTER_MARK.packer.pack(*mark) for mark in marks)
    flags = FrameFlag.DURABLE
    return encode_frame(FrameType.ROUTER_MARK, dest_id, ts=ts, flags=flags, data=data)


def decode_router_marks(frame: Frame) -> Iterator[RouterMark]:
    return (RouterMark(*values) for values in _rows(ROUTER_MARK, frame))


def encode_seq_ceilings(ceilings: Iterable[tuple[int, int]], ts: int) -> bytes:
    data = b"".join(SEQ_CEILING.packer.pack(*pair) for pair in ceilings)
    return encode_frame(FrameType.SEQ_CEILINGS, 0, ts=ts, flags=FrameFlag.DURABLE, data=data)


def decode_seq_ceilings(frame: Frame) -> Iterator[tuple[int, int]]:
    """Topic id and ceiling."""
    return ((topic_id, ceiling) for topic_id, ceiling in _rows(SEQ_CEILING, frame))


def encode_router_places(dest_id: int, last_seq: int, ts: int, *, lost: bool) -> bytes:
    """Places without a record, from the end of what stands before this frame up to `last_seq`."""
    data = ROUTER_PLACES.packer.pack(lost)
    return encode_frame(FrameType.ROUTER_PLACES, dest_id, seq=last_seq, ts=ts, data=data)


def decode_router_places(frame: Frame) -> bool:
    """Were their records lost?"""
    return bool(_fields(ROUTER_PLACES, frame)["lost"])


# -- leases of a queue's jobs

LEASE: Final = Layout(
    "lease event",
    (
        Field("kind", "u8", "what happened; see the kinds of lease events"),
        Field("connected", "u8", "1 when the claim ends with the connection it was made on"),
        Field("reserved", "pad2", ""),
        Field("count", "u32", "how many jobs it is about"),
        Field(
            "lease_id",
            "u64",
            "the claim's number, its fence; kind 5: how many jobs were put away, these "
            "included; 0 where none is meant",
        ),
        Field("span_ms", "u64", "how long it holds or is kept back; 0 where neither is meant"),
    ),
    tail=(
        ("count x 8", "seqs", "the jobs, u64 each"),
        ("count x 8", "times", "kind 4 only: when each may be delivered, ms since 1970"),
    ),
)


class LeaseKind(IntEnum):
    CLAIMED = 1
    RETURNED = 2
    EXTENDED = 3
    APPOINTED = 4
    DEAD_LETTERED = 5
    NUMBERED = 6


LEASE_KIND_MEANING: Final[dict[LeaseKind, str]] = {
    LeaseKind.CLAIMED: "a worker holds the jobs for span_ms; each was delivered once more",
    LeaseKind.RETURNED: "given back; ready again after span_ms",
    LeaseKind.EXTENDED: "held for span_ms from now, under the number they have",
    LeaseKind.APPOINTED: "new jobs that may not be delivered before their times",
    LeaseKind.DEAD_LETTERED: "delivered too often; copied to the dead letter topic and deleted",
    LeaseKind.NUMBERED: "no claim is given a number up to lease_id again",
}


class LeaseEvent(msgspec.Struct, frozen=True):
    kind: LeaseKind
    seqs: tuple[int, ...] = ()
    node: str = ""
    lease_id: int = 0
    span_ms: int = 0
    connected: bool = False
    times: tuple[int, ...] = ()


class GrantMeta(msgspec.Struct, frozen=True, array_like=True):
    """Jobs held together: until `until_ms`, but at most for `span_ms` from the reading on."""

    lease_id: int
    node: str
    until_ms: int
    span_ms: int
    connected: bool
    seqs: tuple[int, ...]


class DelayMeta(msgspec.Struct, frozen=True, array_like=True):
    """A job that is kept back: until `until_ms`, but at most for `span_ms`."""

    seq: int
    until_ms: int
    span_ms: int


class QueueMeta(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot remembers of a queue's leases."""

    next_lease_id: int = 1
    dead_lettered: int = 0
    grants: tuple[GrantMeta, ...] = ()
    returned: tuple[tuple[int, int], ...] = ()
    """Deliveries that came to nothing, by seq."""
    delays: tuple[DelayMeta, ...] = ()
    scheduled: tuple[tuple[int, int], ...] = ()
    """When a job may be delivered, by seq; wall clock ms."""
    ceiling: int = 0
    """No claim is given a number up to here again, though not all of them were used."""


def encode_lease_event(topic_id: int, event: LeaseEvent, ts: int) -> bytes:
    seqs = event.seqs
    head = LEASE.packer.pack(event.kind, event.connected, len(seqs), event.lease_id, event.span_ms)
    node = event.node.encode()
    flags = FrameFlag.HAS_NODE if node else 0
    values = seqs + event.times
    data = head + struct.pack(f"<{len(values)}Q", *values)
    return encode_frame(FrameType.LEASE, topic_id, ts=ts, flags=flags, node=node, data=data)


def decode_lease_event(frame: Frame) -> LeaseEvent:
    if len(frame.data) < LEASE.size:
        raise FormatError("lease event is too short", frame.offset)
    got = LEASE.unpack(frame.data)
    try:
        kind = LeaseKind(got["kind"])
    except ValueError as error:
        raise UnknownFrameError(f"lease event {got['kind']} is not known", frame.offset) from error
    connected = _is_set(LEASE, frame, got, "connected")
    count = got["count"]
    numbers = count * 2 if kind is LeaseKind.APPOINTED else count
    if len(frame.data) != LEASE.size + numbers * 8:
        raise FormatError(f"lease event about {count} jobs has the wrong size", frame.offset)
    values = struct.unpack_from(f"<{numbers}Q", frame.data, LEASE.size)
    try:
        node = frame.node.decode()
    except UnicodeDecodeError as error:
        raise FormatError("lease event: node is not UTF-8", frame.offset) from error
    seqs, times = values[:count], values[count:]
    return LeaseEvent(kind, seqs, node, got["lease_id"], got["span_ms"], connected, times)


# -- for people

FRAME_BODIES: Final[dict[FrameType, Layout]] = {
    FrameType.EVICT_WATERMARK: EVICT_WATERMARK,
    FrameType.HEAD_WATERMARK: HEAD_WATERMARK,
    FrameType.COMMIT_MARK: COMMIT_MARK,
    FrameType.IDEMPOTENCY: IDEMPOTENCY,
    FrameType.ROUTER_PLACES: ROUTER_PLACES,
}
"""Which frames have a body of fixed fields, so that a reader can name them."""


def body_fields(frame: Frame) -> dict[str, int] | None:
    """The body by field name, or None for a frame whose data is not made of fields."""
    layout = FRAME_BODIES.get(frame.type)
    try:
        return None if layout is None else _fields(layout, frame)
    except FormatError:
        return None
