"""The checkpoint: what is known of the log, so that a start reads indexes and hardly any log.

It says up to where both files of every segment are synced, with a checksum of the index up to
there, and the state that follows from all events before `as_of`. It is replaced as a whole.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.core.errors import FormatError, NewerFormatError
from headwater.format.checksum import checksum64
from headwater.format.kafka.events import GroupMembership, OffsetRow
from headwater.format.layout import Field, Layout

CHECKPOINT_MAGIC: Final = 0x50434B4157444848  # "HHDWAKCP" little-endian
CHECKPOINT_VERSION: Final = 1

CHECKPOINT_HEADER: Final = Layout(
    "kafka checkpoint header",
    (
        Field("magic", "u64", "which kind of file this is"),
        Field("version", "u32", f"format version, {CHECKPOINT_VERSION}"),
        Field("reserved", "pad4", ""),
        Field("body_bytes", "u64", "bytes of the body"),
        Field("xxh3", "u64", "XXH3-64, seed 0, over the body"),
    ),
    tail=(("body_bytes", "body", "msgpack of the checkpoint"),),
)


class RewriteMeta(msgspec.Struct, frozen=True, array_like=True):
    """What a segment will be after the rewrite that is about to be done."""

    checksum: int
    log_number: int
    log_bytes: int


class SegmentMeta(msgspec.Struct, frozen=True, array_like=True):
    """One index and the log its entries point into."""

    number: int
    base_id: int
    """Global id of its first record."""
    entries: int
    log_bytes: int
    checksum: int
    """XXH3-64 over its entries."""
    log_number: int
    """The number of the log: its own, until it is rewritten."""
    rewrite: RewriteMeta | None = None


def rewritten(meta: SegmentMeta) -> SegmentMeta:
    """The segment behind the swap of its index."""
    assert meta.rewrite is not None
    checksum, log_number, log_bytes = msgspec.structs.astuple(meta.rewrite)
    return msgspec.structs.replace(
        meta, checksum=checksum, log_number=log_number, log_bytes=log_bytes, rewrite=None
    )


class ProducerMeta(msgspec.Struct, frozen=True, array_like=True):
    producer_id: int
    epoch: int
    batches: tuple[tuple[int, int, int], ...]
    """First and last sequence and base offset of the newest batches, oldest first."""
    last_write_s: int = 0
    """When it wrote last: what `running_s` was then. Older checkpoints have neither, so that for
    them it was at the start."""


PackedProducer = msgspec.Raw
"""A `ProducerMeta` as it stands in the checkpoint. There may be hundreds of thousands of them, so
they are copied from one checkpoint to the next, and unpacked when one is used."""


class PartitionMeta(msgspec.Struct, frozen=True, array_like=True):
    dropped: int = 0
    """Records that went with deleted segments."""
    log_start: int = 0
    producers: tuple[PackedProducer, ...] = ()
    """Least recently used first."""


class KafkaTopicMeta(msgspec.Struct, frozen=True, array_like=True):
    org: int
    name: str
    topic_id: bytes
    made_id: int
    """Global id of the event that made it: earlier entries with its hash are another topic's."""
    configs: dict[str, str]
    partitions: tuple[PartitionMeta, ...]


class GroupMeta(msgspec.Struct, frozen=True, array_like=True):
    org: int
    group: str
    rows: tuple[OffsetRow, ...]


class KafkaCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    as_of: int = 0
    """Every event before this global id is in the state below."""
    segments: tuple[SegmentMeta, ...] = ()
    """In the order of global ids; the last one is synced up to here and may have grown since."""
    topics: tuple[KafkaTopicMeta, ...] = ()
    groups: tuple[GroupMeta, ...] = ()
    next_producer_id: int = 0
    clean: bool = False
    """Nothing was written after this."""
    running_s: int = 0
    """Seconds the log was open until now, in all its runs together. No wall clock counts them."""
    memberships: tuple[GroupMembership, ...] = ()
    """Groups with members, as they settled last."""


FIRST_FIELDS: Final = 6
"""What every checkpoint has. Later fields are written when they say something, so that one of
earlier software is the same bytes when it is written again."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KafkaCheckpoint)
_producer_decoder = msgspec.msgpack.Decoder(ProducerMeta)


def pack_producer(meta: ProducerMeta) -> PackedProducer:
    return PackedProducer(_encoder.encode(meta))


def unpack_producer(packed: PackedProducer) -> ProducerMeta:
    """FormatError for anything else. The checkpoint was whole: it is not damage."""
    try:
        return _producer_decoder.decode(packed)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise FormatError(f"not a producer: {error}", 0) from error


def encode_checkpoint(checkpoint: KafkaCheckpoint) -> bytes:
    fields = list(msgspec.structs.astuple(checkpoint))
    while len(fields) > FIRST_FIELDS and not fields[-1]:
        fields.pop()
    body = _encoder.encode(fields)
    header = CHECKPOINT_HEADER.packer.pack(
        CHECKPOINT_MAGIC, CHECKPOINT_VERSION, len(body), checksum64(body)
    )
    return header + body


def decode_checkpoint(data: bytes) -> KafkaCheckpoint:
    """FormatError for anything but a whole checkpoint; NewerFormatError for a later version."""
    header = CHECKPOINT_HEADER.unpack(data)
    if header["magic"] != CHECKPOINT_MAGIC:
        raise FormatError("not a checkpoint of Kafka's log", 0)
    if header["version"] > CHECKPOINT_VERSION:
        raise NewerFormatError(f"checkpoint version {header['version']}; this reads 1")
    body = data[CHECKPOINT_HEADER.size :]
    if len(body) != header["body_bytes"] or header["version"] < 1:
        raise FormatError(f"{len(body)} bytes where {header['body_bytes']} are announced", 16)
    if checksum64(body) != header["xxh3"]:
        raise FormatError("checksum does not match", CHECKPOINT_HEADER.offset_of("xxh3"))
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise FormatError(f"not a checkpoint: {error}", CHECKPOINT_HEADER.size) from error
