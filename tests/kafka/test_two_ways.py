"""A produce takes the short way or the long one: whoever asks cannot tell which."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import headwater
from headwater.core.errors import DiskFullError, OverloadedError
from headwater.engine.kafka.native_topics import NativePartition
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced
from headwater.engine.pressure import PressureControl
from headwater.format.kafka.records import BatchProducer
from headwater.server.kafka import plain_produce
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from headwater.wire.kafka.plain import read_plain
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka import batch_of

every_version = pytest.mark.parametrize("version", range(3, 10))


@pytest.fixture(params=["short", "long"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Which way each request went: True for the short one."""
    went: list[bool] = []

    def read(frame: memoryview) -> Any:
        found = read_plain(frame) if request.param == "short" else None
        went.append(found is not None)
        return found

    # The module itself: what stands for it until it is loaded has nothing that could be put back.
    connection = import_module("headwater.server.kafka.connection")
    monkeypatch.setattr(connection, "read_plain", read)
    yield went
    assert request.param == "long" or any(went)
    assert request.param == "short" or not any(went)


def ask(speaker: RawKafka, name: str, records: bytes, version: int = 9) -> dict[str, Any]:
    rows = [{"index": 0, "records": records}]
    values = {"acks": -1, "topic_data": [{"name": name, "partition_data": rows}]}
    return speaker.ask(ApiKey.PRODUCE, values, version)


def told(name: str, throttle_ms: int = 0, **row: Any) -> dict[str, Any]:
    """An answer with one row, of which these fields are said."""
    fields = {"index": 0, "record_errors": [], "error_message": None, "log_append_time_ms": -1}
    row = {**fields, "log_start_offset": -1, **row}
    topics = [{"name": name, "partition_responses": [row]}]
    return {"responses": topics, "throttle_time_ms": throttle_ms}


@every_version
def test_a_batch_is_acked_alike(
    way: list[bool], speaker: RawKafka, name: str, version: int
) -> None:
    speaker.make_topic(name)
    start = 0 if version >= 5 else -1
    for offset in (0, 2):
        answer = ask(speaker, name, batch_of("a", "b"), version)
        (row,) = answer["responses"][0]["partition_responses"]
        assert (row["error_code"], row["base_offset"], row["index"]) == (0, offset, 0)
        assert (row["log_append_time_ms"], row["log_start_offset"]) == (-1, start)
        assert (answer["throttle_time_ms"], row["error_message"]) == (0, None)


