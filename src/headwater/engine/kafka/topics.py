"""Changes to topics and what else goes through the log as an event; and what each event does to the
state, the same when it happens and when it is replayed. What an event means is the history's
(`recovery.history.kafka`); here is what the owner does then."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Final

from headwater.core.errors import TopicNotFoundError
from headwater.engine.kafka.configs import check_configs
from headwater.engine.kafka.core import EventChange, KafkaCore
from headwater.engine.kafka.errors import (
    OffsetRangeError,
    PartitionCountError,
    TopicExistsError,
    TopicNameError,
    TopicPolicyError,
)
from headwater.engine.kafka.partition import KafkaPartition, KafkaTopic
from headwater.engine.owner import Pending
from headwater.format.kafka import events
from headwater.format.kafka.events import AnyEvent
from headwater.format.kafka.names import partition_name
from headwater.recovery.history.kafka import KafkaFold, KafkaSink

TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
PRODUCER_IDS_AHEAD: Final = 1_000
"""Producer ids that are taken from the log at once."""


def check_topic_name(name: str) -> None:
    if TOPIC_NAME.fullmatch(name) is None or name in (".", ".."):
        raise TopicNameError(
            "a topic name has 1 to 249 of a-z, A-Z, 0-9, dot, dash and underscore",
        )


class KafkaTopics:
    def __init__(self, core: KafkaCore) -> None:
        self._core = core
        self._making: set[tuple[int, str]] = set()
        self._partitions_coming = 0
        """Of topics that are on their way to the log, and those added to others."""

    def create(
        self, org: int, name: str, partitions: int, configs: Mapping[str, str]
    ) -> Pending[KafkaTopic]:
        core = self._core
        self.check_new(org, name, partitions, configs)
        event = events.TopicMadeEvent(org, name, uuid.uuid4().bytes, partitions, dict(configs))

        def finished() -> None:
            self._making.discard((org, name))
            self._partitions_coming -= partitions

        def made(change: EventChange) -> KafkaTopic:
            finished()
            apply_event(core, event, change.event_id)
            topic = core.registry.by_id(event.topic_id)
            assert topic is not None, "it was made just now"
            return topic

        change = core.log_event(event, made, finished)
        self._making.add((org, name))
        self._partitions_coming += partitions
        return change

    def check_new(self, org: int, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Raise what would keep such a topic from being made."""
        settings = self._core.settings
        check_topic_name(name)
        if self.is_taken(org, name):
            raise TopicExistsError(f"topic {name!r} exists")
        self._check_partitions(partitions)
        if len(self._core.registry) + len(self._making) >= settings.topics_max:
            raise TopicPolicyError(f"there are {settings.topics_max} topics already")
        self._check_total(partitions)
        check_configs(configs)

    def is_taken(self, org: int, name: str) -> bool:
        """There is a topic of this name, or it is just being made."""
        return self._core.registry.find(org, name) is not None or (org, name) in self._making

    def drop(self, topic: KafkaTopic) -> Pending[bool]:
        self._check_there(topic)
        core, event = self._core, events.TopicDroppedEvent(topic.topic_id)

        def dropped(change: EventChange) -> bool:
            apply_event(core, event, change.event_id)
            return True

        def not_dropped() -> None:
            topic.dropped = False

        change = core.log_event(event, dropped, not_dropped, essential=True)
        topic.dropped = True  # from here on no batch may be put behind the event
        return change

    def add_partitions(self, topic: KafkaTopic, total: int) -> Pending[bool]:
        self._check_there(topic)
        self._check_partitions(total)
        if total <= len(topic.partitions):
            raise PartitionCountError(
                f"topic {topic.name!r} has {len(topic.partitions)} partitions already",
            )
        core, event = self._core, events.PartitionsAdded(topic.topic_id, total)
        more = total - len(topic.partitions)
        self._check_total(more)

        def finished() -> None:
            self._partitions_coming -= more

        def added(change: EventChange) -> bool:
            finished()
            apply_event(core, event, change.event_id)
            return True

        change = core.log_event(event, added, finished)
        self._partitions_coming += more
        return change

    def alter_configs(self, topic: KafkaTopic, configs: Mapping[str, str]) -> Pending[bool]:
        self._check_there(topic)
        core, checked = self._core, check_configs(configs)
        event = events.ConfigsSet(topic.topic_id, checked)

        def finished() -> None:
            if topic.altered is checked:
                topic.altered = None

        def altered(change: EventChange) -> bool:
            apply_event(core, event, change.event_id)
            finished()
            return True

        change = core.log_event(event, altered, finished, essential=True)
        topic.altered = checked
        return change

    def delete_records(self, partition: KafkaPartition, before_offset: int) -> Pending[int]:
        core, topic = self._core, partition.topic
        self._check_there(topic)
        if before_offset == -1:
            before_offset = partition.high_watermark
        if not 0 <= before_offset <= partition.high_watermark:
            raise OffsetRangeError(
                f"offset {before_offset}; the newest is {partition.high_watermark}",
            )
        if before_offset <= partition.log_start_offset:
            done: Pending[int] = Pending()
            done.result = partition.log_start_offset
            return done
        event = events.LogStartMoved(topic.topic_id, partition.index, before_offset)

        def moved(change: EventChange) -> int:
            apply_event(core, event, change.event_id)
            is_there = core.registry.by_id(topic.topic_id) is not None
            return partition.log_start_offset if is_there else before_offset

        return core.log_event(event, moved, essential=True)

    def new_producer_id(self) -> Pending[int]:
        core = self._core
        if core.next_producer_id < core.producer_ids_end:
            there: Pending[int] = Pending()
            there.result = core.next_producer_id
            core.next_producer_id += 1
            return there
        first = max(core.next_producer_id, core.producer_ids_end)
        event = events.ProducerIdsTaken(first + PRODUCER_IDS_AHEAD)

        def taken(change: EventChange) -> int:
            apply_event(core, event, change.event_id)
            producer_id = core.next_producer_id
            core.next_producer_id += 1
            return producer_id

        return core.log_event(event, taken, essential=True)

    def log_event(self, event: events.AnyEvent, *, essential: bool = False) -> EventChange:
        """Log an event whose effect is its whole answer."""
        core = self._core

        def take_effect(change: EventChange) -> bool:
            apply_event(core, event, change.event_id)
            return True

        return core.log_event(event, take_effect, essential=essential)

    def _check_there(self, topic: KafkaTopic) -> None:
        if topic.dropped:
            raise TopicNotFoundError(f"{topic.name!r} is gone")

    def _check_total(self, more: int) -> None:
        most = self._core.settings.partitions_total_max
        there = self._core.registry.partitions + self._partitions_coming
        if there + more > most:
            raise TopicPolicyError(
                f"{more} partitions more than the {there} there are; all topics together may "
                f"have {most} (limit_kafka_partitions)",
            )

    def _check_partitions(self, partitions: int) -> None:
        most = self._core.settings.partitions_max
        if not 1 <= partitions <= most:
            raise PartitionCountError(f"a topic has 1 to {most} partitions")


