"""One flipped bit in a sealed segment of a server: every protocol says so, and so does the server.

The same server, restarted or not: what was in memory before must not hide what the disk has now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

import headwater
from headwater.config.store import SegmentSettings
from headwater.core.errors import DataLossError
from headwater.core.results import Tombstone
from headwater.wire.kafka.apis import ErrorCode
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.rig.captured_logs import captured_logs
from tests.rig.damage import damage_records, flip_bit, frame_place
from tests.rig.kafka import batch_of
from tests.server.running_server import SMALL_ENGINE, eventually, settings
from tests.server.test_job_pusher import working
from tests.server.test_websocket import open_socket
from tests.server.watches import watching
from tests.spark.direct_reader import read

ENGINE = replace(SMALL_ENGINE, segments=SegmentSettings(segment_max_events=10), cache_bytes=0)
RECORDS = 25
BAD = 14
WHOLE = [n for n in range(1, RECORDS + 1) if n != BAD]
GAP = {"gap_from": BAD, "gap_to": BAD, "reason": "damaged", "missed_estimate": 1}


@contextmanager
def serving(directory: Path, **fields: Any) -> Iterator[Broker]:
    broker = Broker(directory, settings(kafka_port=0, **fields), engine_settings=ENGINE)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(params=["running", "restarted"])
def hurt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A log, a queue and a router's source with one damaged record each."""
    data = tmp_path / "data"
    if request.param == "running":
        with serving(data) as broker:
            damage(data, fill(broker))
            yield broker
        return
    with serving(data) as broker:
        numbers = fill(broker)
    damage(data, numbers)
    with serving(data) as broker:
        yield broker


def fill(broker: Broker) -> list[int]:
    with broker.talk() as http:
        records = [{"data": n, "tag": f"t{n % 2}"} for n in range(1, RECORDS + 1)]
        http.put("jobs", type="queue", dead_letter="dead", lease_ms=600_000)
        for topic in ("events", "jobs"):
            assert http.write_records(topic, *records).json["head_seq"] == RECORDS
    broker.app.backend.engine.checkpoint()
    return [broker.app.backend.engine.topic(topic).topic_id for topic in ("events", "jobs")]


def damage(data: Path, numbers: list[int]) -> None:
    for number in numbers:
        damage_records(data, number, [BAD])


def gap_of(tombstone: Any) -> dict[str, Any]:
    return {name: tombstone[name] for name in GAP}


def by_diff(broker: Broker) -> tuple[list[int], list[Any]]:
    seqs, gaps, cursor = [], [], 0
    with broker.talk() as http:
        while True:
            page = http.diff("events", from_seq=cursor).json
            gaps += [gap_of(page["tombstone"])] if page["tombstone"] else []
            seqs += [record["$seq"] for record in page["records"]]
            cursor = page["next_from_seq"]
            if page["caught_up"]:
                return seqs, gaps


def by_client(broker: Broker) -> tuple[list[int], list[Any]]:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        found = list(client.watch("events", idle_ms=1))
    gaps = [as_gap(each) for each in found if isinstance(each, Tombstone)]
    return [each.seq for each in found if not isinstance(each, Tombstone)], gaps


def as_gap(gap: Tombstone) -> dict[str, Any]:
    return {name: getattr(gap, name) for name in GAP}


def by_arrow(broker: Broker) -> tuple[list[int], list[Any]]:
    seqs, gaps, cursor = [], [], 0
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        while True:
            page = client.arrow("events", cursor)
            gaps += [as_gap(page.tombstone)] if page.tombstone else []
            seqs += pyarrow.ipc.open_stream(page.stream).read_all().column("seq").to_pylist()
            cursor = page.next_from_seq
            if page.caught_up:
                return seqs, gaps


def by_sse(broker: Broker) -> tuple[list[int], list[Any]]:
    seqs, gaps = [], []
    with watching(broker, {"events": {"from_seq": 0}}) as events:
        for event in events.until("caught-up"):
            if event.kind == "tombstone":
                gaps.append(gap_of(event.data))
            elif event.kind == "record":
                seqs += [record["$seq"] for record in event.data["records"]]
    return seqs, gaps


