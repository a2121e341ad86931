"""The records inside a batch, one by one, and its compression: for protocols that are not Kafka's.

Producing and fetching pass whole batches on; this is only for readers of single records. A record
is its length and then varints: attributes, timestamp and offset as differences from the batch's,
key, value, headers. -1 as a length is null. Nothing is believed: every length is compared with the
bytes that are there, and a batch is read whole or not at all.

Producers compress and consumers decompress, in one of four ways; the log itself keeps batches as
they came. A few bytes can claim to be gigabytes, so there is a limit, which holds while bytes come
out, not afterwards: at most `OUTPUT_BYTES_MAX`, and beyond `RATIO_FREE_BYTES` at most `RATIO_MAX`
times what went in. The only module that imports these libraries.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import cramjam
import zstandard

from headwater.core.units import MIB
from headwater.format.crc32c import crc32c
from headwater.format.kafka.batch import (
    CODEC_MASK,
    CODECS,
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
    CodecError,
    read_header,
)

OUTPUT_BYTES_MAX: Final = 64 * MIB
"""As long as the longest batch that is taken when it is not compressed."""
RATIO_MAX: Final = 1_000
RATIO_FREE_BYTES: Final = 16 * MIB
"""Equal records shrink to next to nothing; up to here that is no reason for doubt."""

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_ZSTD_WINDOW_BYTES_MAX: Final = 1 << 27
_LZ4_RATIO_MAX: Final = 255
"""A byte of an LZ4 block stands for 255 at most."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_VERSIONS: Final = (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024


class BombError(BatchError):
    """Compressed bytes that would become more than is taken."""


def output_limit(compressed_bytes: int, output_bytes_max: int = OUTPUT_BYTES_MAX) -> int:
    """How many bytes may come out of so many."""
    return min(output_bytes_max, max(RATIO_FREE_BYTES, compressed_bytes * RATIO_MAX))


def decompress(
    codec: int, data: bytes | memoryview, output_bytes_max: int = OUTPUT_BYTES_MAX
) -> bytes:
    """What was compressed. Damage is a BatchError, too much of it a BombError."""
    if not 0 <= codec < len(CODECS):
        raise CodecError(f"unknown compression {codec}")
    limit = output_limit(len(data), output_bytes_max)
    try:
        plain = _DECOMPRESS[codec](bytes(data), limit)
    except (zlib.error, cramjam.DecompressionError, zstandard.ZstdError) as error:
        raise BatchError(f"{CODECS[codec]} bytes cannot be read: {error}") from error
    if len(plain) > limit:
        raise _too_much(limit)
    return plain


def compress(codec: int, data: bytes) -> bytes:
    if not 0 <= codec < len(CODECS):
        raise CodecError(f"unknown compression {codec}")
    return _COMPRESS[codec](data)


def _too_much(limit: int) -> BombError:
    return BombError(f"more than {limit} bytes come out of compressed records")


def _as_it_is(data: bytes, _limit: int = 0) -> bytes:
    return data


def _gunzip(data: bytes, limit: int) -> bytes:
    """All members of a gzip file: Java reads on after the first, and so do we."""
    plain: list[bytes] = []
    left = limit
    while data:
        member = zlib.decompressobj(_GZIP_WINDOW)
        plain.append(member.decompress(data, left + 1))
        left -= len(plain[-1])
        if left < 0:
            raise _too_much(limit)
        if not member.eof:
            raise BatchError("gzip bytes are cut off")
        data = member.unused_data
    return plain[0] if len(plain) == 1 else b"".join(plain)


def _gzip(data: bytes) -> bytes:
    member = zlib.compressobj(wbits=_GZIP_WINDOW)
    return member.compress(data) + member.flush()


def _unsnap(data: bytes, limit: int) -> bytes:
    """Plain snappy, or the blocks Java's library makes of it."""
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap_block(data, limit)
    if len(data) < _XERIAL_HEADER_BYTES:
        raise BatchError("snappy bytes are cut off in their header")
    plain, at = bytearray(), _XERIAL_HEADER_BYTES
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data) or start > len(data):
            raise BatchError("snappy bytes are cut off in a block")
        plain += _unsnap_block(data[start:at], limit, len(plain))
    return bytes(plain)


def _unsnap_block(data: bytes, limit: int, before_bytes: int = 0) -> bytes:
    if before_bytes + cramjam.snappy.decompress_raw_len(data) > limit:
        raise _too_much(limit)
    return bytes(cramjam.snappy.decompress_raw(data))


def _snap(data: bytes) -> bytes:
    """In the blocks of Java's library, which every client reads."""
    blocks = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        blocks += (len(block).to_bytes(4, "big"), block)
    return b"".join(blocks)


def _unlz4(data: bytes, limit: int) -> bytes:
    """Into a buffer of the limit: the memory of it that is not written to is never taken."""
    plain = bytearray(min(limit, len(data) * _LZ4_RATIO_MAX))
    try:
        size = cramjam.lz4.decompress_into(data, plain)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise _too_much(limit) from error
        raise
    return memoryview(plain)[:size].tobytes()


def _lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress(data))


def _unzstd(data: bytes, limit: int) -> bytes:
    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    with reader.stream_reader(data, read_across_frames=True) as stream:
        plain: bytes = stream.read(limit + 1)
    # Cut bytes give what was before the cut and no error; a frame that says its size tells.
    if len(plain) <= limit and zstandard.frame_content_size(data) > len(plain):
        raise BatchError("zstd bytes are cut off")
    return plain


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


_DECOMPRESS: Final[tuple[Callable[[bytes, int], bytes], ...]] = (
    _as_it_is, _gunzip, _unsnap, _unlz4, _unzstd,
)  # fmt: skip
_COMPRESS: Final[tuple[Callable[[bytes], bytes], ...]] = (_as_it_is, _gzip, _snap, _lz4, _zstd)


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
