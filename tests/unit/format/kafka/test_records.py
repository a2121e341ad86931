"""Records inside batches, beside the code of kafka-python; and batches that lie."""

from __future__ import annotations

import random
import struct
from typing import Any

import aiokafka.record.default_records
import aiokafka.record.memory_records
import pytest

from headwater.format.crc32c import crc32c
from headwater.format.kafka.batch import (
    CODECS,
    CRC_FROM,
    HEADER_BYTES,
    BatchError,
    CodecError,
    check_batch,
    read_header,
)
from headwater.format.kafka.records import (
    BatchProducer,
    NewRecord,
    compress,
    decode_records,
    encode_batch,
)
from tests.kafka.kafka_python import kafka

EVERY_CODEC = range(len(CODECS))
RECORDS = [
    NewRecord(1_700_000_000_000, b"key", b"value", [("name", b"content"), ("none", None)]),
    NewRecord(1_700_000_000_005, None, b"", []),
    NewRecord(1_699_999_999_000, b"", None, [("", b"")]),
    NewRecord(1_700_000_900_000, b"k" * 300, b"v" * 70_000, [("漢字", b"\xff\x00")] * 3),
]


LIBRARIES: dict[str, Any] = {"kafka-python": kafka.record, "aiokafka": aiokafka.record}


def needs_codec(library: str, codec: int) -> None:
    if library == "kafka-python" and CODECS[codec] in ("snappy", "lz4"):
        pytest.skip("kafka-python wants packages of its own for this; aiokafka shows it")


def wanted(records: list[NewRecord]) -> list[tuple[Any, ...]]:
    return [(index, *record[:3], list(record.headers)) for index, record in enumerate(records)]


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=CODECS)
def test_records_come_back_as_they_were(codec: int) -> None:
    batch = encode_batch(RECORDS, codec=codec)
    assert check_batch(batch).record_count == len(RECORDS)
    assert decode_records(batch) == wanted(RECORDS)
    assert decode_records(memoryview(batch)) == wanted(RECORDS)


def built(builder: Any) -> bytes:
    for index, record in enumerate(RECORDS):
        builder.append(index, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_other_libraries_write_is_read(library: str, codec: int) -> None:
    needs_codec(library, codec)
    builder = LIBRARIES[library].default_records.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=7, producer_epoch=1,
        base_sequence=5, batch_size=10_000_000,
    )  # fmt: skip
    batch = built(builder)
    header = check_batch(batch)
    assert (header.codec, header.producer_id, header.base_sequence) == (codec, 7, 5)
    assert decode_records(batch) == wanted(RECORDS)


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_we_write_other_libraries_read(library: str, codec: int) -> None:
    needs_codec(library, codec)
    batch = encode_batch(RECORDS, codec=codec, producer=BatchProducer(7, 1, 5))
    read = LIBRARIES[library].memory_records.MemoryRecords(batch).next_batch()
    assert read.validate_crc()
    assert read.producer_id == 7
    found = [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in read]
    assert found == wanted(RECORDS)


def test_uncompressed_bytes_are_those_of_kafka_python() -> None:
    builder = kafka.record.default_records.DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=10_000_000,
    )  # fmt: skip
    ours = bytearray(encode_batch(RECORDS))
    theirs = built(builder)
    ours[12:16] = theirs[12:16]  # the leader's epoch, which is the log's to set
    assert bytes(ours) == theirs


def test_a_batch_stamped_by_the_log_has_one_time() -> None:
    batch = resealed(encode_batch(RECORDS), {21: struct.pack(">h", 8)})
    assert {record.timestamp_ms for record in decode_records(batch)} == {1_700_000_900_000}


def resealed(batch: bytes, changes: dict[int, bytes]) -> bytes:
    """The batch with other bytes at some places and a CRC that fits them."""
    changed = bytearray(batch)
    for at, piece in changes.items():
        changed[at : at + len(piece)] = piece
    changed[8:12] = struct.pack(">i", len(changed) - 12)
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[CRC_FROM:])))
    return bytes(changed)


def with_body(body: bytes, count: int = 1, codec: int = 0) -> bytes:
    start = encode_batch([NewRecord(0, None, None)])[:HEADER_BYTES]
    changes = {
        21: struct.pack(">h", codec),
        23: struct.pack(">i", count - 1),
        57: struct.pack(">i", count),
    }
    return resealed(start + compress(codec, body), changes)


SOUND = b"\x0c\x00\x00\x00\x01\x01\x00"
LIES = {
    "a negative offset": b"\x0c\x00\x00\x01\x01\x01\x00",
    "a later offset": b"\x0c\x00\x00\x02\x01\x01\x00",
    "a length beyond the batch": b"\x7e\x00\x00\x00\x01\x01\x00",
    "a length that is too short": b"\x0a\x00\x00\x00\x01\x01\x00",
    "a negative length": b"\x0b\x00\x00\x00\x01\x01\x00",
    "a key that is not there": b"\x0c\x00\x00\x00\x7e\x01\x00",
    "a key of less than nothing": b"\x0c\x00\x00\x00\x03\x01\x00",
    "more headers than bytes": b"\x0c\x00\x00\x00\x01\x01\x7e",
    "fewer headers than none": b"\x0c\x00\x00\x00\x01\x01\x01",
    "a header without a name": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
    "a number without an end": b"\x0c\x00" + b"\xff" * 12,
    "bytes after the last record": SOUND + b"\x00",
    "nothing at all": b"",
}


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=CODECS)
@pytest.mark.parametrize("body", LIES.values(), ids=LIES.keys())
def test_a_batch_that_lies_is_refused_whole(body: bytes, codec: int) -> None:
    assert decode_records(with_body(SOUND, codec=codec)) == [(0, 0, None, None, [])]
    with pytest.raises(BatchError):
        decode_records(with_body(body, codec=codec))


@pytest.mark.parametrize("count", [0, 2, 3, 1_000_000, 2**31 - 1, -1])
def test_a_count_that_is_not_that_of_the_records_is_refused(count: int) -> None:
    with pytest.raises(BatchError):
        decode_records(with_body(SOUND, count))


def test_an_unknown_compression_is_refused() -> None:
    batch = resealed(encode_batch(RECORDS), {21: struct.pack(">h", 5)})
    with pytest.raises(CodecError):
        decode_records(batch)
    with pytest.raises(CodecError):
        compress(7, b"")


def test_a_batch_of_nothing_cannot_be_written() -> None:
    with pytest.raises(BatchError):
        encode_batch([])


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=CODECS)
def test_a_batch_cut_anywhere_or_changed_never_fails_otherwise(codec: int) -> None:
    batch = encode_batch(RECORDS[:3] * 3, codec=codec)
    for stop in range(len(batch)):
        with pytest.raises(BatchError):
            decode_records(batch[:stop])
        if stop >= HEADER_BYTES:
            with pytest.raises(BatchError):
                decode_records(resealed(batch[:stop], {}))
    chance = random.Random(codec)
    for _ in range(300):
        at = chance.randrange(HEADER_BYTES, len(batch))
        changed = resealed(batch, {at: bytes((chance.randrange(256),))})
        try:
            assert len(decode_records(changed)) == read_header(changed).record_count
        except BatchError:
            continue
