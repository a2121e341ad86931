"""Fetch: long polls, sizes, offsets, and what waits behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.format.kafka.batch import read_header, split_batches
from headwater.wire.kafka.apis import SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka import batch_of
from tests.server.running_server import eventually

FETCH = SUPPORTED[ApiKey.FETCH].newest
LONG_MS = 60_000


def asked(
    topic: str, offset: int = 0, *, wait_ms: int = 0, min_bytes: int = 1, **more: int
) -> dict[str, Any]:
    row = {
        "partition": more.pop("partition", 0),
        "fetch_offset": offset,
        "partition_max_bytes": more.pop("partition_max_bytes", 1 << 20),
        "current_leader_epoch": more.pop("current_leader_epoch", -1),
    }
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": min_bytes,
        "topics": [{"topic": topic, "partitions": [row]}],
        **more,
    }


def begin(speaker: RawKafka, number: int, values: dict[str, Any]) -> None:
    speaker.send(request_frame(ApiKey.FETCH, FETCH, number, "speaker", values))


def row_of(answer: dict[str, Any]) -> dict[str, Any]:
    (topic,) = answer["responses"]
    (row,) = topic["partitions"]
    return dict(row)


def waiters(broker: Broker, topic: str) -> Callable[[], int]:
    def count() -> int:
        store = broker.app.kafka.store
        assert store is not None
        found = store.topic(1, topic)
        assert found is not None
        return broker.inside(lambda: len(found.partitions[0].waiters))  # type: ignore[no-any-return]

    return count


def test_a_fetch_waits_until_something_is_produced(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    begin(speaker, 7, asked(name, wait_ms=LONG_MS))
    eventually(waiters(broker, name))
    with RawKafka(broker.kafka_port) as producer:
        producer.produce(name, batch_of("a", "b"))
    row = row_of(speaker.answer(ApiKey.FETCH, FETCH, 7))
    assert row["high_watermark"] == 2
    assert row["last_stable_offset"] == 2
    assert read_header(row["records"]).record_count == 2
    assert not waiters(broker, name)()


def test_a_fetch_that_waits_is_told_at_once_that_its_topic_was_deleted(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    begin(speaker, 7, asked(name, wait_ms=LONG_MS))
    eventually(waiters(broker, name))
    with RawKafka(broker.kafka_port) as other:
        other.ask(ApiKey.DELETE_TOPICS, {"topics": [{"name": name}]})
    row = row_of(speaker.answer(ApiKey.FETCH, FETCH, 7))
    assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (row["high_watermark"], row["records"]) == (-1, b"")


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    batch = batch_of("a" * 100)
    begin(speaker, 7, asked(name, wait_ms=LONG_MS, min_bytes=len(batch) * 3))
    with RawKafka(broker.kafka_port) as producer:
        for _ in range(2):
            eventually(waiters(broker, name))
            producer.produce(name, batch)
        eventually(waiters(broker, name))
        producer.produce(name, batch)
    row = row_of(speaker.answer(ApiKey.FETCH, FETCH, 7))
    assert len(split_batches(row["records"])) == 3


def test_a_fetch_that_wants_most_of_what_it_may_have_is_answered_when_that_has_come(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    batch = batch_of("a" * 100)
    values = asked(name, wait_ms=LONG_MS, min_bytes=len(batch) * 4, max_bytes=len(batch) * 5)
    begin(speaker, 7, values)
    with RawKafka(broker.kafka_port) as producer:
        for _ in range(4):
            eventually(waiters(broker, name))
            producer.produce(name, batch)
    row = row_of(speaker.answer(ApiKey.FETCH, FETCH, 7))
    assert len(split_batches(row["records"])) == 4


def test_a_batch_in_files_is_counted_whole_however_few_of_its_records_are_asked_for(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    batch = batch_of(*("a" * 50 for _ in range(200)))
    speaker.produce(name, batch)
    forget_what_is_in_memory(broker, name)
    values = asked(name, 199, wait_ms=LONG_MS, min_bytes=len(batch))
    row = row_of(speaker.ask(ApiKey.FETCH, values))
    assert len(row["records"]) == len(batch)


def test_a_fetch_that_finds_too_little_in_files_waits_for_as_much_as_is_missing(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    first, more = batch_of(*("a" * 50 for _ in range(200))), batch_of("b" * 100)
    speaker.produce(name, first)
    forget_what_is_in_memory(broker, name)
    begin(speaker, 7, asked(name, 199, wait_ms=LONG_MS, min_bytes=len(first) + 2 * len(more)))
    with RawKafka(broker.kafka_port) as producer:
        for _ in range(2):
            eventually(waiters(broker, name))
            producer.produce(name, more)
    row = row_of(speaker.answer(ApiKey.FETCH, FETCH, 7))
    assert [read_header(each).record_count for each in split_batches(row["records"])] == [200, 1, 1]


def test_a_fetch_that_waits_after_reading_files_is_let_go_when_its_client_goes(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    speaker.produce(name, batch_of("a", "b"))
    forget_what_is_in_memory(broker, name)
    with RawKafka(broker.kafka_port) as impatient:
        begin(impatient, 7, asked(name, 1, wait_ms=LONG_MS, min_bytes=10_000))
        eventually(waiters(broker, name))
    eventually(lambda: not waiters(broker, name)())


@pytest.mark.parametrize("from_files", [False, True])
def test_an_answer_from_many_partitions_is_no_longer_than_was_asked_for(
    broker: Broker, speaker: RawKafka, name: str, from_files: bool
) -> None:
    speaker.make_topic(name, 30)
    batch = batch_of("a" * 10_000)
    for partition in range(30):
        speaker.produce(name, batch, partition=partition)
    if from_files:
        forget_what_is_in_memory(broker, name)

    def partitions(max_bytes: int) -> list[int]:
        rows = [
            {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            for each in range(30)
        ]
        values = {"max_bytes": max_bytes, "topics": [{"topic": name, "partitions": rows}]}
        (told,) = speaker.ask(ApiKey.FETCH, values)["responses"]
        lengths = [len(row["records"]) for row in told["partitions"]]
        assert set(lengths) <= {0, len(batch)}
        return [at for at, length in enumerate(lengths) if length]

    assert partitions(3 * len(batch) + 1) == [0, 1, 2]
    assert partitions(3 * len(batch) - 1) == [0, 1]
    assert partitions(1) == [0]


def forget_what_is_in_memory(broker: Broker, topic: str) -> None:
    store = broker.app.kafka.store
    assert store is not None
    found = store.topic(1, topic)
    assert found is not None
    for partition in found.partitions:
        broker.inside(lambda partition=partition: store.core.drop_tail(partition))


def test_a_fetch_that_waited_long_enough_is_answered_with_what_there_is(
    speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    speaker.produce(name, batch_of("a"))
    values = asked(name, wait_ms=20, min_bytes=1 << 20)
    row = row_of(speaker.ask(ApiKey.FETCH, values))
    assert read_header(row["records"]).record_count == 1
    assert row_of(speaker.ask(ApiKey.FETCH, asked(name, 1, wait_ms=20)))["records"] == b""


def test_a_client_that_left_leaves_nobody_waiting(broker: Broker, name: str) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic(name)
        begin(speaker, 7, asked(name, wait_ms=LONG_MS))
        eventually(waiters(broker, name))
    eventually(lambda: not waiters(broker, name)())


def test_a_long_poll_is_answered_when_the_server_stops(tmp_path: Any) -> None:
    with running_broker(tmp_path / "data") as broker:
        speaker = RawKafka(broker.kafka_port)
        speaker.make_topic("orders")
        begin(speaker, 7, asked("orders", wait_ms=LONG_MS))
        eventually(waiters(broker, "orders"))
    assert row_of(speaker.answer(ApiKey.FETCH, FETCH, 7))["error_code"] == 0
    assert speaker.is_hung_up()
    speaker.close()


@pytest.mark.parametrize(
    ("offset", "more", "code"),
    [
        (0, {"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (3, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, {"current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, {"current_leader_epoch": 0}, ErrorCode.NONE),
        (2, {}, ErrorCode.NONE),
    ],
)
def test_what_is_not_there_is_told_at_once(
    speaker: RawKafka, name: str, offset: int, more: dict[str, int], code: ErrorCode
) -> None:
    speaker.make_topic(name)
    speaker.produce(name, batch_of("a", "b"))
    wait_ms = 0 if code is ErrorCode.NONE else LONG_MS
    row = row_of(speaker.ask(ApiKey.FETCH, asked(name, offset, wait_ms=wait_ms, **more)))
    assert row["error_code"] == code


def test_a_fetch_of_an_unknown_topic_is_refused(speaker: RawKafka, name: str) -> None:
    row = row_of(speaker.ask(ApiKey.FETCH, asked(name, wait_ms=LONG_MS)))
    assert row["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert row["high_watermark"] == -1


def test_a_session_that_was_never_given_is_not_known(speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    for session_id in (0, 5):
        answer = speaker.ask(ApiKey.FETCH, asked(name, session_id=session_id, session_epoch=5))
        assert answer["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert answer["session_id"] == 0
        for epoch in (0, -1):  # it begins, or there is to be none
            values = asked(name, session_id=session_id, session_epoch=epoch)
            assert row_of(speaker.ask(ApiKey.FETCH, values))["error_code"] == 0


def test_an_answer_is_no_longer_than_asked_but_holds_a_batch(speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name, partitions=2)
    batch = batch_of("a" * 500)
    for partition in (0, 1):
        for _ in range(4):
            speaker.produce(name, batch, partition=partition)
    row = row_of(speaker.ask(ApiKey.FETCH, asked(name, partition_max_bytes=len(batch) * 2)))
    assert len(split_batches(row["records"])) == 2
    row = row_of(speaker.ask(ApiKey.FETCH, asked(name, partition_max_bytes=1)))
    assert len(split_batches(row["records"])) == 1
    values = asked(name, max_bytes=len(batch) * 3)
    values["topics"][0]["partitions"] = [
        {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for each in (0, 1)
    ]
    rows = speaker.ask(ApiKey.FETCH, values)["responses"][0]["partitions"]
    assert [len(split_batches(row["records"])) for row in rows] == [3, 0]


def test_one_long_poll_looks_after_many_partitions(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name, partitions=50)
    values = asked(name, wait_ms=LONG_MS)
    values["topics"][0]["partitions"] = [
        {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for each in range(50)
    ]
    begin(speaker, 7, values)
    eventually(waiters(broker, name))
    with RawKafka(broker.kafka_port) as producer:
        producer.produce(name, batch_of("x"), partition=33)
    (topic,) = speaker.answer(ApiKey.FETCH, FETCH, 7)["responses"]
    found = {row["partition_index"] for row in topic["partitions"] if row["records"]}
    assert found == {33}
    assert not waiters(broker, name)()
