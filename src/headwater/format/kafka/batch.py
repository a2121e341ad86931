"""The header of a record batch, version 2: Kafka's own layout, big-endian.

What a producer sent is checked once, as a whole: nothing in here reads single records. The base
offset and the leader epoch stand before what the CRC covers, so the log may change them.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.format.crc32c import crc32c, crc32c_from
from headwater.format.kafka.entry import PREFIX_BYTES
from headwater.native import compiled

_native: Final = compiled("batches")

Bytes = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_AT: Final = 8
LENGTH_FROM: Final = 12
"""The length field counts the bytes from here on."""
CRC_FROM: Final = 21
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
COUNT_AT: Final = 57
MAGIC: Final = 2
RECORD_BYTES_MIN: Final = 7
"""Seven varints of one byte each: a record without key, value and headers."""
RECORDS_MAX: Final = 1_000_000
"""Records of one batch: each costs an index entry, so a lie about their number must be bounded."""
RECORDS_PER_BYTE_MAX: Final = 150
"""Records in a byte of a compressed batch: smallest ones, compressed a thousand times."""

CODEC_MASK: Final = 0x07
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_PREAMBLE: Final = struct.Struct(">qii")
PREAMBLE_BYTES: Final = _PREAMBLE.size
"""The front of a batch that the log writes: base offset, length, leader epoch."""
LEADER_EPOCH: Final = 0


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


class BatchError(FormatError):
    """Bytes that are not a whole, sound record batch."""


class CrcError(BatchError):
    """Bytes that changed on their way: sent again they may be sound."""


class MagicError(BatchError):
    """A message format from before Kafka 0.11."""


class CodecError(BatchError):
    """A compression that this version does not know."""


class BatchKindError(BatchError):
    """A sound batch of a kind that is not taken: of a transaction, or a control batch."""


def read_header(buffer: Bytes, at: int = 0) -> BatchHeader:
    """The header as it stands there. Fewer bytes than a header are a BatchError."""
    if len(buffer) - at < HEADER_BYTES:
        raise BatchError(f"a record batch has at least {HEADER_BYTES} bytes", at)
    return BatchHeader._make(HEADER.unpack_from(buffer, at))


def pack_preamble(base_offset: int, batch_bytes: int) -> bytes:
    """The front of a batch: its offset in a partition, its length and epoch."""
    return _PREAMBLE.pack(base_offset, batch_bytes - LENGTH_FROM, LEADER_EPOCH)


def assign_offset(batch: Bytes, base_offset: int) -> bytes:
    """A batch as it stands in a log: behind its length, with its offset written into it."""
    if _native is not None:
        batch_with_offset: bytes | None = _native.assign_offset(batch, base_offset)
        if batch_with_offset is not None:
            return batch_with_offset
    size = len(batch)
    prefix = size.to_bytes(PREFIX_BYTES, "little")
    return b"".join((prefix, pack_preamble(base_offset, size), memoryview(batch)[PREAMBLE_BYTES:]))


def check_batch(buffer: Bytes) -> BatchHeader:
    """The header of a batch that fills the buffer and is what its CRC says."""
    header = read_sound(buffer)
    if header.attributes & (TRANSACTIONAL | CONTROL):
        raise BatchKindError("transactions are not supported", 0)
    if header.codec >= len(CODECS):
        raise CodecError(f"unknown compression {header.codec}", CRC_FROM)
    count = header.record_count
    if not 1 <= count <= RECORDS_MAX or header.last_offset_delta != count - 1:
        raise BatchError(
            f"{count} records with a last offset of {header.last_offset_delta}", COUNT_AT
        )
    size = len(buffer) - HEADER_BYTES
    fitting = size * RECORDS_PER_BYTE_MAX if header.codec else size // RECORD_BYTES_MIN
    if count > fitting:
        raise BatchError(f"{count} records do not fit into {len(buffer)} bytes", COUNT_AT)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise BatchError("a producer id without epoch and sequence", COUNT_AT)
    return header


def read_sound(buffer: Bytes) -> BatchHeader:
    """The same for a batch that was taken before: only damage is looked for."""
    header = read_header(buffer)
    if header.magic != MAGIC:
        raise MagicError(f"message format {header.magic}; only format {MAGIC} is taken", 16)
    if header.batch_length != len(buffer) - LENGTH_FROM:
        raise BatchError(
            f"the batch says {header.batch_length + LENGTH_FROM} bytes and has {len(buffer)}",
            LENGTH_AT,
        )
    if crc32c_from(buffer, CRC_FROM) != header.crc:
        raise CrcError("the CRC32C of the batch does not match", CRC_FROM)
    return header


def split_batches(buffer: Bytes) -> list[memoryview]:
    """The batches that stand one after another in a produce request. Only lengths are read."""
    view, batches, at = memoryview(buffer), [], 0
    while at < len(view):
        if len(view) - at < HEADER_BYTES:
            raise BatchError("a record batch is cut off", at)
        end = at + LENGTH_FROM + int.from_bytes(view[at + LENGTH_AT : at + LENGTH_FROM], "big")
        if not at + HEADER_BYTES <= end <= len(view):
            raise BatchError("a record batch says a length that cannot be", at + LENGTH_AT)
        batches.append(view[at:end])
        at = end
    return batches


def seal_batch(records: bytes, count: int, timestamp_ms: int) -> bytes:
    """A batch of our own around encoded records: no producer, not compressed."""
    checked = struct.pack(">hiqqqhii", 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
    crc = crc32c(checked + records)
    length = HEADER_BYTES - LENGTH_FROM + len(records)
    return struct.pack(">qiibI", 0, length, 0, MAGIC, crc) + checked + records
