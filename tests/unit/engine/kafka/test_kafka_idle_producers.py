"""Producers that are not heard of: kept small, forgotten after a day, and never before."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from headwater.config.kafka import KafkaSettings
from headwater.core.errors import FormatError, HeadwaterError, RequestError
from headwater.core.units import US_PER_S
from headwater.disk import read_whole, replace_file
from headwater.engine.kafka import housekeeping
from headwater.engine.kafka.errors import SequenceError
from headwater.engine.kafka.producers import AWAKE_MAX, Producers
from headwater.format.kafka.batch import BatchHeader, read_header
from headwater.format.kafka.checkpoint import (
    KafkaCheckpoint,
    ProducerMeta,
    decode_checkpoint,
    encode_checkpoint,
    pack_producer,
    unpack_producer,
)
from headwater.format.kafka.names import CHECKPOINT_NAME
from headwater.format.kafka.records import BatchProducer
from headwater.server.kafka.refusals import code_of
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import KAFKA, LARGE_KAFKA, KafkaLife, batch_of
from tests.rig.kafka_restarts import RESTARTS, Restart, kill

HOUR_US = 3_600 * US_PER_S
MANY = 3 * AWAKE_MAX


def sent(sequence: int, producer_id: int = 7) -> bytes:
    return batch_of(f"{producer_id}.{sequence}", producer=BatchProducer(producer_id, 0, sequence))


def header(sequence: int, producer_id: int = 7) -> BatchHeader:
    return read_header(sent(sequence, producer_id))


def new_life(settings: KafkaSettings = LARGE_KAFKA) -> KafkaLife:
    life = KafkaLife(settings=settings)
    life.create("orders")
    return life


def remembered(life: KafkaLife) -> int:
    """Producers of the partition."""
    producers = life.partition("orders").producers
    return 0 if producers is None else len(producers)


def saved(life: KafkaLife) -> KafkaCheckpoint:
    return decode_checkpoint(read_whole(life.disk, KAFKA / CHECKPOINT_NAME, 2**20))


@RESTARTS
def test_a_batch_that_comes_again_within_a_day_is_recognised(restart: Restart) -> None:
    life = new_life()
    life.append("orders", sent(0))
    life.append("orders", sent(1))
    for _ in range(2):
        life.clock.advance(12 * HOUR_US)
        life = restart(life)
        life.store.housekeep()
    assert [life.append("orders", sent(sequence)).base_offset for sequence in (0, 1)] == [0, 1]
    assert life.partition("orders").high_watermark == 2


def test_a_producer_that_is_idle_for_more_than_a_day_is_forgotten() -> None:
    life = new_life()
    life.append("orders", sent(0))
    life.append("orders", sent(5, producer_id=8))
    life.clock.advance(12 * HOUR_US)
    life.append("orders", sent(6, producer_id=8))
    life.clock.advance(12 * HOUR_US + 2 * US_PER_S)
    life.store.housekeep()
    assert remembered(life) == 1
    assert life.append("orders", sent(6, producer_id=8)).base_offset == 2
    with pytest.raises(HeadwaterError) as refused:
        life.append("orders", sent(9, producer_id=8))
    assert code_of(refused.value) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Nobody knows it: any sequence may be its first, and what came before is new.
    assert life.append("orders", sent(3)).base_offset == 3
    life.clock.advance(25 * HOUR_US)
    life.store.housekeep()
    assert life.partition("orders").producers is None
    (topic,) = saved(life).topics
    assert topic.partitions[0].producers == ()


def test_the_keeper_forgets_by_itself() -> None:
    life = new_life()
    life.append("orders", sent(0))
    life.clock.advance(25 * HOUR_US)
    life.store._housekeeping.run()
    assert remembered(life) == 0


def test_a_day_is_counted_over_restarts() -> None:
    life = new_life()
    life.append("orders", sent(0))
    for _ in range(3):
        life.clock.advance(9 * HOUR_US)
        life = life.reopen()
    life.store.housekeep()
    assert remembered(life) == 0


def test_the_time_a_server_is_away_does_not_count_nor_a_leap_of_the_wall_clock() -> None:
    life = new_life()
    life.append("orders", sent(0))
    life.close()
    life.clock.advance(100 * HOUR_US)
    life = KafkaLife(life.disk, life.settings, life.clock)
    life.clock.jump_wall(1000 * HOUR_US // 1_000)
    life.store.housekeep()
    assert life.append("orders", sent(0)).base_offset == 0


def test_what_was_written_after_the_last_checkpoint_is_remembered_for_a_day_from_the_start() -> (
    None
):
    life = new_life()
    life.clock.advance(30 * HOUR_US)
    life.store.checkpoint()
    life.clock.advance(20 * HOUR_US)
    life.append("orders", sent(0))
    life = kill(life)
    life.clock.advance(24 * HOUR_US)
    life.store.housekeep()
    assert life.append("orders", sent(0)).base_offset == 0
    life.clock.advance(HOUR_US)
    life.store.housekeep()
    assert remembered(life) == 0


def test_producers_of_a_checkpoint_without_times_are_remembered_for_a_day() -> None:
    life = new_life()
    life.append("orders", sent(0))
    life.clock.advance(30 * HOUR_US)
    life.close()
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(saved(life)))
    (producer,) = old[2][0][5][0][2]
    assert producer.pop() == 0
    del old[6:]
    body = msgspec.msgpack.encode(old)
    whole = msgspec.msgpack.decode(body, type=KafkaCheckpoint)
    replace_file(life.disk, KAFKA / CHECKPOINT_NAME, encode_checkpoint(whole))
    life = KafkaLife(life.disk, life.settings, life.clock)
    life.clock.advance(24 * HOUR_US)
    life.store.housekeep()
    assert life.append("orders", sent(0)).base_offset == 0
    life.clock.advance(HOUR_US)
    life.store.housekeep()
    assert remembered(life) == 0


@RESTARTS
def test_more_producers_than_are_kept_awake_are_recognised_all_the_same(restart: Restart) -> None:
    life = new_life()
    for sequence in range(2):
        for producer_id in range(MANY):
            life.append("orders", sent(sequence, producer_id))
    life = restart(life)
    for sequence in range(2):
        for producer_id in range(MANY):
            again = life.append("orders", sent(sequence, producer_id))
            assert again.base_offset == sequence * MANY + producer_id
    assert life.append("orders", sent(2, 0)).base_offset == 2 * MANY


def test_the_oldest_goes_when_there_are_more_than_a_partition_remembers() -> None:
    life = new_life(replace(LARGE_KAFKA, producers_max=MANY))
    for producer_id in (*range(MANY), 0, MANY):
        life.append("orders", sent(1 if producer_id == 0 else 0, producer_id))
    assert remembered(life) == MANY
    assert life.append("orders", sent(1, 0)).base_offset == 0
    assert life.append("orders", sent(0, 1)).base_offset == MANY + 1


def test_one_that_waits_for_a_refused_batch_stays_awake() -> None:
    producers = Producers(10_000)
    producers.refuse(header(3))
    for producer_id in range(100, 100 + MANY):
        producers.take(header(0, producer_id), producer_id)
    producers.meta()
    with pytest.raises(SequenceError):
        producers.check(header(4))
    assert producers.check(header(3)) is None


def test_one_with_a_batch_under_way_stays_awake_and_is_not_forgotten() -> None:
    producers = Producers(10_000)
    batch = producers.take(header(0), 0, pending="write")
    for producer_id in range(100, 100 + MANY):
        producers.take(header(0, producer_id), producer_id)
    packed = {unpack_producer(each).producer_id: each for each in producers.meta()}
    assert unpack_producer(packed[7]).batches == ()
    assert producers.forget_idle(1, 10_000) == MANY
    assert producers.check(header(0)) is batch
    batch.pending = None
    assert unpack_producer(producers.meta()[0]).batches == ((0, 0, 0),)
    assert producers.forget_idle(1, 10_000) == 1
    assert len(producers) == 0


def test_a_checkpoint_says_again_what_did_not_change() -> None:
    life = new_life()
    life.create("clicks", 2)
    life.append("clicks", sent(0), 0)
    life.append("clicks", sent(0), 1)
    (one, two) = next(t for t in life.store.checkpoint().topics if t.name == "clicks").partitions
    life.append("clicks", sent(1), 1)
    (same, other) = next(t for t in life.store.checkpoint().topics if t.name == "clicks").partitions
    assert same.producers is one.producers
    assert other.producers != two.producers


def test_many_are_forgotten_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_SLICE", 10)
    life = new_life()
    life.create("clicks", 30)
    for producer_id in range(25):
        life.append("orders", sent(0, producer_id))
    for index in range(30):
        life.append("clicks", sent(0), index)
    life.clock.advance(25 * HOUR_US)
    looked: list[int] = []
    slices: list[int] = []
    shrink = housekeeping.ProducerExpiry._shrink

    def counted(self: housekeeping.ProducerExpiry, *args: object) -> int:
        gone = shrink(self, *args)  # type: ignore[arg-type]
        looked.append(gone)
        return gone

    def one_slice(self: housekeeping.ProducerExpiry, *args: object) -> None:
        looked.clear()
        take(self, *args)  # type: ignore[arg-type]
        slices.append(sum(looked))
        assert sum(looked) <= 10
        assert len(looked) <= 10

    take = housekeeping.ProducerExpiry._slice
    monkeypatch.setattr(housekeeping.ProducerExpiry, "_shrink", counted)
    monkeypatch.setattr(housekeeping.ProducerExpiry, "_slice", one_slice)
    life.store.housekeep()
    assert sum(slices) == 55
    assert not life.store.core.idempotent


def test_partitions_of_a_dropped_topic_are_no_longer_looked_at() -> None:
    life = new_life()
    life.append("orders", sent(0))
    topic = life.partition("orders").topic
    assert list(life.store.core.idempotent) == topic.partitions
    life.do(topic.drop)
    assert not life.store.core.idempotent


def test_a_time_to_forget_is_at_least_one_millisecond() -> None:
    with pytest.raises(RequestError):
        KafkaSettings(producer_expiration_ms=0)


def test_a_producer_in_a_checkpoint_is_one_or_refused() -> None:
    meta = ProducerMeta(7, 0, ((0, 4, 10),), 99)
    assert unpack_producer(pack_producer(meta)) == meta
    with pytest.raises(FormatError):
        unpack_producer(msgspec.Raw(b"\x93\x01"))
    with pytest.raises(FormatError):
        unpack_producer(msgspec.Raw(msgspec.msgpack.encode(["seven", 0, []])))
