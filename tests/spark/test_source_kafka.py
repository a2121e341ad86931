"""Partitions of Kafka topics, read from the files of the shared log beside its owner."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

import headwater
from headwater.core.clock import Doorbell
from headwater.core.errors import DamageError, DataLossError, RequestError, TopicNotFoundError
from headwater.disk import OpenMode
from headwater.format.kafka.names import log_name
from headwater.recovery.kafka.view import KafkaView
from headwater.spark.source.filters import Filters
from headwater.spark.source.kafka_location import (
    KafkaDirectory,
    KafkaSlice,
    KafkaSnapshot,
    read_slices,
)
from headwater.spark.source.location import LostSeqs, ReadContext
from headwater.spark.source.options import source_options
from headwater.spark.source.stream_reader import StreamReader
from headwater.testing import FakeDisk, ManualClock
from tests.kafka.broker import Broker, running_broker
from tests.rig.kafka import KAFKA, NOW_MS, SMALL_KAFKA, KafkaLife, batch_of
from tests.spark.direct_reader import Row, options_of, read, read_all, reader_of

UNCACHED = replace(SMALL_KAFKA, cache_bytes=0)
ReadRows = list[tuple[int, str] | LostSeqs]


class Hurried(ManualClock):
    """Time passes when somebody waits for it."""

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        assert until_us is not None
        self.advance(max(until_us - self.monotonic_us(), 0))
        return False


class Beside:
    """The source's own eyes on the disk of a life."""

    def __init__(self, life: KafkaLife, rows_max: int = 10) -> None:
        self.directory = KafkaDirectory(str(KAFKA.parent), 1, life.disk, Hurried())
        self.rows_max = rows_max

    def plan(self, name: str, filters: Filters | None = None) -> list[KafkaSlice]:
        def work(view: KafkaView) -> list[KafkaSlice]:
            snapshot = KafkaSnapshot(self.directory, view, self.rows_max, 1 << 20)
            facts = snapshot.facts(name)
            assert facts is not None, name
            return snapshot.slices(facts, facts.first_seq, facts.head_seq, filters or Filters())

        return self.directory.now(work)

    def read(
        self, slices: list[KafkaSlice], *, strict: bool = True, filters: Filters | None = None
    ) -> ReadRows:
        """As one task, elsewhere."""
        result: ReadRows = []
        arrived = pickle.loads(pickle.dumps(slices))
        wanted = filters or Filters()
        context = ReadContext(wanted, verify=True, fail_on_data_loss=strict)
        elsewhere = KafkaDirectory(str(KAFKA.parent), 1, self.directory.disk, self.directory.clock)
        for _, what in read_slices(elsewhere, arrived, context):
            if isinstance(what, LostSeqs):
                result.append(what)
                continue
            mask = wanted.mask(what)
            rows = what if mask is None else what.kept(mask)
            datas = rows.text("data").to_pylist()
            result += list(zip(rows.seqs.tolist(), datas, strict=True))
        return result

    def seq_at(self, name: str, ts_ms: int, *, tolerant: bool = False) -> int:
        def work(view: KafkaView) -> int:
            snapshot = KafkaSnapshot(self.directory, view, self.rows_max, 1 << 20)
            facts = snapshot.facts(name)
            assert facts is not None, name
            return snapshot.seq_at(facts, ts_ms * 1_000, tolerant=tolerant)

        return self.directory.now(work)

    def everything(self, name: str) -> ReadRows:
        return self.read(self.plan(name))


def values(life: KafkaLife, name: str, index: int = 0) -> ReadRows:
    """What a fetch gives, as this source should."""
    start = life.partition(name, index).log_start_offset
    read = enumerate(life.values(name, index), start + 1)
    return [(seq, value.decode()) for seq, value in read]


def filled(batches: int = 30, settings: Any = UNCACHED) -> KafkaLife:
    life = KafkaLife(settings=settings)
    life.create("orders", 2)
    life.create("clicks")
    for number in range(batches):
        stamp = NOW_MS + number * 1_000
        life.append("orders", batch_of(f'"o{number}"', f'"p{number}"', timestamp_ms=stamp))
        life.append("clicks", batch_of(f'"c{number}"'))
        if number % 3 == 0:
            life.append("orders", batch_of(f'"q{number}"'), 1)
    return life


NAMES = (
    ("kafka:orders:0", "orders", 0),
    ("kafka:orders:1", "orders", 1),
    ("kafka:clicks:0", "clicks", 0),
)


def check(life: KafkaLife, expected: dict[str, ReadRows]) -> None:
    beside = Beside(life)
    for name, wanted in expected.items():
        assert beside.everything(name) == wanted


