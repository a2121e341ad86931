"""`headwater backup` takes Kafka's log along, also while it is written to."""

from __future__ import annotations

import threading
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import pytest

from headwater.config.engine import EngineSettings
from headwater.config.kafka import KafkaSettings
from headwater.core.clock import SystemClock
from headwater.core.errors import DamageError
from headwater.disk import PosixDisk
from headwater.engine.backup import RestorePoint, make_backup, restore_backup, verify_backup
from headwater.engine.backup.archive import ArchiveWriter
from headwater.engine.backup.kafka_files import copy_kafka
from headwater.format.kafka.batch import read_header, split_batches
from headwater.store.segment import SegmentChangedError
from headwater.wire.kafka.apis import ApiKey
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_server_groups import commit, committed, enter, heartbeat, joined, sync
from tests.rig.kafka import KAFKA, KafkaLife, batch_of
from tests.server.running_server import settings

SMALL = KafkaSettings(segment_bytes=40_000, log_ahead_bytes=8_192, index_ahead_bytes=4_000)


def silent(_: int) -> Any:
    return lambda _bytes: None


def back_up(source: Path, file: Path) -> Any:
    return make_backup(
        PosixDisk(), PurePath(source), PurePath(file), EngineSettings(), SystemClock(), silent
    )


def restore(file: Path, target: Path) -> None:
    point = RestorePoint({}, None)
    restore_backup(PosixDisk(), PurePath(file), PurePath(target), point, SystemClock(), silent)


def records_in(speaker: RawKafka, topic: str) -> int:
    """Reads everything; offsets must be dense."""
    offset = 0
    while True:
        row = speaker.fetch(topic, offset)
        assert row["error_code"] == 0
        if offset >= row["high_watermark"]:
            return offset
        for batch in split_batches(row["records"]):
            header = read_header(batch)
            assert header.base_offset == offset
            offset += header.record_count


def small_broker(directory: Path) -> Broker:
    broker = Broker(directory, settings(kafka_port=0), kafka_settings=SMALL)
    broker.start()
    return broker


def test_a_backup_under_load_holds_what_was_acked_before_it(tmp_path: Path) -> None:
    broker = small_broker(tmp_path / "data")
    stop, acked = threading.Event(), [0]

    def write() -> None:
        with RawKafka(broker.kafka_port) as writer:
            while not stop.is_set():
                writer.produce("orders", batch_of("x" * 300, "y" * 300, "z" * 300))
                acked[0] += 3

    with RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic("orders")
        commit(speaker, "workers", "orders", 1)
        member = enter(speaker, "readers")
        generation = joined(speaker)["generation_id"]
        sync(speaker, "readers", member, generation)
        thread = threading.Thread(target=write)
        thread.start()
        try:
            promises = []
            for number in range(4):
                while acked[0] < (number + 1) * 90:
                    stop.wait(0.001)
                promises.append(acked[0])
                back_up(tmp_path / "data", tmp_path / f"{number}.tar")
        finally:
            stop.set()
            thread.join()
    broker.stop()
    for number, promised in enumerate(promises):
        file = PurePath(tmp_path / f"{number}.tar")
        verify_backup(PosixDisk(), file, SystemClock(), silent)
        restore(tmp_path / f"{number}.tar", tmp_path / f"back-{number}")
        with (
            running_broker(tmp_path / f"back-{number}") as back,
            RawKafka(back.kafka_port) as told,
        ):
            found = records_in(told, "orders")
            assert found >= promised
            assert committed(told, "workers", "orders")[0] == 1
            assert heartbeat(told, "readers", member, generation) == 0
            assert told.produce("orders", batch_of("a"))["base_offset"] == found


def test_a_backup_of_rewritten_and_removed_segments_comes_back(tmp_path: Path) -> None:
    broker = small_broker(tmp_path / "data")
    with RawKafka(broker.kafka_port) as speaker:
        for topic in ("kept", "thinned"):
            speaker.make_topic(topic)
        for _ in range(60):
            speaker.produce("kept", batch_of("k" * 500))
            speaker.produce("thinned", batch_of("t" * 1_500))
        rows = [{"partition_index": 0, "offset": 55}]
        asked = {"topics": [{"name": "thinned", "partitions": rows}]}
        speaker.ask(ApiKey.DELETE_RECORDS, asked)
        assert broker.app.kafka.store is not None
        broker.app.kafka.store.housekeep()
        assert broker.app.kafka.store.counters.segments_rewritten
        back_up(tmp_path / "data", tmp_path / "b.tar")
    broker.stop()
    restore(tmp_path / "b.tar", tmp_path / "back")
    with running_broker(tmp_path / "back") as back, RawKafka(back.kafka_port) as speaker:
        assert records_in(speaker, "kept") == 60
        assert speaker.fetch("thinned", 55)["log_start_offset"] == 55


def test_a_batch_that_was_damaged_before_the_backup_is_found_by_verifying(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic("orders")
        speaker.produce("orders", batch_of("x" * 100))
    log = tmp_path / "data" / "kafka" / "0.log"
    contents = bytearray(log.read_bytes())
    contents[contents.rindex(b"xxx")] ^= 1
    log.write_bytes(contents)
    back_up(tmp_path / "data", tmp_path / "b.tar")
    with pytest.raises(DamageError, match="CRC"):
        verify_backup(PosixDisk(), PurePath(tmp_path / "b.tar"), SystemClock(), silent)


def test_a_rewrite_in_the_middle_of_a_copy_begins_it_again() -> None:
    """Nothing of the copy is kept that a restore could not put together."""
    life = KafkaLife()
    for topic in ("kept", "thinned"):
        life.create(topic)
    for _ in range(12):
        life.append("kept", batch_of("k" * 100))
        life.append("thinned", batch_of("t" * 300))
    life.store.checkpoint()
    for moment in range(1, 25):
        pieces = 0

        def advance(_: int, moment: int = moment) -> None:
            nonlocal pieces
            pieces += 1
            if pieces == moment:
                end = life.partition("thinned").high_watermark
                life.do(lambda: life.partition("thinned").delete_records(end))
                life.store.housekeep()

        archive = ArchiveWriter(life.disk, PurePosixPath(f"/data/{moment}.tar"), 0, advance)
        rewritten = life.store.counters.segments_rewritten
        try:
            copy_kafka(life.disk, archive, KAFKA.parent)
        except SegmentChangedError:
            assert pieces >= moment
        else:
            assert life.store.counters.segments_rewritten == rewritten
        for _ in range(4):
            life.append("thinned", batch_of("t" * 300))
            life.append("kept", batch_of("k" * 100))
        life.store.checkpoint()
