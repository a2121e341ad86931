"""Idempotent producers, producer ids and group offsets, also after restarts."""

from __future__ import annotations

import pytest

from headwater.config.kafka import KafkaSettings
from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.core.errors import DiskFullError, HeadwaterError, OverloadedError
from headwater.engine.kafka.group_state import Committed
from headwater.engine.kafka.topics import apply_event
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.events import TopicMadeEvent
from headwater.format.kafka.records import BatchProducer
from headwater.server.kafka.refusals import code_of
from headwater.testing import FakeDisk
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import KafkaLife, batch_of
from tests.rig.kafka_restarts import RESTARTS, Restart

BOTH = (Durability.DISK, Durability.FSYNC)


def sent(sequence: int, *, epoch: int = 0, producer_id: int = 7, records: int = 2) -> bytes:
    values = (f"{sequence + at}" for at in range(records))
    return batch_of(*values, producer=BatchProducer(producer_id, epoch, sequence))


def new_life() -> KafkaLife:
    life = KafkaLife()
    life.create("orders")
    return life


def refusal(life: KafkaLife, batch: bytes) -> int:
    before = life.partition("orders").high_watermark
    with pytest.raises(HeadwaterError) as refused:
        life.append("orders", batch)
    assert life.partition("orders").high_watermark == before
    return int(code_of(refused.value))


@RESTARTS
def test_a_batch_that_comes_again_gets_its_offset_again(restart: Restart) -> None:
    life = new_life()
    for sequence in range(0, 14, 2):
        life.append("orders", batch_of("between"))
        life.append("orders", sent(sequence))
    life = restart(life)
    for sequence in range(4, 14, 2):
        assert life.append("orders", sent(sequence)) == Produced(sequence // 2 * 3 + 1, -1, 0)
    assert life.partition("orders").high_watermark == 21
    assert refusal(life, sent(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert life.append("orders", sent(14)).base_offset == 21


@RESTARTS
def test_a_gap_in_the_sequence_is_refused(restart: Restart) -> None:
    life = new_life()
    life.append("orders", sent(0))
    life = restart(life)
    assert refusal(life, sent(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert life.append("orders", sent(2)).base_offset == 2


@RESTARTS
def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(restart: Restart) -> None:
    life = new_life()
    life.append("orders", sent(0, epoch=3))
    life = restart(life)
    assert refusal(life, sent(2, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(life, sent(2, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert life.append("orders", sent(0, epoch=4)).base_offset == 2


def test_sequences_begin_again_after_the_largest_one() -> None:
    life = new_life()
    life.append("orders", sent(2**31 - 1))
    assert life.append("orders", sent(1)).base_offset == 2


def test_the_same_batch_twice_in_one_group_is_stored_once() -> None:
    life = new_life()
    partition = life.partition("orders")
    first, again = life.owner.call(
        lambda: [partition.append(sent(0), durability) for durability in BOTH]
    )
    assert first.answer() == again.answer() == Produced(0, -1, 0)
    assert life.values("orders") == [b"0", b"1"]


def test_a_batch_the_log_refused_is_new_when_it_comes_again() -> None:
    disk = FakeDisk(["/data"])
    life = KafkaLife(disk)
    life.create("orders")
    life.append("orders", sent(0))
    disk.capacity_bytes = 0
    with pytest.raises(Exception, match="no room"):
        life.append("orders", batch_of("x" * 2000, producer=BatchProducer(7, 0, 2)))
    disk.capacity_bytes = None
    life.clock.advance(2_000_000)
    assert life.append("orders", sent(2)).base_offset == 2
    assert life.values("orders") == [b"0", b"1", b"2", b"3"]


def test_nothing_of_a_new_producer_gets_before_a_batch_that_was_refused() -> None:
    """Overload ends between two batches: the second must not be stored without the first."""
    life = KafkaLife(settings=KafkaSettings(wal=WalSettings(queue_submissions_max=1)))
    life.create("orders")
    partition = life.partition("orders")

    def overload() -> Pending[Produced]:
        partition.append(batch_of("all there is room for"), Durability.FSYNC)
        return partition.append(sent(0), Durability.FSYNC)

    assert isinstance(life.owner.call(overload).error, OverloadedError)
    assert refusal(life, sent(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    first = life.append("orders", sent(0)).base_offset
    assert life.append("orders", sent(2)).base_offset == first + 2


def test_a_producer_whose_first_batches_found_no_room_begins_with_the_first() -> None:
    disk = FakeDisk(["/data"])
    life = KafkaLife(disk)
    life.create("orders")
    disk.capacity_bytes = 0
    large = [
        batch_of("x" * 70_000, producer=BatchProducer(7, 0, sequence)) for sequence in range(2)
    ]
    with pytest.raises(DiskFullError):
        life.append("orders", large[0])
    disk.capacity_bytes = None
    life.clock.advance(2_000_000)
    assert refusal(life, large[1]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [life.append("orders", batch).base_offset for batch in large] == [0, 1]


def test_a_producer_nobody_remembers_may_go_on_where_it_is() -> None:
    life = new_life()
    assert life.append("orders", sent(40)).base_offset == 0


@RESTARTS
def test_no_producer_id_is_given_twice(restart: Restart) -> None:
    life = new_life()
    given = [life.do(life.store.new_producer_id) for _ in range(3)]
    life = restart(life)
    given += [life.do(life.store.new_producer_id) for _ in range(1_003)]
    assert len(set(given)) == len(given)


@RESTARTS
def test_offsets_of_groups_are_durable(restart: Restart) -> None:
    life = new_life()
    offsets = {("orders", 0): Committed(5, 0, "here", 17), ("orders", 1): Committed(9)}
    life.do(lambda: life.store.commit_offsets(1, "readers", offsets))
    life.do(lambda: life.store.commit_offsets(1, "readers", {("orders", 0): Committed(6)}))
    life.do(lambda: life.store.commit_offsets(2, "readers", {("orders", 0): Committed(1)}))
    life.do(lambda: life.store.commit_offsets(1, "gone", {("orders", 0): Committed(1)}))
    life.do(lambda: life.store.forget_group(1, "gone"))
    life.do(lambda: life.store.forget_offsets(1, "readers", [("orders", 1)]))
    life = restart(life)
    assert life.store.committed(1, "readers") == {("orders", 0): Committed(6)}
    assert life.store.committed(2, "readers") == {("orders", 0): Committed(1)}
    assert life.store.committed(1, "gone") == {}
    assert life.store.groups_with_offsets(1) == ["readers"]


def test_replaying_what_a_checkpoint_knows_already_changes_nothing() -> None:
    """A weaker ack may take effect before a stronger one that stands in front of it."""
    life = new_life()
    for sequence in range(0, 14, 2):
        life.append("orders", sent(sequence))
    partition = life.partition("orders")
    assert partition.producers is not None
    topic = life.store.topic(1, "orders")
    assert topic is not None
    before = topic.meta()
    for sequence in range(8, 14, 2):
        partition.producers.replay(read_header(sent(sequence)), sequence)
    made = TopicMadeEvent(1, "orders", topic.topic_id, 1, {})
    apply_event(life.store.core, made, 10**6)
    assert life.store.topic(1, "orders") is topic
    life.store.core.changed(topic)
    assert topic.meta() == before