def all_values(life: KafkaLife) -> dict[str, ReadRows]:
    return {name: values(life, topic, index) for name, topic, index in NAMES}


def test_files_tell_what_fetches_tell_before_and_after_every_kind_of_stop() -> None:
    life = filled()
    expected = all_values(life)
    assert len(expected["kafka:orders:0"]) == 60
    check(life, expected)
    life.store.checkpoint()
    check(life, expected)
    assert isinstance(life.disk, FakeDisk)
    killed = life.disk.after_kill()
    beside = Beside(life)
    beside.directory = KafkaDirectory(str(KAFKA.parent), 1, killed, Hurried())
    assert beside.everything("kafka:orders:0") == expected["kafka:orders:0"]
    check(life.reopen(), expected)


def test_rows_after_rewrites_and_deleted_segments_are_those_of_a_fetch() -> None:
    life = filled(60)
    beside = Beside(life)
    planned = beside.plan("kafka:orders:0")
    life.do(lambda: life.partition("clicks").delete_records(55))
    life.do(lambda: life.partition("orders", 1).delete_records(18))
    life.store.housekeep()
    assert life.store.counters.segments_rewritten
    check(life, all_values(life))
    # What was planned before is found where it went.
    assert beside.read(planned) == values(life, "orders")
    life.do(lambda: life.partition("orders").delete_records(100))
    life.store.housekeep()
    assert life.store.counters.segments_deleted
    check(life, all_values(life))


def test_what_goes_between_planning_and_reading_is_told_and_never_given() -> None:
    life = filled(20)
    beside = Beside(life, rows_max=1_000)
    planned = beside.plan("kafka:orders:0")
    life.do(lambda: life.partition("orders").delete_records(11))
    gap, *rows = beside.read(planned)
    assert gap == LostSeqs(1, 11, "log_start", 11)
    assert rows == values(life, "orders")
    topic = life.store.topic(1, "orders")
    assert topic is not None
    life.do(topic.drop)
    assert beside.read(planned) == [LostSeqs(1, 40, "dropped", 40)]
    life.create("orders", 2)
    life.append("orders", batch_of('"new"'))
    assert beside.read(planned) == [LostSeqs(1, 40, "recreated", 40)]
    assert beside.everything("kafka:orders:0") == [(1, '"new"')]


def test_slices_are_cut_between_batches_and_filters_prune_them() -> None:
    life = filled()
    beside = Beside(life)
    planned = beside.plan("kafka:orders:0")
    assert [each.rows for each in planned] == [10] * 6
    filters = Filters()
    filters.seq.narrow(23, 34)
    pruned = beside.plan("kafka:orders:0", filters)
    assert (pruned[0].first_seq, pruned[-1].last_seq) == (23, 34)
    assert beside.read(pruned, filters=filters) == values(life, "orders")[22:34]
    late = Filters()
    late.ts_us.narrow((NOW_MS + 25_000) * 1_000, None)
    assert beside.read(planned, filters=late) == values(life, "orders")[50:]


def test_a_damaged_batch_is_refused_with_file_and_offset_or_told_as_a_gap() -> None:
    life = filled(30)
    life.close()
    beside = Beside(life)
    planned = beside.plan("kafka:orders:0")
    entry = planned[0].batches.entries[3]
    position = int(entry["physical_offset"])
    path = KAFKA / log_name(int(entry["segment_id"]))
    file = life.disk.open(path, OpenMode.UPDATE)
    file.write(position + 70, [b"\xff\xff"])
    file.close()
    with pytest.raises(DamageError, match="seqs 7 to 8: the CRC32C") as refused:
        beside.read(planned)
    assert refused.value.path == path
    assert refused.value.offset == position
    read = beside.read(planned, strict=False)
    gaps = [each for each in read if isinstance(each, LostSeqs)]
    assert [(gap.gap_from, gap.gap_to) for gap in gaps] == [(7, 8)]
    others = [(n + 1, f'"{"op"[n % 2]}{n // 2}"') for n in range(60) if n + 1 not in (7, 8)]
    assert [each for each in read if not isinstance(each, LostSeqs)] == others


def test_an_index_that_is_not_what_was_synced_is_refused() -> None:
    life = filled(30)
    life.close()
    path = next(KAFKA / name for name in life.disk.list_directory(KAFKA) if name == "0.oidx")
    file = life.disk.open(path, OpenMode.UPDATE)
    file.write(41, [b"\xff"])
    file.close()
    with pytest.raises(DamageError, match="not those that were synced"):
        Beside(life).plan("kafka:orders:0")


