"""What the log says of a queue's leases, and what a snapshot remembers of them.

One LEASE frame is one event about one or more jobs: the worker is the frame's node, the moment its
ts. A time span is written, not a deadline: when it runs out is the frame's ts plus the span, and
never later than the span after the read back at a start. An ack is no event of its own: the job is
deleted, and the DELETE frame says so.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import msgspec

from headwater.core.errors import FormatError
from headwater.format.frame import Frame, FrameFlag, FrameType, UnknownFrameError, encode_frame
from headwater.format.layout import Field, Layout

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


@dataclass(frozen=True, slots=True)
class LeaseEvent:
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
    if got["connected"] > 1:
        raise FormatError("lease event: connected is neither 0 nor 1", frame.offset)
    count = got["count"]
    numbers = count * 2 if kind is LeaseKind.APPOINTED else count
    if len(frame.data) != LEASE.size + numbers * 8:
        raise FormatError(f"lease event about {count} jobs has the wrong size", frame.offset)
    values = struct.unpack_from(f"<{numbers}Q", frame.data, LEASE.size)
    try:
        node = frame.node.decode()
    except UnicodeDecodeError as error:
        raise FormatError("lease event: node is not UTF-8", frame.offset) from error
    return LeaseEvent(
        kind,
        values[:count],
        node,
        got["lease_id"],
        got["span_ms"],
        bool(got["connected"]),
        values[count:],
    )
