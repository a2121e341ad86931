"""The four compressions of Kafka batches, behind a limit on what comes out.

Producers compress and consumers decompress; the log itself keeps batches as they came. Only the
other protocols read inside. A few bytes can claim to be gigabytes, so the limit holds while bytes
come out, not afterwards: at most `OUTPUT_BYTES_MAX`, and beyond `RATIO_FREE_BYTES` at most
`RATIO_MAX` times what went in. The only module that imports these libraries.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import cramjam
import zstandard

from headwater.core.units import MIB
from headwater.format.kafka.batch import CODECS, BatchError, CodecError

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