def apply_event(core: KafkaCore, event: AnyEvent, event_id: int) -> None:
    """`event_id` is its global id: where a topic begins."""
    KafkaFold(core.registry, _StateChanges(core)).take(event, event_id)


class _StateChanges(KafkaSink[KafkaTopic]):
    __slots__ = ("_core",)

    def __init__(self, core: KafkaCore) -> None:
        self._core = core

    def make(self, event: events.TopicMadeEvent, event_id: int) -> KafkaTopic:
        configs = dict(event.configs)
        return KafkaTopic(
            self._core.calls,
            event.org,
            event.name,
            event.topic_id,
            event_id,
            event.partitions,
            configs,
        )

    def made(self, topic: KafkaTopic) -> None:
        self._core.note_limits(topic)

    def dropped(self, topic: KafkaTopic) -> None:
        core = self._core
        core.limited.pop(topic.topic_id, None)
        core.offsets.forget_topic(topic.org, topic.name)
        core.removed_records = True
        if core.damage.count:
            names = (partition_name(topic.name, each.index) for each in topic.partitions)
            core.damage.forget(*names, organisation=topic.org)
        for partition in topic.partitions:
            core.idempotent.pop(partition, None)
            core.drop_tail(partition)
            partition.wake()

    def add_partitions(self, topic: KafkaTopic, total: int) -> None:
        self._core.registry.add_partitions(topic.add_partitions(total))
        self._core.changed(topic)

    def set_configs(self, topic: KafkaTopic, configs: dict[str, str]) -> None:
        topic.configs = configs
        self._core.note_limits(topic)
        self._core.changed(topic)

    def move_log_start(self, topic: KafkaTopic, partition: int, offset: int) -> None:
        moved = topic.partitions[partition]
        if offset > moved.log_start_offset:
            moved.log_start_offset = offset
            self._core.moved[moved] = None
            self._core.changed(topic)
            self._core.removed_records = True

    def commit_offsets(self, event: events.OffsetsCommitted) -> None:
        self._core.offsets.commit(event.org, event.group, event.rows)

    def forget_offsets(self, event: events.OffsetsForgotten) -> None:
        self._core.offsets.forget(event.org, event.group, event.keys)

    def forget_group(self, event: events.GroupForgotten) -> None:
        self._core.offsets.forget(event.org, event.group)
        self._core.memberships.forget(event.org, event.group)

    def keep_members(self, event: events.GroupMembership) -> None:
        self._core.memberships.put(event)

    def take_producer_ids(self, next_id: int) -> None:
        self._core.producer_ids_end = max(self._core.producer_ids_end, next_id)
