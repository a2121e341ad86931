"""The records inside a batch, one by one: for the protocols that are not Kafka's.

Producing and fetching pass whole batches on; this is only for readers of single records. A record
is its length and then varints: attributes, timestamp and offset as differences from the batch's,
key, value, headers. -1 as a length is null. Nothing is believed: every length is compared with the
bytes that are there, and a batch is read whole or not at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from headwater.format.crc32c import crc32c
from headwater.format.kafka.batch import (
    CODEC_MASK,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    LENGTH_FROM,
    LOG_APPEND_TIME,
    MAGIC,
    RECORD_BYTES_MIN,
    BatchError,
    BatchHeader,
    Bytes,
    read_header,
)
from headwater.format.kafka.compression import OUTPUT_BYTES_MAX, compress, decompress

Headers = Sequence[tuple[str, bytes | None]]

_CHECKED: Final = struct.Struct(">hiqqqhii")
_VARINT_BYTES_MAX: Final = 10
_MASK64: Final = (1 << 64) - 1


class KafkaRecord(NamedTuple):
    """One record. Its offset is the batch's base offset plus `offset_delta`."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """What a record to be written says."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class BatchProducer(NamedTuple):
    """Who wrote a batch, and which of theirs it is."""

    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1


NO_PRODUCER: Final = BatchProducer()


def decode_records(batch: Bytes, *, output_bytes_max: int = OUTPUT_BYTES_MAX) -> list[KafkaRecord]:
    """All records of a batch whose CRC was checked. Anything wrong in it is a BatchError."""
    header, body = _body(batch, output_bytes_max)
    appended = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    records: list[KafkaRecord] = []
    at, size = 0, len(body)
    try:
        for index in range(header.record_count):
            length, at = _varint(body, at)
            end = at + length
            if length < 0 or end > size:
                raise BatchError(f"record {index} has a length of {length}", at)
            record, at = _decode_record(body, at + 1, header.base_timestamp, appended)
            if at != end:
                raise BatchError(f"record {index} does not fill its {length} bytes", at)
            if record.offset_delta != index:
                raise BatchError(f"record {index} says it is number {record.offset_delta}", at)
            records.append(record)
    except IndexError as error:
        raise BatchError(f"the batch ends within record {len(records)}", at) from error
    if at != size:
        raise BatchError(f"{size - at} bytes after the last record", at)
    return records


def _body(batch: Bytes, output_bytes_max: int) -> tuple[BatchHeader, bytes]:
    """The header, and the bytes of the records, not compressed."""
    header = read_header(batch)
    if header.magic != MAGIC or header.batch_length != len(batch) - LENGTH_FROM:
        raise BatchError("no whole record batch of format 2")
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], output_bytes_max)
    if not 0 <= header.record_count * RECORD_BYTES_MIN <= len(body):
        raise BatchError(f"{header.record_count} records in {len(body)} bytes", HEADER_BYTES)
    return header, body


def _decode_record(
    body: bytes, at: int, base_timestamp_ms: int, appended_ms: int | None
) -> tuple[KafkaRecord, int]:
    timestamp_delta, at = _varint(body, at)
    offset_delta, at = _varint(body, at)
    key, at = _sized(body, at)
    value, at = _sized(body, at)
    count, at = _varint(body, at)
    if not 0 <= count <= len(body) - at:
        raise BatchError(f"a record with {count} headers", at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _sized(body, at)
        if name is None:
            raise BatchError("a header without a name", at)
        content, at = _sized(body, at)
        # As Java reads them; a name that is no UTF-8 must not hide the records beside it.
        headers.append((name.decode("utf-8", "replace"), content))
    timestamp_ms = base_timestamp_ms + timestamp_delta if appended_ms is None else appended_ms
    return KafkaRecord(offset_delta, timestamp_ms, key, value, headers), at


def _sized(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(body, at)
    if length < 0:
        if length != -1:
            raise BatchError(f"a length of {length}", at)
        return None, at
    end = at + length
    if end > len(body):
        raise BatchError(f"{length} bytes are said to follow and do not", at)
    return body[at:end], end


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of up to 64 bits, and where it ends. Past the end: IndexError."""
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    following = body[at + 1]
    number, shift = byte & 0x7F | (following & 0x7F) << 7, 14
    if following < 0x80:  # one or two bytes are what nearly every number takes
        return (number >> 1) ^ -(number & 1), at + 2
    for position in range(at + 2, at + _VARINT_BYTES_MAX):
        byte = body[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > _MASK64:
                break
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
    raise BatchError("a number has more than 64 bits", at)


def encode_batch(
    records: Iterable[NewRecord], *, codec: int = 0, producer: BatchProducer = NO_PRODUCER
) -> bytes:
    """A batch of these records, at least one, with base offset 0."""
    chosen = list(records)
    if not chosen:
        raise BatchError("a batch has at least one record")
    deltas = range(len(chosen))
    return encode_gapped(0, deltas, chosen, deltas[-1], codec=codec, producer=producer)


def encode_gapped(
    base_offset: int,
    deltas: Sequence[int],
    records: Sequence[NewRecord],
    last_delta: int,
    *,
    codec: int = 0,
    producer: BatchProducer = NO_PRODUCER,
) -> bytes:
    """A batch for readers in which offsets may be missing, also behind the last of its records.

    It may be empty: then it only tells that there is nothing up to `last_delta`.
    """
    times = [record.timestamp_ms for record in records]
    base_timestamp_ms = times[0] if times else -1
    written = bytearray()
    for delta, record in zip(deltas, records, strict=True):
        body = _encode_record(delta, record, base_timestamp_ms)
        written += _signed(len(body))
        written += body
    checked = _CHECKED.pack(
        codec & CODEC_MASK, last_delta, base_timestamp_ms, max(times, default=-1), *producer,
        len(records),
    )  # fmt: skip
    rest = checked + compress(codec, bytes(written))
    length = CRC_FROM - LENGTH_FROM + len(rest)
    start = HEADER.pack(base_offset, length, 0, MAGIC, crc32c(rest), *([0] * 8))
    return start[:CRC_FROM] + rest


def _encode_record(index: int, record: NewRecord, base_timestamp_ms: int) -> bytes:
    parts = [b"\x00", _signed(record.timestamp_ms - base_timestamp_ms), _signed(index)]
    for part in (record.key, record.value):
        parts += _part(part)
    parts.append(_signed(len(record.headers)))
    for name, content in record.headers:
        parts += _part(name.encode())
        parts += _part(content)
    return b"".join(parts)


def _part(content: bytes | None) -> tuple[bytes, ...]:
    return (b"\x01",) if content is None else (_signed(len(content)), content)


def _signed(number: int) -> bytes:
    """A number as a zigzag varint."""
    coded = (number << 1) ^ (number >> 63)
    if coded < 0x80:
        return bytes((coded,))
    written = bytearray()
    while coded >= 0x80:
        written.append(coded & 0x7F | 0x80)
        coded >>= 7
    written.append(coded)
    return bytes(written)
