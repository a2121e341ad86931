"""What the log says about itself: topics, groups and their offsets, log starts, producer ids.

An event is a record batch of our own among the data, in organisation 0: it shares the order and
the sync of the records it is about. It has one record, whose value is the event in msgpack.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.core.errors import FormatError
from headwater.format.kafka.batch import HEADER_BYTES, Bytes, seal_batch
from headwater.format.kafka.entry import entry_key, topic_hash

INTERNAL_ORG: Final = 0
INTERNAL_TOPIC: Final = "__headwater"
INTERNAL_KEY: Final = entry_key(INTERNAL_ORG, topic_hash(INTERNAL_ORG, INTERNAL_TOPIC), 0)


class Event(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The tag in front of the fields names the event: none is ever given again."""


class TopicMadeEvent(Event, frozen=True, tag="topic_made"):
    org: int
    name: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str]


class TopicDroppedEvent(Event, frozen=True, tag="topic_dropped"):
    topic_id: bytes


class PartitionsAdded(Event, frozen=True, tag="partitions_added"):
    topic_id: bytes
    total: int


class ConfigsSet(Event, frozen=True, tag="configs_set"):
    topic_id: bytes
    configs: dict[str, str]


class LogStartMoved(Event, frozen=True, tag="log_start_moved"):
    topic_id: bytes
    partition: int
    offset: int


class OffsetRow(msgspec.Struct, frozen=True, array_like=True):
    """How far a group is in one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    time_ms: int
    topic_epoch: int = 0
    """Which topic of that name, where the log does not know: 0 for topics of its own, whose end it
    was told."""


class OffsetsCommitted(Event, frozen=True, tag="offsets_committed"):
    org: int
    group: str
    rows: tuple[OffsetRow, ...]


class OffsetsForgotten(Event, frozen=True, tag="offsets_forgotten"):
    org: int
    group: str
    keys: tuple[tuple[str, int], ...]


class GroupForgotten(Event, frozen=True, tag="group_forgotten"):
    org: int
    group: str


class GroupMember(msgspec.Struct, frozen=True, array_like=True):
    """One member of a complete group, with all it said when it joined."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_us: int
    rebalance_timeout_us: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class GroupMembership(Event, frozen=True, tag="group_settled"):
    """Who is in a group from this generation on, and has which assignment. Empty: there are no
    members any more that a restart may bring back."""

    org: int
    group: str
    generation: int
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    members: tuple[GroupMember, ...] = ()


class ProducerIdsTaken(Event, frozen=True, tag="producer_ids_taken"):
    """No id below this one is given to anybody else."""

    next_id: int


class Synced(Event, frozen=True, tag="synced"):
    """So many entries at the front of this index, and their batches, were synced before this was
    written. A start that finds one of them damaged knows that no crash did it."""

    entries: int


PREDECESSOR_MISSING: Final = "a segment before it is missing"


class SegmentBegun(Event, frozen=True, tag="segment_begun"):
    """The first batch of a segment: its own global id. A start that counts to another one knows
    that a segment before it is missing."""

    base_id: int


AnyEvent = (
    TopicMadeEvent
    | TopicDroppedEvent
    | PartitionsAdded
    | ConfigsSet
    | LogStartMoved
    | OffsetsCommitted
    | OffsetsForgotten
    | GroupForgotten
    | GroupMembership
    | ProducerIdsTaken
    | Synced
    | SegmentBegun
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)


def encode_event(event: AnyEvent, timestamp_ms: int) -> bytes:
    """The event as a record batch."""
    value = _encoder.encode(event)
    # Attributes, timestamp delta, offset delta, no key; then the value; then no headers.
    record = b"\0\0\0\1" + _varint(len(value)) + value + b"\0"
    return seal_batch(_varint(len(record)) + record, 1, timestamp_ms)


def decode_event(batch: Bytes) -> AnyEvent:
    """The event of a sound batch. FormatError when it is none this software knows."""
    view = memoryview(batch)
    _, at = _read_varint(view, HEADER_BYTES)
    length, at = _read_varint(view, at + 4)
    try:
        return _decoder.decode(view[at : at + length])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise FormatError(f"not an event this software knows: {error}", HEADER_BYTES) from error


def _varint(value: int) -> bytes:
    """Zigzag, then seven bits a byte, as in Kafka's records."""
    left, encoded = value << 1, bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view):
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1, at
    raise FormatError("an event ends in the middle", at)
