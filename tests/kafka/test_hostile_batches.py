"""Batches that are not what they say (faults F2, F3): a typed error each, nothing stored."""

from __future__ import annotations

import resource
import struct

import pytest

from headwater.format.crc32c import crc32c
from headwater.format.kafka.batch import CODECS, CRC_FROM, HEADER_BYTES
from headwater.format.kafka.records import BatchProducer, NewRecord, compress, encode_batch
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.server.running_server import eventually

SOUND = encode_batch([NewRecord(1_700_000_000_000 + index, b"k", b"v") for index in range(3)])


def changed(at: int, piece: bytes, *, sealed: bool = True) -> bytes:
    """The batch with other bytes somewhere, and a CRC that fits them."""
    batch = bytearray(SOUND)
    batch[at : at + len(piece)] = piece
    if sealed:
        batch[17:21] = struct.pack(">I", crc32c(bytes(batch[CRC_FROM:])))
    return bytes(batch)


BROKEN = {
    "wrong crc": (changed(17, b"\x00\x00\x00\x00", sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "changed record": (changed(HEADER_BYTES + 9, b"\x00", sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "changed producer": (changed(43, b"\x01", sealed=False), ErrorCode.CORRUPT_MESSAGE),
    "format 0": (changed(16, b"\x00"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "format 1": (changed(16, b"\x01"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "format 3": (changed(16, b"\x03"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "unknown compression": (changed(21, b"\x00\x05"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "unknown compression 7": (changed(21, b"\x00\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "no records": (changed(57, struct.pack(">i", 0)), ErrorCode.INVALID_RECORD),
    "negative records": (changed(57, struct.pack(">i", -5)), ErrorCode.INVALID_RECORD),
    "too many records": (changed(57, struct.pack(">i", 2**31 - 1)), ErrorCode.INVALID_RECORD),
    "last offset too far": (changed(23, struct.pack(">i", 2**31 - 1)), ErrorCode.INVALID_RECORD),
    "last offset below 0": (changed(23, struct.pack(">i", -1)), ErrorCode.INVALID_RECORD),
    "length too long": (changed(8, struct.pack(">i", len(SOUND))), ErrorCode.INVALID_RECORD),
    "length too short": (changed(8, struct.pack(">i", 49)), ErrorCode.INVALID_RECORD),
    "negative length": (changed(8, struct.pack(">i", -1)), ErrorCode.INVALID_RECORD),
    "cut off": (SOUND[:-1], ErrorCode.INVALID_RECORD),
    "no whole header": (SOUND[:40], ErrorCode.INVALID_RECORD),
    "bytes behind it": (SOUND + b"\x00", ErrorCode.INVALID_RECORD),
    "a sound one and half another": (SOUND + SOUND[:-3], ErrorCode.INVALID_RECORD),
    "only noise": (bytes(range(200)), ErrorCode.INVALID_RECORD),
    "a transaction": (changed(21, b"\x00\x10"), ErrorCode.INVALID_RECORD),
    "a control batch": (changed(21, b"\x00\x20"), ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (changed(43, struct.pack(">q", 5)), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize(("batch", "code"), BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("acks", [-1, 1])
def test_a_broken_batch_gets_a_typed_error_and_is_not_stored(
    speaker: RawKafka, name: str, batch: bytes, code: ErrorCode, acks: int
) -> None:
    topic = speaker.make_topic(name)
    told = speaker.produce(topic, batch, acks=acks)
    assert ErrorCode(told["error_code"]) is code, told
    assert told["base_offset"] == -1
    assert speaker.end_of(topic) == 0
    assert speaker.produce(topic, SOUND)["base_offset"] == 0
    assert speaker.end_of(topic) == 3


def unanswered(topic: str, *batches: bytes) -> bytes:
    rows = [{"index": index, "records": batch} for index, batch in enumerate(batches)]
    values = {"acks": 0, "topic_data": [{"name": topic, "partition_data": rows}]}
    return request_frame(ApiKey.PRODUCE, 9, 0, None, values)


@pytest.mark.parametrize("batch", [batch for batch, _ in BROKEN.values()], ids=BROKEN.keys())
def test_who_sends_a_broken_batch_and_wants_no_answer_is_hung_up_on_and_counted(
    broker: Broker, speaker: RawKafka, name: str, batch: bytes
) -> None:
    topic, dropped = speaker.make_topic(name), broker.endpoint.counters.produces_dropped
    with RawKafka(broker.kafka_port) as other:
        other.send(unanswered(topic, batch))
        assert other.is_hung_up()
    assert broker.endpoint.counters.produces_dropped == dropped + 1
    assert speaker.end_of(topic) == 0


def test_of_a_produce_without_acks_the_sound_part_is_stored_and_the_rest_is_told_by_hanging_up(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    topic = speaker.make_topic(name, 2)
    broken, _ = BROKEN["wrong crc"]
    taken = broker.endpoint.counters.batches_in
    with RawKafka(broker.kafka_port) as other:
        other.send(unanswered(topic, SOUND, broken) + unanswered(topic, SOUND))
        assert other.is_hung_up()
    eventually(lambda: speaker.end_of(topic) == 3)
    # What it sent behind the broken one is not begun, as with Kafka.
    assert broker.endpoint.counters.batches_in == taken + 1


def test_sequences_with_gaps_and_old_epochs_are_refused(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    producer_id = speaker.ask(ApiKey.INIT_PRODUCER_ID, {"transaction_timeout_ms": 1})["producer_id"]

    def produce(epoch: int, sequence: int) -> tuple[ErrorCode, int]:
        batch = encode_batch(
            [NewRecord(1, None, b"v")], producer=BatchProducer(producer_id, epoch, sequence)
        )
        told = speaker.produce(topic, batch)
        return ErrorCode(told["error_code"]), told["base_offset"]

    assert produce(0, 0) == (ErrorCode.NONE, 0)
    assert produce(0, 1) == (ErrorCode.NONE, 1)
    assert produce(0, 0) == (ErrorCode.NONE, 0)  # told again, not written again
    assert produce(0, 5) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert produce(1, 0) == (ErrorCode.NONE, 2)
    assert produce(0, 2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert speaker.end_of(topic) == 3


def lying(body: bytes, codec: int = 0, count: int = 3) -> bytes:
    """A batch with a sound header and CRC around something else than records."""
    batch = bytearray(SOUND[:HEADER_BYTES] + compress(codec, body))
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    batch[21:23] = struct.pack(">h", codec)
    batch[23:27] = struct.pack(">i", count - 1)
    batch[57:61] = struct.pack(">i", count)
    batch[17:21] = struct.pack(">I", crc32c(bytes(batch[CRC_FROM:])))
    return bytes(batch)


INSIDE = {
    **{f"{name} bomb": lying(bytes(80 * 1024 * 1024), codec + 1) for codec, name in
       enumerate(CODECS[1:])},
    "no records at all": lying(b"\xff" * 100),
    "fewer records than it says": lying(SOUND[HEADER_BYTES:], count=4, codec=1),
    "more records than it says": lying(SOUND[HEADER_BYTES:], count=2),
    "not what it was compressed with": lying(b"")[:HEADER_BYTES],
}  # fmt: skip


@pytest.mark.parametrize("batch", INSIDE.values(), ids=INSIDE.keys())
def test_records_that_lie_cost_the_other_doors_an_error_and_no_memory(
    broker: Broker, speaker: RawKafka, name: str, batch: bytes
) -> None:
    """The log keeps batches as they came and never looks inside; who does gets a typed error."""
    topic = speaker.make_topic(name)
    told = speaker.produce(topic, batch)
    if told["error_code"]:  # the header alone gave it away
        assert told["error_code"] == ErrorCode.INVALID_RECORD
        assert speaker.end_of(topic) == 0
        return
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert bytes(speaker.fetch(topic)["records"])[CRC_FROM:] == batch[CRC_FROM:]
    rows = [{"partition_index": 0, "timestamp": 1}]
    asked = {"topics": [{"name": topic, "partitions": rows}]}
    (row,) = speaker.ask(ApiKey.LIST_OFFSETS, asked)["topics"][0]["partitions"]
    assert row["error_code"] in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
    with broker.talk() as http:
        answer = http.diff(f"kafka:{topic}:0")
        assert answer.code == "storage_failed"
        assert "without readable records" in answer.json["error"]["message"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024
    end = speaker.end_of(topic)
    assert speaker.produce(topic, SOUND)["base_offset"] == end
    with broker.talk() as http:
        assert len(http.diff(f"kafka:{topic}:0", from_seq=end).json["records"]) == 3
