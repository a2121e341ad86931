"""Bytes no Kafka client sends (faults F1): the connection ends, nothing is stored, others go on."""

from __future__ import annotations

import random
import resource
import socket
import ssl

import pytest

from headwater.format.kafka.records import NewRecord, encode_batch
from headwater.wire.kafka.apis import ADVERTISED, SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka_client_codec import decode_response

BATCH = encode_batch([NewRecord(1_700_000_000_000, b"k", b"value")])
FOREIGN = {
    "http": b"GET /v0/topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "http post": b"POST /v0/topics/t/records HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(30),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "smtp": b"EHLO example.org\r\n",
    "negative size": b"\xff\xff\xff\xff" + bytes(20),
    "no size": bytes(24),
    "too small for a header": b"\x00\x00\x00\x07" + bytes(7),
    "largest size there is": b"\x7f\xff\xff\xff" + bytes(20),
    "smallest size there is": b"\x80\x00\x00\x00" + bytes(20),
    "size just over the limit": (100 * 1024 * 1024 + 1).to_bytes(4, "big") + bytes(20),
    "long request without records": b"\x03\x00\x00\x00\x00\x03\x00\x01" + bytes(20),
}


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def produce_frame(topic: str, version: int = 9) -> bytes:
    rows = [{"index": 0, "records": BATCH}]
    values = {"acks": -1, "topic_data": [{"name": topic, "partition_data": rows}]}
    return request_frame(ApiKey.PRODUCE, version, 1, "hostile", values)


@pytest.mark.parametrize("opening", FOREIGN.values(), ids=FOREIGN.keys())
def test_other_protocols_and_absurd_sizes_end_the_connection(
    broker: Broker, speaker: RawKafka, opening: bytes
) -> None:
    with RawKafka(broker.kafka_port) as hostile:
        hostile.send(opening)
        assert hostile.is_hung_up()
    assert speaker.ask(ApiKey.API_VERSIONS)["error_code"] == 0