def by_websocket(broker: Broker) -> tuple[list[int], list[Any]]:
    seqs, gaps = [], []
    with open_socket(broker) as socket:
        socket.say("subscribe", topic="events", from_seq=0)
        while (said := socket.hear())["op"] != "caught_up":
            if said["op"] == "tombstone":
                gaps.append(gap_of(said))
            elif said["op"] == "record":
                seqs += [record["$seq"] for record in said["records"]]
    return seqs, gaps


WAYS = {
    "diff": by_diff,
    "client": by_client,
    "arrow": by_arrow,
    "sse": by_sse,
    "websocket": by_websocket,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_is_given_a_tombstone_with_the_exact_range(hurt: Broker, way: str) -> None:
    assert WAYS[way](hurt) == (WHOLE, [GAP])


def fetch(speaker: RawKafka, topic: str, offset: int) -> dict[str, Any]:
    row: dict[str, Any] = speaker.fetch(topic, offset)
    return row


def test_a_kafka_consumer_gets_what_is_before_and_then_a_corrupt_message(hurt: Broker) -> None:
    with RawKafka(hurt.kafka_port) as speaker:
        first = bytes(fetch(speaker, "events", 0)["records"])
        assert int.from_bytes(first[23:27], "big") + 1 == BAD - 1  # up to the offset before it
        refused = fetch(speaker, "events", BAD - 1)
        assert refused["error_code"] == ErrorCode.CORRUPT_MESSAGE
        behind = fetch(speaker, "events", BAD)
        assert behind["error_code"] == ErrorCode.NONE
        assert len(behind["records"])


def test_a_damaged_job_goes_to_the_dead_letters_and_the_others_to_workers(hurt: Broker) -> None:
    done: list[int] = []
    with hurt.talk() as http:
        while jobs := http.queue("claim", "jobs", max=4).json["claimed"]:
            seqs = [job["$seq"] for job in jobs]
            http.queue("ack", "jobs", seqs=seqs)
            done += seqs
        assert done == WHOLE
        assert http.get("/v0/topics/jobs").json["queue"] == {
            "ready": 0, "in_flight": 0, "delayed": 0, "dead_lettered": 1, "blocked": 0,
        }  # fmt: skip
        (letter,) = http.diff("dead", include_meta=True).json["records"]
        assert letter["meta"]["$dead_letter_cause"] == "damaged"
        assert letter["meta"]["$dead_letter_src_seq"] == BAD


def test_a_worker_whose_jobs_are_pushed_gets_the_others_and_nothing_stays_in_flight(
    hurt: Broker,
) -> None:
    with hurt.talk() as http, working(hurt, "jobs", max=RECORDS) as events:
        pushed = [events.next() for _ in WHOLE]
        assert [int(event.id or 0) for event in pushed] == WHOLE

        def queue() -> dict[str, int]:
            found: dict[str, int] = http.get("/v0/topics/jobs").json["queue"]
            return found

        eventually(lambda: queue()["dead_lettered"] == 1)
        assert queue()["in_flight"] == len(WHOLE)


def test_log_readiness_status_and_metrics_name_topic_file_and_offset_once(
    hurt: Broker,
) -> None:
    events = hurt.app.backend.engine.topic("events")
    path, offset, _ = frame_place(hurt.directory, events.topic_id, BAD)
    with captured_logs() as lines, hurt.talk() as http:
        assert "damage" not in http.get("/readyz").json
        for _ in range(3):
            by_diff(hurt)

        def told() -> list[dict[str, Any]]:
            return [dict(line) for line in lines if line.get("first_seq") == BAD]

        eventually(told)
        assert [line["topic"] for line in told()] == ["events"]
        assert told()[0]["level"] == "error"
        assert (told()[0]["path"], told()[0]["offset"]) == (str(path), offset)
        place = {
            "topic": "events", "file": str(path), "offset": offset,
            "first_seq": BAD, "last_seq": BAD, "reason": told()[0]["reason"],
        }  # fmt: skip
        for answer in (http.get("/readyz"), http.get("/v0/status")):
            assert answer.status == 200
            assert answer.json["damage"] == {"records": 1, "places": [place], "more": 0}
        metrics = http.get("/v0/metrics", accept="application/json").json["metrics"]
        assert metrics["headwater_damaged_records"] == 1
        text = http.get("/metrics").body.decode()
        assert 'headwater_topic_damaged_records{topic="events"} 1' in text


def test_names_of_files_are_for_those_who_may_administer(tmp_path: Path) -> None:
    keys = ("secret-root", "secret-of-events:read:ev", "secret-of-others:read:other")
    data = tmp_path / "data"
    with serving(data) as broker:
        numbers = fill(broker)
    damage(data, numbers[:1])
    with serving(data, api_keys=keys) as broker:

        def places(secret: str | None, path: str = "/readyz") -> list[dict[str, Any]]:
            with broker.talk(key=secret) as http:
                found: list[dict[str, Any]] = http.get(path).json["damage"]["places"]
                return found

        with broker.talk(key="secret-root") as http:
            http.diff("events")
        assert places(None) == []
        assert places("secret-of-others") == []
        assert [each["file"] for each in places("secret-of-events")] == [
            "seg-0000000000000011.data"
        ]
        assert places("secret-root")[0]["file"].startswith(str(data))


def test_a_setting_lets_kafka_consumers_pass_what_is_damaged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as broker, RawKafka(broker.kafka_port) as speaker:
        numbers = fill(broker)
        speaker.make_topic("orders")
        for n in range(3):
            speaker.produce("orders", batch_of(f"value {n}"))
    damage(data, numbers)
    log = data / "kafka" / "0.log"
    flip_bit(log, log.read_bytes().index(b"value 1"))
    for passes in (False, True):
        with (
            serving(data, kafka_skip_damaged=passes) as broker,
            RawKafka(broker.kafka_port) as speaker,
        ):
            for topic, bad in (("events", BAD - 1), ("orders", 1)):
                row = fetch(speaker, topic, bad)
                expected = ErrorCode.NONE if passes else ErrorCode.CORRUPT_MESSAGE
                assert row["error_code"] == expected
            with broker.talk() as http:  # others are told in any case
                page = http.diff("kafka:orders:0").json
                assert [record["$seq"] for record in page["records"]] == [1]
                page = http.diff("kafka:orders:0", from_seq=1).json
                assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (2, 2)
                assert page["tombstone"]["reason"] == "damaged"
                assert page["next_from_seq"] == 2
                page = http.diff("kafka:orders:0", from_seq=2).json
                assert [record["$seq"] for record in page["records"]] == [3]


def test_a_program_with_librdkafka_is_told_and_not_kept_waiting(hurt: Broker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": hurt.bootstrap,
            "group.id": "told",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition("events", 0, 0)])
    offsets, error = [], None
    try:
        while error is None:
            message = consumer.poll(20)
            assert message is not None, "the consumer waits without a word"
            error = message.error()
            if error is None:
                offsets.append(message.offset())
    finally:
        consumer.close()
    assert offsets == list(range(BAD - 1))
    assert error.code() == KafkaError._BAD_MSG or error.code() == ErrorCode.CORRUPT_MESSAGE


def test_spark_fails_its_query_or_gives_the_gap_as_a_row(hurt: Broker) -> None:
    """The source as an executor runs it, through the server; no JVM is needed for that."""
    url = f"http://127.0.0.1:{hurt.port}"
    with pytest.raises(DataLossError, match="damaged"):
        read(None, url=url, topic="events")
    rows = read(None, url=url, topic="events", failOnDataLoss="false")
    assert [row["seq"] for row in rows if row["data"] is not None] == WHOLE