def test_a_repeat_gets_the_answer_it_had(way: list[bool], speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    batch = batch_of("a", producer=BatchProducer(77, 0, 0))
    first, again = ask(speaker, name, batch), ask(speaker, name, batch)
    assert first == again == told(name, error_code=0, base_offset=0, log_start_offset=0)
    assert speaker.end_of(name) == 1


def test_a_gap_in_the_sequence_is_refused_alike(
    way: list[bool], speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    ask(speaker, name, batch_of("a", producer=BatchProducer(77, 0, 0)))
    answer = ask(speaker, name, batch_of("a", producer=BatchProducer(77, 0, 5)))
    said = "producer 77 sent sequence 5 where 1 comes next"
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answer == told(name, error_code=code, base_offset=-1, error_message=said)
    assert speaker.end_of(name) == 1


def test_under_pressure_the_answer_says_how_long_to_wait(
    way: list[bool], speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker.make_topic(name)
    with monkeypatch.context() as pressed:
        pressed.setattr(PressureControl, "refuses", True)
        answer = ask(speaker, name, batch_of("a", producer=BatchProducer(77, 0, 0)))
    said = "more is being written than the disk takes; nothing was written, try again"
    code = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = told(name, 1_000, error_code=code, base_offset=-1, error_message=said)
    assert answer["throttle_time_ms"] > 0
    assert answer == {**refused, "throttle_time_ms": answer["throttle_time_ms"]}
    # What it sent behind that waits for it.
    answer = ask(speaker, name, batch_of("b", producer=BatchProducer(77, 0, 1)))
    row = answer["responses"][0]["partition_responses"][0]
    assert row["error_code"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert speaker.end_of(name) == 0


def test_each_of_several_partitions_is_told_its_own(
    way: list[bool], speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name, 2)
    ahead = batch_of("x", producer=BatchProducer(77, 0, 0))
    ask(speaker, name, ahead)
    gap = batch_of("y", producer=BatchProducer(77, 0, 9))
    rows = [
        {"index": 1, "records": batch_of("a", "b")},
        {"index": 7, "records": batch_of("c")},
        {"index": 0, "records": gap},
        {"index": 0, "records": batch_of("d")},
    ]
    topics = [
        {"name": name, "partition_data": rows},
        {"name": "nowhere", "partition_data": [{"index": 0, "records": ahead}]},
    ]
    answer = speaker.ask(ApiKey.PRODUCE, {"acks": -1, "topic_data": topics})
    found = [
        (topic["name"], row["index"], row["error_code"], row["base_offset"])
        for topic in answer["responses"]
        for row in topic["partition_responses"]
    ]
    assert found == [
        (name, 1, 0, 0),
        (name, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (name, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (name, 0, 0, 1),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_who_wants_no_acks_gets_none(way: list[bool], speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    rows = [{"index": 0, "records": batch_of("a")}]
    values = {"acks": 0, "topic_data": [{"name": name, "partition_data": rows}]}
    speaker.send(request_frame(ApiKey.PRODUCE, 9, 99, "speaker", values))
    assert (
        ask(speaker, name, batch_of("b"))["responses"][0]["partition_responses"][0]["base_offset"]
        == 1
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DiskFullError("no room"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_whatever_the_store_says_is_told_alike(
    way: list[bool],
    speaker: RawKafka,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: ErrorCode,
) -> None:
    speaker.make_topic(name)

    def fail(*_: Any) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(KafkaPartition, "append", fail)
        answer = ask(speaker, name, batch_of("a"))
    row = answer["responses"][0]["partition_responses"][0]
    assert (row["error_code"], row["base_offset"]) == (code, -1)
    assert ask(speaker, name, batch_of("a"))["responses"][0]["partition_responses"][0] == {
        **told(name)["responses"][0]["partition_responses"][0],
        "error_code": 0,
        "base_offset": 0,
        "log_start_offset": 0,
    }


def test_an_answer_that_cannot_be_written_is_told_as_an_error(
    speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is stored, but its producer must not wait for ever."""
    speaker.make_topic(name)

    def fail(*_: Any) -> bytes:
        raise ValueError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(plain_produce, "produced_frame", fail)
        answer = ask(speaker, name, batch_of("a"))
    row = answer["responses"][0]["partition_responses"][0]
    assert row["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR


def test_requests_of_both_kinds_are_counted(
    way: list[bool], broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    counters = broker.endpoint.counters
    before = counters.requests[ApiKey.PRODUCE], counters.batches_in, counters.records_in
    ask(speaker, name, batch_of("a", "b"))
    after = counters.requests[ApiKey.PRODUCE], counters.batches_in, counters.records_in
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 2]


def test_only_what_was_stored_counts_as_produced(
    way: list[bool],
    broker: Broker,
    speaker: RawKafka,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speaker.make_topic(name)
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.create(f"{name}.own")
    counters = broker.endpoint.counters
    once = batch_of("a", "b", producer=BatchProducer(4_711, 0, 0))

    def counted(topic: str, batch: bytes) -> tuple[int, int]:
        before = counters.batches_in, counters.records_in
        ask(speaker, topic, batch)
        return counters.batches_in - before[0], counters.records_in - before[1]

    def fails(*_: object) -> Pending[Produced]:
        pending: Pending[Produced] = Pending()
        broker.loop.call_soon(pending.fail, OverloadedError("the log took it back"))
        return pending

    for topic, kind in ((name, KafkaPartition), (f"{name}.own", NativePartition)):
        assert counted(topic, once) == (1, 2)
        assert counted(topic, once) == (0, 0), "it came again"
        behind = batch_of("z", producer=BatchProducer(4_711, 0, 7))
        assert counted(topic, behind) == (0, 0), "refused at once"
        with monkeypatch.context() as failing:
            failing.setattr(kind, "append", fails)
            assert counted(topic, batch_of("c")) == (0, 0), "refused by the log"
        assert counted(topic, batch_of("c")) == (1, 1)


def test_answers_keep_the_order_of_requests_of_both_kinds(speaker: RawKafka, name: str) -> None:
    """Two plain ones around one that is not: its two partitions take the long way."""
    speaker.make_topic(name, 2)
    one = [{"index": 0, "records": batch_of("a")}]
    two = [*one, {"index": 1, "records": batch_of("b")}]
    frames = [
        request_frame(
            ApiKey.PRODUCE,
            9,
            number,
            "speaker",
            {"acks": -1, "topic_data": [{"name": name, "partition_data": rows}]},
        )
        for number, rows in enumerate((one, two, one))
    ]
    speaker.send(b"".join(frames))
    answers = [speaker.answer(ApiKey.PRODUCE, 9, number) for number in range(3)]
    bases = [
        [row["base_offset"] for row in answer["responses"][0]["partition_responses"]]
        for answer in answers
    ]
    assert bases == [[0], [1, 0], [2]]