def test_a_tls_hello_on_a_plain_port_is_hung_up_on(broker: Broker, speaker: RawKafka) -> None:
    context = ssl.create_default_context()
    plain = socket.create_connection(("127.0.0.1", broker.kafka_port), 10)
    with plain, pytest.raises((ssl.SSLError, ConnectionResetError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")
    assert speaker.ask(ApiKey.API_VERSIONS)["error_code"] == 0


def test_random_bytes_are_never_stored_and_never_end_the_server(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    topic = speaker.make_topic(name)
    chance = random.Random(20_000)
    for round_number in range(60):
        noise = chance.randbytes(chance.choice((1, 3, 4, 9, 50, 2_000)))
        if round_number % 2:  # a size that fits, so that it is what is inside that is wrong
            noise = frame(chance.randbytes(2).join((b"", bytes(2) + noise + bytes(8))))
        with RawKafka(broker.kafka_port) as hostile:
            hostile.send(noise)
            hostile.finish()
            hostile.is_hung_up()
    assert speaker.end_of(topic) == 0
    assert speaker.produce(topic, BATCH)["base_offset"] == 0


def test_a_request_cut_at_any_byte_stores_nothing(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    topic = speaker.make_topic(name)
    whole = produce_frame(topic)
    for stop in range(0, len(whole), 3):
        with RawKafka(broker.kafka_port) as hostile:
            hostile.send(whole[:stop])
            hostile.finish()
            assert hostile.is_hung_up()
    assert speaker.end_of(topic) == 0
    with RawKafka(broker.kafka_port) as sound:
        sound.send(whole)
        assert sound.answer(ApiKey.PRODUCE, 9, 1)["responses"][0]["name"] == topic
    assert speaker.end_of(topic) == 1


def test_a_request_whose_inside_is_cut_at_any_byte_stores_nothing(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    """The size is right, and what it holds stops in the middle."""
    topic = speaker.make_topic(name)
    body = produce_frame(topic)[4:]
    for stop in range(8, len(body) - 2, 3):  # without the last bytes only tags are missing
        with RawKafka(broker.kafka_port) as hostile:
            hostile.send(frame(body[:stop]))
            assert hostile.is_hung_up()
    assert speaker.end_of(topic) == 0


def test_unknown_requests_and_versions_end_the_connection(
    broker: Broker, speaker: RawKafka
) -> None:
    asked = [(key, 0) for key in (-1, 4, 5, 24, 99, 32_767)]
    asked += [(api, SUPPORTED[api].newest + 1) for api in ApiKey if api is not ApiKey.API_VERSIONS]
    asked += [(api, -1) for api in (ApiKey.METADATA, ApiKey.FETCH)]
    before = broker.endpoint.counters.hang_ups
    for key, version in asked:
        start = int(key).to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
        with RawKafka(broker.kafka_port) as hostile:
            hostile.send(frame(start + b"\x00\x00\x00\x01\xff\xff\x00" + bytes(40)))
            assert hostile.is_hung_up(), (key, version)
    assert broker.endpoint.counters.hang_ups == before + len(
        asked
    )  # each on purpose, with a reason
    assert speaker.ask(ApiKey.API_VERSIONS)["error_code"] == 0


@pytest.mark.parametrize("version", [4, 5, 99])
def test_api_versions_from_the_future_are_answered_in_the_oldest(
    broker: Broker, version: int
) -> None:
    with RawKafka(broker.kafka_port) as newer:
        newer.send(request_frame(ApiKey.API_VERSIONS, version, 5, "newer", {}))
        told = newer.frame()
        assert told[:4] == b"\x00\x00\x00\x05"
        found = decode_response(ApiKey.API_VERSIONS, 0, told, 4)
        assert found["error_code"] == ErrorCode.UNSUPPORTED_VERSION
        ranges = {row["api_key"]: row for row in found["api_keys"]}
        assert ranges[ApiKey.API_VERSIONS]["max_version"] == SUPPORTED[ApiKey.API_VERSIONS].newest
        assert newer.ask(ApiKey.API_VERSIONS)["error_code"] == 0


@pytest.mark.parametrize("version", range(4))
def test_every_version_tells_the_same_apis(speaker: RawKafka, version: int) -> None:
    told = speaker.ask(ApiKey.API_VERSIONS, version=version)
    found = {row["api_key"]: (row["min_version"], row["max_version"]) for row in told["api_keys"]}
    assert found == {int(api): tuple(versions) for api, versions in ADVERTISED.items()}


@pytest.mark.parametrize("version", range(3))
def test_old_produce_versions_are_refused_by_number(
    speaker: RawKafka, name: str, version: int
) -> None:
    topic = speaker.make_topic(name)
    speaker.send(produce_frame(topic, version))
    told = speaker.answer(ApiKey.PRODUCE, version, 1)
    (row,) = told["responses"][0]["partition_responses"]
    assert row["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert speaker.end_of(topic) == 0


def test_unknown_tagged_fields_are_passed_over(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    body = produce_frame(topic)[4:]
    speaker.send(frame(body[:-1] + b"\x02\x63\x03abc\x64\x00"))
    told = speaker.answer(ApiKey.PRODUCE, 9, 1)
    assert told["responses"][0]["partition_responses"][0]["error_code"] == 0


def test_promises_of_long_requests_take_no_memory(broker: Broker, speaker: RawKafka) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = (99 * 1024 * 1024).to_bytes(4, "big") + b"\x00\x00\x00\x09" + bytes(2_000)
    promising = [RawKafka(broker.kafka_port) for _ in range(50)]
    try:
        for each in promising:
            each.send(start)
        assert speaker.ask(ApiKey.METADATA, {"topics": []})["brokers"]
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 50 * 1024
    finally:
        for each in promising:
            each.close()
    assert speaker.ask(ApiKey.API_VERSIONS)["error_code"] == 0


def test_arrays_that_claim_millions_of_rows_take_no_memory(
    broker: Broker, speaker: RawKafka
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = b"\x00\x03\x00\x08\x00\x00\x00\x01\xff\xff"
    for count in (2**31 - 1, 5_000_000):
        with RawKafka(broker.kafka_port) as hostile:
            # Two bytes a row: names of no letters.
            hostile.send(frame(start + count.to_bytes(4, "big") + bytes(10_000_000)))
            assert hostile.is_hung_up()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    assert speaker.ask(ApiKey.API_VERSIONS)["error_code"] == 0


def test_many_requests_in_one_piece_are_answered_in_order(speaker: RawKafka) -> None:
    numbers = range(100, 150)
    speaker.send(
        b"".join(request_frame(ApiKey.API_VERSIONS, 3, number, None, {}) for number in numbers)
    )
    for number in numbers:
        assert speaker.answer(ApiKey.API_VERSIONS, 3, number)["error_code"] == 0


def test_requests_behind_a_fetch_in_one_piece_are_answered(speaker: RawKafka, name: str) -> None:
    topic = speaker.make_topic(name)
    speaker.produce(topic, BATCH)
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
    asked = {"max_wait_ms": 10_000, "topics": [{"topic": topic, "partitions": [row]}]}
    speaker.send(
        request_frame(ApiKey.FETCH, 12, 700, None, asked)
        + request_frame(ApiKey.API_VERSIONS, 3, 701, None, {})
        + request_frame(ApiKey.FETCH, 12, 702, None, asked)
        + request_frame(ApiKey.METADATA, 9, 703, None, {})
    )
    assert speaker.answer(ApiKey.FETCH, 12, 700)["responses"]
    assert speaker.answer(ApiKey.API_VERSIONS, 3, 701)["api_keys"]
    assert speaker.answer(ApiKey.FETCH, 12, 702)["responses"]
    assert speaker.answer(ApiKey.METADATA, 9, 703)["brokers"]
