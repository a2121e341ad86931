"""Compressed bytes: read as other libraries write them, and never more than is taken."""

from __future__ import annotations

import gzip
import os
import tracemalloc

import cramjam
import pytest
import zstandard

from headwater.format.kafka import records
from headwater.format.kafka.batch import CODECS, BatchError
from headwater.format.kafka.records import (
    RATIO_FREE_BYTES,
    RATIO_MAX,
    BombError,
    compress,
    decompress,
    output_limit,
)

GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)
PLAIN = [b"", b"x", b"abc" * 100_000, os.urandom(100_000)]


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=CODECS)
@pytest.mark.parametrize("plain", PLAIN, ids=len)
def test_what_was_compressed_comes_back(codec: int, plain: bytes) -> None:
    squeezed = compress(codec, plain)
    assert decompress(codec, squeezed) == plain
    assert decompress(codec, memoryview(squeezed)) == plain


def test_other_forms_of_the_same_compression_are_read() -> None:
    plain = PLAIN[2]
    assert decompress(GZIP, gzip.compress(plain[:50]) + gzip.compress(plain[50:])) == plain
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(plain))) == plain
    streamed = zstandard.ZstdCompressor(level=19).compressobj()
    assert decompress(ZSTD, streamed.compress(plain) + streamed.flush()) == plain
    assert decompress(LZ4, compress(LZ4, plain[:50]) + compress(LZ4, plain[50:])) == plain


BOMB = bytes(40 * 1024 * 1024)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODECS[1:])
def test_a_bomb_is_stopped_while_it_goes_off(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    squeezed = compress(codec, BOMB)
    monkeypatch.setattr(records, "RATIO_FREE_BYTES", 1024)
    monkeypatch.setattr(records, "RATIO_MAX", 10)
    limit = output_limit(len(squeezed))
    tracemalloc.start()
    try:
        with pytest.raises(BombError, match=str(limit)):
            decompress(codec, squeezed)
        assert tracemalloc.get_traced_memory()[1] < 3 * limit + len(squeezed) + 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODECS[1:])
def test_more_than_the_limit_is_refused_and_the_limit_is_not(codec: int) -> None:
    squeezed = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, squeezed, 1_000_000)) == 1_000_000
    with pytest.raises(BombError):
        decompress(codec, squeezed, 999_999)


def test_gigabytes_that_snappy_only_claims_are_never_set_aside() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + bytes(10)
    xerial = b"\x82SNAPPY\x00" + bytes(8) + len(claim).to_bytes(4, "big") + claim
    for data in (claim, xerial):
        with pytest.raises(BombError):
            decompress(SNAPPY, data)


def test_equal_records_may_shrink_to_next_to_nothing() -> None:
    squeezed = compress(ZSTD, bytes(RATIO_FREE_BYTES))
    assert len(squeezed) * RATIO_MAX * 2 < RATIO_FREE_BYTES
    assert len(decompress(ZSTD, squeezed)) == RATIO_FREE_BYTES
    with pytest.raises(BombError):
        decompress(ZSTD, compress(ZSTD, bytes(RATIO_FREE_BYTES + 1)))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODECS[1:])
def test_bytes_that_are_cut_or_foreign_are_a_batch_error(codec: int) -> None:
    squeezed = compress(codec, PLAIN[3][:3_000])
    for stop in (1, 3, 10, 17, len(squeezed) // 2, len(squeezed) - 1):
        with pytest.raises(BatchError):
            decompress(codec, squeezed[:stop])
    with pytest.raises(BatchError):
        decompress(codec, b"these bytes are something else altogether")
