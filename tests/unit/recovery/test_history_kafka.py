"""What the events of Kafka's log mean, and that everyone who reads the log agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec
import numpy
import pytest

from headwater.core.durability import Durability
from headwater.core.errors import DamageError
from headwater.disk import replace_file
from headwater.engine.kafka.partition import KafkaTopic
from headwater.format.kafka import events
from headwater.format.kafka.checkpoint import KafkaCheckpoint, encode_checkpoint
from headwater.format.kafka.entry import Runs, entry_key, read_entries, topic_hash
from headwater.format.kafka.events import AnyEvent, encode_event
from headwater.format.kafka.names import CHECKPOINT_NAME, COPY_NAME
from headwater.recovery.history.kafka import (
    KafkaFold,
    KafkaSink,
    KafkaTable,
    first_offset,
    is_own,
    own_runs,
)
from headwater.recovery.kafka.repair import recover_kafka
from headwater.recovery.kafka.verify import check_kafka_segment, join_kafka, plan_kafka
from headwater.recovery.kafka.view import KafkaView, scan_topics
from headwater.recovery.kafka.walk import STRANGER, BatchVerdict, SeenTopics
from headwater.store.verify import VerifyFault
from headwater.testing import FakeDisk
from tests.rig.kafka import KAFKA, LARGE_KAFKA, KafkaLife, batch_of

FIRST, SECOND = b"a" * 16, b"b" * 16


@dataclass(slots=True, eq=False)
class Held:
    org: int
    name: str
    topic_id: bytes
    made_id: int
    partitions: list[int] = field(default_factory=list)


class Said(KafkaSink[Held]):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def make(self, event: events.TopicMadeEvent, event_id: int) -> Held:
        self.calls.append(("make", event.topic_id, event_id))
        return Held(event.org, event.name, event.topic_id, event_id, [0] * event.partitions)

    def made(self, topic: Held) -> None:
        self.calls.append(("made", topic.topic_id))

    def dropped(self, topic: Held) -> None:
        self.calls.append(("dropped", topic.topic_id))

    def add_partitions(self, topic: Held, total: int) -> None:
        self.calls.append(("partitions", topic.topic_id, total))
        topic.partitions += [0] * (total - len(topic.partitions))

    def move_log_start(self, topic: Held, partition: int, offset: int) -> None:
        self.calls.append(("start", topic.topic_id, partition, offset))

    def set_configs(self, topic: Held, configs: dict[str, str]) -> None:
        self.calls.append(("configs", topic.topic_id, configs))

    def commit_offsets(self, event: events.OffsetsCommitted) -> None:
        self.calls.append(("commit", event))

    def forget_offsets(self, event: events.OffsetsForgotten) -> None:
        self.calls.append(("forget offsets", event))

    def forget_group(self, event: events.GroupForgotten) -> None:
        self.calls.append(("forget group", event))

    def keep_members(self, event: events.GroupMembership) -> None:
        self.calls.append(("members", event))

    def take_producer_ids(self, next_id: int) -> None:
        self.calls.append(("producers", next_id))


def folded(*taken: AnyEvent) -> tuple[KafkaTable[Held], Said]:
    table, said = KafkaTable[Held](), Said()
    fold = KafkaFold(table, said)
    for event_id, event in enumerate(taken):
        fold.take(event, event_id)
    return table, said


def made(topic_id: bytes, name: str = "orders", partitions: int = 1) -> events.TopicMadeEvent:
    return events.TopicMadeEvent(1, name, topic_id, partitions, {})


def test_every_event_there_is_has_a_rule() -> None:
    offsets = events.OffsetRow("orders", 0, 4, -1, "", -1)
    taken: list[AnyEvent] = [
        made(FIRST),
        events.PartitionsAdded(FIRST, 3),
        events.ConfigsSet(FIRST, {"retention.ms": "5"}),
        events.LogStartMoved(FIRST, 2, 7),
        events.OffsetsCommitted(1, "readers", (offsets,)),
        events.OffsetsForgotten(1, "readers", (("orders", 0),)),
        events.GroupForgotten(1, "readers"),
        events.GroupMembership(1, "readers", 4),
        events.ProducerIdsTaken(1000),
        events.Synced(4),
        events.SegmentBegun(0),
        events.TopicDroppedEvent(FIRST),
    ]
    assert {type(event) for event in taken} == set(get_args(AnyEvent))
    table, said = folded(*taken)
    assert said.calls == [
        ("make", FIRST, 0),
        ("made", FIRST),
        ("partitions", FIRST, 3),
        ("configs", FIRST, {"retention.ms": "5"}),
        ("start", FIRST, 2, 7),
        ("commit", taken[4]),
        ("forget offsets", taken[5]),
        ("forget group", taken[6]),
        ("members", taken[7]),
        ("producers", 1000),
        ("dropped", FIRST),
    ]
    assert len(table) == 0
    assert table.find(1, "orders") is None


def test_events_whose_effect_is_known_change_nothing() -> None:
    """A log may be read again from before a checkpoint."""
    once: list[AnyEvent] = [made(FIRST, partitions=3), events.PartitionsAdded(FIRST, 4)]
    table, said = folded(*once, *once, events.PartitionsAdded(FIRST, 2))
    assert [call[0] for call in said.calls] == ["make", "made", "partitions"]
    topic = table.by_id(FIRST)
    assert topic is not None
    assert (topic.made_id, len(topic.partitions)) == (0, 4)


@pytest.mark.parametrize(
    "event",
    [
        events.TopicDroppedEvent(SECOND),
        events.PartitionsAdded(SECOND, 5),
        events.ConfigsSet(SECOND, {"a": "b"}),
        events.LogStartMoved(SECOND, 0, 5),
        events.LogStartMoved(FIRST, 1, 5),
    ],
)
def test_events_of_what_is_not_there_change_nothing(event: AnyEvent) -> None:
    table, said = folded(made(FIRST), event)
    assert len(said.calls) == 2
    assert [topic.topic_id for topic in table] == [FIRST]


def test_a_dropped_topic_leaves_a_newer_one_of_its_name_alone() -> None:
    table, _ = folded(made(FIRST), made(SECOND), events.TopicDroppedEvent(FIRST))
    newer = table.find(1, "orders")
    assert newer is not None
    assert newer.topic_id == SECOND
    assert [topic.topic_id for topic in table.of(1)] == [SECOND]


def test_organisations_have_topics_of_the_same_name() -> None:
    other = events.TopicMadeEvent(2, "orders", SECOND, 1, {})
    table, _ = folded(made(FIRST), other, events.TopicDroppedEvent(FIRST))
    assert table.find(1, "orders") is None
    assert [topic.topic_id for topic in table.of(2)] == [SECOND]
    assert list(table.of(3)) == []


@pytest.mark.parametrize(("made_id", "own"), [(9, [0, 2, 3]), (10, [2, 3]), (14, [3]), (99, [])])
def test_entries_are_of_the_topic_that_was_made_before_them(made_id: int, own: list[int]) -> None:
    starts = numpy.array([0, 2, 4, 6], numpy.int64)
    runs = Runs(starts, numpy.full(4, 2, numpy.int64), read_entries(b"", 0))
    members = numpy.array([0, 2, 3], numpy.int64)
    assert own_runs(runs, members, 10, made_id).tolist() == own
    assert [at for at in members.tolist() if is_own(10 + int(starts[at]), made_id)] == own


@pytest.mark.parametrize(
    ("log_start", "dropped", "end", "first"),
    [(0, 0, 5, 0), (3, 0, 5, 3), (9, 0, 5, 5), (1, 4, 5, 4), (9, 4, 4, 4), (0, 4, 4, 4)],
)
def test_the_first_offset_is_never_behind_the_end_nor_before_what_was_dropped(
    log_start: int, dropped: int, end: int, first: int
) -> None:
    assert first_offset(log_start, dropped, end) == first


# -- batch by batch


def test_a_batch_is_of_a_topic_that_exists_by_then_or_did_until_now() -> None:
    seen = SeenTopics(KafkaCheckpoint())
    key, none = entry_key(1, topic_hash(1, "orders"), 0), memoryview(b"")
    assert seen.take_batch(0, key, none).verdict is BatchVerdict.STRANGER
    event = memoryview(encode_event(made(FIRST), 0))
    assert seen.take_event(1, event).verdict is BatchVerdict.OURS
    assert seen.take_batch(2, key, none).verdict is BatchVerdict.OURS
    beside = entry_key(1, topic_hash(1, "orders"), 1)
    assert seen.take_batch(3, beside, none).problem == BatchVerdict.STRANGER.value
    seen.take_event(4, memoryview(encode_event(events.TopicDroppedEvent(FIRST), 0)))
    assert seen.take_batch(5, key, none).verdict is BatchVerdict.OURS


def test_a_segment_that_begins_elsewhere_is_not_followed() -> None:
    seen = SeenTopics(KafkaCheckpoint())
    begun = memoryview(encode_event(events.SegmentBegun(7), 0))
    assert seen.take_batch(7, events.INTERNAL_KEY, begun).verdict is BatchVerdict.OURS
    taken = seen.take_batch(8, events.INTERNAL_KEY, begun)
    assert (taken.verdict, taken.problem) == (
        BatchVerdict.UNFOLLOWED,
        events.PREDECESSOR_MISSING,
    )


# -- the owner's start, a reader beside it and verify


def log(life: KafkaLife, event: AnyEvent) -> None:
    life.do(lambda: life.store._log_event(event))


def orders(life: KafkaLife) -> KafkaTopic:
    topic = life.store.topic(1, "orders")
    assert topic is not None
    return topic


def older_dropped_later(life: KafkaLife) -> None:
    older = orders(life)
    log(life, made(SECOND))
    log(life, events.TopicDroppedEvent(older.topic_id))
    life.append("orders", batch_of("newer"))


def start_behind_the_end(life: KafkaLife) -> None:
    log(life, events.LogStartMoved(orders(life).topic_id, 0, 50))
    log(life, events.LogStartMoved(orders(life).topic_id, 9, 50))


def start_goes_back(life: KafkaLife) -> None:
    log(life, events.LogStartMoved(orders(life).topic_id, 0, 2))
    log(life, events.LogStartMoved(orders(life).topic_id, 0, 1))


def fewer_partitions(life: KafkaLife) -> None:
    log(life, events.PartitionsAdded(orders(life).topic_id, 3))
    log(life, events.PartitionsAdded(orders(life).topic_id, 2))
    life.append("orders", batch_of("third"), 2)


def made_again(life: KafkaLife) -> None:
    log(life, events.TopicDroppedEvent(orders(life).topic_id))
    log(life, made(SECOND, partitions=2))
    log(life, made(SECOND, partitions=5))
    life.append("orders", batch_of("again"), 1)


def known_topic_made_again(life: KafkaLife) -> None:
    log(life, made(orders(life).topic_id, partitions=4))


STORIES = [
    older_dropped_later,
    start_behind_the_end,
    start_goes_back,
    fewer_partitions,
    made_again,
    known_topic_made_again,
]
Told = dict[str, tuple[bytes, int, list[tuple[int, int]]]]


def by_owner(disk: FakeDisk) -> Told:
    life = KafkaLife(FakeDisk(image=disk.snapshot()), LARGE_KAFKA)
    return {
        topic.name: (
            topic.topic_id,
            topic.made_id,
            [(each.log_start_offset, each.high_watermark) for each in topic.partitions],
        )
        for topic in life.store.topics(1)
    }


def by_reader(disk: FakeDisk) -> Told:
    view, told = KafkaView(disk, KAFKA), {}
    for topic in view.topics.of(1):
        spans = []
        for index, partition in enumerate(topic.partitions):
            batches = view.batches(topic, index)
            end = batches.end_offset if len(batches.counts) else partition.dropped
            spans.append((first_offset(partition.log_start, partition.dropped, end), end))
        told[topic.name] = topic.topic_id, topic.made_id, spans
    return told


@pytest.mark.parametrize("saved", [True, False], ids=["checkpoint", "log"])
@pytest.mark.parametrize("story", STORIES)
def test_an_owner_and_a_reader_beside_it_make_the_same_of_a_log(
    story: Callable[[KafkaLife], None], saved: bool
) -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("orders", 2)
    life.create("beside")
    for number in range(3):
        life.append("orders", batch_of(f"o{number}"))
        life.append("beside", batch_of(f"b{number}"))
    if saved:
        life.store.checkpoint()
    story(life)
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    told = by_owner(disk)
    assert told["beside"][2] == [(0, 3)]
    assert by_reader(disk) == told
    short = scan_topics(disk, KAFKA)
    assert {topic.name: (topic.topic_id, topic.made_id) for topic in short.of(1)} == {
        name: (topic_id, made_id) for name, (topic_id, made_id, _) in told.items()
    }
    assert faults_of(disk) == []


def stranger(life: KafkaLife) -> None:
    ghost = KafkaTopic(life.store.core.calls, 1, "orders", FIRST, 0, 1, {})
    life.do(lambda: ghost.partitions[0].append(batch_of("before"), Durability.FSYNC))


def faults_of(disk: FakeDisk) -> list[VerifyFault]:
    plan = plan_kafka(disk, KAFKA)
    return join_kafka(plan, [check_kafka_segment(disk, each) for each in plan.segments])


def with_a_stranger(covered: bool) -> FakeDisk:
    """A batch that is older than its topic; the checkpoint says it was synced, or does not."""
    life = KafkaLife(settings=LARGE_KAFKA)
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    life.create("beside")
    before = life.store.checkpoint()
    stranger(life)
    log(life, made(FIRST))
    life.append("orders", batch_of("own"))
    if covered:  # by a state that has nothing of it, as when a checkpoint is made meanwhile
        after = life.store.checkpoint()
        state = msgspec.structs.replace(after, as_of=before.as_of, topics=before.topics)
        for name in (CHECKPOINT_NAME, COPY_NAME):
            replace_file(disk, KAFKA / name, encode_checkpoint(state))
    life.append("beside", batch_of("last"))
    return disk


def test_synced_records_before_their_topic_are_refused_by_owner_reader_and_verify() -> None:
    """Else they would be counted to the topic that was made behind them."""
    disk = with_a_stranger(covered=True)
    with pytest.raises(DamageError, match=STRANGER):
        recover_kafka(disk, KAFKA)
    with pytest.raises(DamageError, match=STRANGER):
        KafkaView(disk, KAFKA)
    assert any("does not exist" in fault.what for fault in faults_of(disk))


def test_the_log_ends_for_owner_and_reader_before_records_whose_topic_comes_later() -> None:
    disk = with_a_stranger(covered=False)
    assert any("does not exist" in fault.what for fault in faults_of(disk))
    told = by_reader(disk)
    assert list(told) == ["beside"]
    assert by_owner(disk) == told
