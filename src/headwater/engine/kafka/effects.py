"""What each event of the log does to the state: the same when it happens and when it is replayed.

What an event means is the history's (`recovery.history.kafka`); here is what the owner does then.
"""

from __future__ import annotations

from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.partition import KafkaTopic
from headwater.format.kafka import events
from headwater.format.kafka.events import AnyEvent
from headwater.format.kafka.names import partition_name
from headwater.recovery.history.kafka import KafkaFold, KafkaSink


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