def test_a_directory_without_kafka_has_no_partitions(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data") as db:
        db.append("orders", {"data": 1})
    with pytest.raises(TopicNotFoundError, match="organisation"):
        read(tmp_path / "data", topic="kafka:orders:0")
    assert read(tmp_path / "data", topicPattern="kafka:.*") == []
    with pytest.raises(RequestError, match="organisation goes with path"):
        source_options({"url": "http://x", "topic": "a", "organisation": "2"})


# -- beside a living server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka-files") / "data") as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics([NewTopic("orders", 2), NewTopic("timed", 1)]).values():
            made.result(60)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = Producer(
                {"bootstrap.servers": running.bootstrap, "compression.type": codec, "linger.ms": 5}
            )
            for n in range(120):
                producer.produce(
                    "orders",
                    None if n == 7 else b"\xfe\xff" if n == 8 else f'{{"n":{n}}}'.encode(),
                    None if n % 5 == 0 else f"key{n % 3}",
                    partition=n % 2,
                    headers=[("codec", codec)],
                )
            assert producer.flush(60) == 0
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for n, stamp in enumerate((5_000, 1_000, 9_000, 2_000, 9_000)):
            producer.produce("timed", str(n), timestamp=stamp)
        assert producer.flush(60) == 0
        yield running


def by_url(broker: Broker, **options: Any) -> list[Row]:
    return read(None, url=f"http://127.0.0.1:{broker.port}", **options)


def from_files(broker: Broker, **options: Any) -> list[Row]:
    return read(broker.directory, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "kafka:orders:0"},
        {"topics": "kafka:orders:0,kafka:orders:1", "rowsPerPartition": 50},
        {"topicPattern": "kafka:.*"},
        {"topic": "kafka:orders:1", "startingSeq": 20, "endingSeq": 100},
        {"topic": "kafka:orders:1", "fields": "n long", "invalid": "null"},
        {"topic": "kafka:orders:0", "payload": "binary", "verify": "false"},
        {"topic": "kafka:timed:0", "startingTimestamp": 2_000, "endingTimestamp": 9_000},
        {
            "topic": "kafka:orders:0",
            "filters": [In(("seq",), (3, 70, 201)), EqualTo(("tag",), "key1")],
        },
        {
            "topic": "kafka:orders:0",
            "filters": [GreaterThanOrEqual(("seq",), 31), LessThan(("seq",), 222)],
        },
    ],
    ids=lambda options: ",".join(str(value) for value in options.values())[:40],
)
def test_rows_from_files_are_those_of_the_server(broker: Broker, options: dict[str, Any]) -> None:
    expected = by_url(broker, **options)
    assert expected
    assert from_files(broker, **options) == expected


def test_topics_of_both_kinds_are_read_in_one_query(broker: Broker) -> None:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.append("plain", [{"data": n} for n in range(5)])
    rows = from_files(broker, topics="plain,kafka:timed:0")
    assert sorted((row["topic"], row["seq"]) for row in rows) == [
        *(("kafka:timed:0", seq) for seq in range(1, 6)),
        *(("plain", seq) for seq in range(1, 6)),
    ]


def test_other_organisations_are_seen_by_their_number_only(broker: Broker) -> None:
    with pytest.raises(TopicNotFoundError, match="organisation"):
        from_files(broker, topic="kafka:orders:0", organisation=2)


def test_a_stream_goes_on_where_it_was_and_begins_at_a_time(broker: Broker) -> None:
    def stream(**options: Any) -> StreamReader:
        chosen = source_options(options_of(broker.directory, options))
        schema = reader_of(broker.directory, **options)._columns.schema
        return StreamReader(chosen, schema)

    first = stream(topic="kafka:timed:0", startingTimestamp=9_000).initialOffset()
    assert first["topics"]["kafka:timed:0"]["seq"] == 2
    reader = stream(topic="kafka:timed:0")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(start, limit)
    assert len(read_all(reader, reader.partitions(start, end))) == 5
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("timed", b"5", timestamp=9_500)
    assert producer.flush(60) == 0
    later = reader.latestOffset(end, limit)
    assert [row["data"] for row in read_all(reader, reader.partitions(end, later))] == ["5"]


def test_what_a_server_deletes_is_told_with_range_and_reason(broker: Broker) -> None:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.delete("kafka:orders:1", before_seq=41)
    with pytest.raises(
        DataLossError, match=r"'kafka:orders:1' has lost seqs 5 to 40 \(log_start\)"
    ):
        from_files(broker, topic="kafka:orders:1", startingSeq=5)
    options = {"topic": "kafka:orders:1", "startingSeq": 5, "failOnDataLoss": "false"}
    assert from_files(broker, **options) == by_url(broker, **options)
    assert from_files(broker, topic="kafka:orders:1")[0]["seq"] == 41
