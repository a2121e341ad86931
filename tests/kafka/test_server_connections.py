"""One connection: order, deadlines, limits, back-pressure."""

from __future__ import annotations

import contextlib
import re
import threading
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.server.connection import Awaits
from headwater.server.kafka.connection import KafkaConnection
from headwater.wire.kafka.apis import SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import request_frame, response_body_at
from headwater.wire.kafka.encoding import Chunk
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.kafka import batch_of
from tests.server.running_server import eventually

PRODUCE = SUPPORTED[ApiKey.PRODUCE].newest


def produce_frame(
    number: int, topic: str, acks: int = -1, records: bytes | None = None, partition: int = 0
) -> bytes:
    rows = [{"index": partition, "records": batch_of("x") if records is None else records}]
    values = {"acks": acks, "topic_data": [{"name": topic, "partition_data": rows}]}
    return request_frame(ApiKey.PRODUCE, PRODUCE, number, "speaker", values)


def numbers(speaker: RawKafka, count: int) -> list[int]:
    """What the next answers say they answer. All of them are to Produce or Metadata."""
    return [response_body_at(ApiKey.PRODUCE, PRODUCE, speaker.frame())[0] for _ in range(count)]


def test_answers_keep_the_order_of_requests_that_wait(speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    metadata = request_frame(ApiKey.METADATA, 12, 500, "speaker", {"topics": []})
    speaker.send(b"".join(produce_frame(each, name) for each in range(1, 401)) + metadata)
    assert numbers(speaker, 401) == [*range(1, 401), 500]
    assert speaker.end_of(name) == 400


def test_what_one_commit_answers_is_sent_in_one_go(
    speaker: RawKafka, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker.make_topic(name)
    sent: list[int] = []
    write = KafkaConnection._write

    def counted(connection: KafkaConnection, pieces: list[Chunk]) -> None:
        sent.append(len(pieces))
        write(connection, pieces)

    monkeypatch.setattr(KafkaConnection, "_write", counted)
    speaker.send(b"".join(produce_frame(each, name) for each in range(1, 101)))
    assert numbers(speaker, 100) == list(range(1, 101))
    assert len(sent) <= 50


def test_what_is_sent_behind_a_change_sees_it(speaker: RawKafka, name: str) -> None:
    """Whoever does not wait for the first answer gets the second as if it had."""
    spot = {"partition_index": 0}
    made = {"name": name, "num_partitions": 1, "replication_factor": 1}
    rows = [{"index": 0, "records": batch_of("x", "y")}]
    ends = [{"name": name, "partitions": [{**spot, "timestamp": -1}]}]
    commit = [{"name": name, "partitions": [{**spot, "committed_offset": 2}]}]
    asked: list[tuple[ApiKey, int, dict[str, Any]]] = [
        (ApiKey.CREATE_TOPICS, 7, {"topics": [made]}),
        (ApiKey.PRODUCE, 9, {"acks": -1, "topic_data": [{"name": name, "partition_data": rows}]}),
        (ApiKey.LIST_OFFSETS, 7, {"topics": ends}),
        (ApiKey.OFFSET_COMMIT, 8, {"group_id": name, "topics": commit,
                                   "generation_id_or_member_epoch": -1}),
        (ApiKey.OFFSET_FETCH, 7, {"group_id": name, "topics": None}),
        (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": name}]}),
        (ApiKey.OFFSET_FETCH, 7, {"group_id": name, "topics": None}),
    ]  # fmt: skip
    frames = [request_frame(*each[:2], at, "speaker", each[2]) for at, each in enumerate(asked)]
    speaker.send(b"".join(frames))
    told = [speaker.answer(each[0], each[1], at) for at, each in enumerate(asked)]
    assert told[1]["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert told[2]["topics"][0]["partitions"][0]["offset"] == 2
    assert told[4]["topics"][0]["partitions"][0]["committed_offset"] == 2
    assert told[6]["topics"] == []


def test_no_answer_is_sent_where_none_is_wanted(speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    frames = [produce_frame(1, name, acks=0), produce_frame(2, name), produce_frame(3, name, 0)]
    speaker.send(b"".join(frames) + produce_frame(4, name))
    assert numbers(speaker, 2) == [2, 4]
    assert speaker.end_of(name) == 4


def test_a_produce_to_nowhere_that_wants_no_answer_ends_the_connection_behind_the_answers(
    broker: Broker, speaker: RawKafka, name: str
) -> None:
    speaker.make_topic(name)
    with RawKafka(broker.kafka_port) as other:
        other.send(produce_frame(1, name) + produce_frame(2, "not-there", acks=0))
        assert numbers(other, 1) == [1]
        assert other.is_hung_up()
    text = urllib.request.urlopen(f"http://127.0.0.1:{broker.port}/metrics", timeout=20).read()
    assert re.search(rb"headwater_kafka_produces_dropped_total [1-9]", text)


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_acks_that_mean_nothing_are_refused(speaker: RawKafka, name: str, acks: int) -> None:
    speaker.make_topic(name)
    row = speaker.produce(name, batch_of("x"), acks=acks)
    assert row["error_code"] == ErrorCode.INVALID_REQUIRED_ACKS
    assert speaker.end_of(name) == 0


def test_transactions_are_refused_in_words_that_end_them(speaker: RawKafka, name: str) -> None:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    values: dict[str, Any] = {"transactional_id": "t", "transaction_timeout_ms": 1000}
    assert speaker.ask(ApiKey.INIT_PRODUCER_ID, values)["error_code"] == code
    asked = {"key_type": 1, "coordinator_keys": ["t"]}
    (row,) = speaker.ask(ApiKey.FIND_COORDINATOR, asked)["coordinators"]
    assert row["error_code"] == code


def test_an_empty_partition_row_stores_nothing(speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    assert speaker.produce(name, b"")["error_code"] == 0
    assert speaker.end_of(name) == 0


def test_of_two_batches_of_which_one_is_bad_neither_is_stored(speaker: RawKafka, name: str) -> None:
    speaker.make_topic(name)
    bad = bytearray(batch_of("y"))
    bad[-1] ^= 1
    row = speaker.produce(name, batch_of("x") + bytes(bad))
    assert row["error_code"] == ErrorCode.CORRUPT_MESSAGE
    assert row["base_offset"] == -1
    assert speaker.end_of(name) == 0


def test_half_a_request_is_waited_for_only_so_long(tmp_path: Path) -> None:
    limits = {"body_s": 0.2, "drain_s": 1.0}
    with running_broker(tmp_path / "data", deadlines=limits) as broker:
        with RawKafka(broker.kafka_port) as slow, RawKafka(broker.kafka_port) as other:
            frame = produce_frame(1, "orders")
            slow.send(frame[:3])
            assert slow.is_hung_up()
            other.ask(ApiKey.METADATA, {"topics": []})
        assert broker.app.kafka.endpoint is not None
        assert broker.app.kafka.endpoint.counters.hang_ups == 1


def test_time_in_which_nothing_was_read_does_not_count_against_half_a_request(
    tmp_path: Path,
) -> None:
    limits = {"body_s": 3.0, "drain_s": 1.0}
    with (
        running_broker(tmp_path / "data", deadlines=limits) as broker,
        RawKafka(broker.kafka_port) as speaker,
    ):
        speaker.make_topic("orders")
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        wait = {"max_wait_ms": 3_200, "min_bytes": 1}
        values = {**wait, "topics": [{"topic": "orders", "partitions": [row]}]}
        fetch = request_frame(ApiKey.FETCH, 12, 1, "speaker", values)
        last = produce_frame(3, "orders")
        speaker.send(fetch + produce_frame(2, "orders") + last[:9])
        speaker.answer(ApiKey.FETCH, 12, 1)
        speaker.answer(ApiKey.PRODUCE, PRODUCE, 2)
        speaker.patience(0.6)  # more than a look at the deadlines
        with pytest.raises(TimeoutError):
            speaker.is_hung_up()
        speaker.patience(20)
        speaker.send(last[9:])
        speaker.answer(ApiKey.PRODUCE, PRODUCE, 3)


def test_a_byte_now_and_then_does_not_extend_a_deadline(tmp_path: Path) -> None:
    limits = {"body_s": 0.2, "drain_s": 1.0}
    pause = threading.Event()
    with (
        running_broker(tmp_path / "data", deadlines=limits) as broker,
        RawKafka(broker.kafka_port) as slow,
    ):
        sent = 0
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for byte in produce_frame(1, "o" * 200):
                slow.send(bytes([byte]))
                sent += 1
                pause.wait(0.02)
        assert sent < 200


def test_more_connections_than_allowed_are_turned_away(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", limits={"connections": 2}) as broker:
        first, second = RawKafka(broker.kafka_port), RawKafka(broker.kafka_port)
        for speaker in (first, second):
            speaker.ask(ApiKey.METADATA, {"topics": []})
        with RawKafka(broker.kafka_port) as third:
            assert third.is_hung_up()
        first.close()
        endpoint = broker.app.kafka.endpoint
        eventually(lambda: broker.inside(lambda: len(endpoint.connections)) == 1)  # type: ignore[union-attr]
        with RawKafka(broker.kafka_port) as fourth:
            fourth.ask(ApiKey.METADATA, {"topics": []})
        second.close()


def test_a_client_that_reads_no_answers_makes_the_server_hold_little(
    broker: Broker, name: str
) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic(name)
        for _ in range(8):
            speaker.produce(name, batch_of("x" * 1_000_000))
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 26}
        values = {"topics": [{"topic": name, "partitions": [row]}], "max_bytes": 1 << 26}
        version = SUPPORTED[ApiKey.FETCH].newest
        frames = [request_frame(ApiKey.FETCH, version, n, "s", values) for n in range(1, 101)]
        speaker.send(b"".join(frames))
        endpoint = broker.app.kafka.endpoint

        def held() -> int:
            sizes = [each.transport.get_write_buffer_size() for each in endpoint.connections]  # type: ignore[union-attr]
            return max(sizes, default=0)

        eventually(lambda: broker.inside(held) > 1_000_000)
        assert broker.inside(held) < 20_000_000, "one answer, not a hundred"
        for number in range(1, 101):
            answer = speaker.answer(ApiKey.FETCH, version, number)
            assert len(answer["responses"][0]["partitions"][0]["records"]) > 8_000_000


def test_a_client_that_takes_nothing_of_its_answers_is_hung_up_on_with_a_line_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        running_broker(tmp_path / "data", deadlines={"idle_s": 0.1, "drain_s": 1.0}) as broker,
        RawKafka(broker.kafka_port) as speaker,
    ):
        speaker.make_topic("orders")
        for _ in range(8):
            speaker.produce("orders", batch_of("x" * 1_000_000))
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 26}
        values = {"topics": [{"topic": "orders", "partitions": [row]}], "max_bytes": 1 << 26}
        version = SUPPORTED[ApiKey.FETCH].newest
        endpoint = broker.endpoint
        frames = [request_frame(ApiKey.FETCH, version, n, "s", values) for n in range(1, 11)]
        endpoint.connections.deadlines_us[Awaits.REQUEST] = 1
        speaker.send(b"".join(frames))
        (connection,) = endpoint.connections
        eventually(lambda: connection._stuck_bytes)
        eventually(lambda: connection._stuck_since_us < endpoint.now_us() - 1_200_000)
        assert endpoint.connections, "whoever has answers to take is not idle"
        endpoint.connections.deadlines_us[Awaits.ANSWERS_TAKEN] = 1_000_000
        eventually(lambda: not endpoint.connections)
        assert endpoint.counters.hang_ups == 1
    assert "takes nothing of its answers" in capfd.readouterr().err


def test_a_port_that_is_taken_is_told_before_anything_is_made(
    broker: Broker, tmp_path: Path
) -> None:
    from headwater.core.errors import AccessError
    from tests.server.running_server import running, settings

    chosen = settings(kafka_port=broker.kafka_port)
    with pytest.raises(AccessError, match="--kafka-port"), running(tmp_path / "data", chosen):
        pass
    assert not (tmp_path / "data").exists()


def test_produces_of_one_turn_are_one_submission_to_each_log(broker: Broker, name: str) -> None:
    """Of Kafka's own log, and of the topics that are not Kafka's; each answer is its own."""
    own, native = name, f"{name}-native"
    with ExitStack() as ends:
        speakers = [ends.enter_context(RawKafka(broker.kafka_port)) for _ in range(8)]
        speakers[0].make_topic(own, 4)
        with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
            client.create(native)
        for at, speaker in enumerate(speakers):  # known connections are read together
            speaker.produce(own, batch_of("before"), partition=at % 4)
        before = submissions_of(broker)
        ends_before = [speakers[0].end_of(own, at) for at in range(4)]
        with broker.held():
            for at, speaker in enumerate(speakers):
                for topic, partition in ((own, at % 4), (native, 0), (own, 99)):
                    records = batch_of(f"{at}", "more")
                    frame = produce_frame(at, topic, records=records, partition=partition)
                    speaker.send(frame)
        told = [[answered(speaker, at) for _ in range(3)] for at, speaker in enumerate(speakers)]
        kafka, engine = (
            now - then for now, then in zip(submissions_of(broker), before, strict=True)
        )
        assert max(kafka, engine) <= 3, (kafka, engine)
        for at, (first, second, absent) in enumerate(told):
            assert (first["error_code"], second["error_code"]) == (0, 0)
            assert absent["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert first["base_offset"] >= ends_before[at % 4]
        assert sorted(second["base_offset"] for _, second, _ in told) == list(range(0, 16, 2))
        for at in range(4):
            offsets = sorted(first["base_offset"] for first, _, _ in told[at::4])
            assert offsets == [ends_before[at], ends_before[at] + 2]


def answered(speaker: RawKafka, number: int) -> dict[str, Any]:
    (topic,) = speaker.answer(ApiKey.PRODUCE, PRODUCE, number)["responses"]
    (row,) = topic["partition_responses"]
    return dict(row)


def submissions_of(broker: Broker) -> tuple[int, int]:
    """To Kafka's log, and to the engine's."""
    wal = broker.app.backend.engine.core.wal
    store = broker.app.kafka.store
    assert wal is not None
    assert store is not None
    return (
        store.shard.counters.submissions,
        sum(shard.counters.submissions for shard in wal.shards),
    )
