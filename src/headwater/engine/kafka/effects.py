"""What each event of the log does to the state: the same when it happens and when it is replayed.

Replaying an event whose effect is in the state already changes nothing: a checkpoint may know more
than the position from which the log is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.partition import KafkaTopic
from headwater.format.kafka import events
from headwater.format.kafka.events import AnyEvent
from headwater.format.kafka.partition_names import partition_name


def apply_event(core: KafkaCore, event: AnyEvent, event_id: int) -> Any:
    """`event_id` is its global id: where a topic begins."""
    if isinstance(event, events.TopicMade):
        return _topic_made(core, event, event_id)
    return _EFFECTS[type(event)](core, event)


def _topic_made(core: KafkaCore, event: events.TopicMade, event_id: int) -> KafkaTopic:
    known = core.registry.by_id(event.topic_id)
    if known is not None:
        return known
    topic = KafkaTopic(
        event.org, event.name, event.topic_id, event_id, event.partitions, dict(event.configs)
    )
    core.registry.add(topic)
    core.note_limits(topic)
    return topic


def _topic_dropped(core: KafkaCore, event: events.TopicDropped) -> None:
    topic = core.registry.by_id(event.topic_id)
    if topic is None:
        return
    core.registry.remove(topic)
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


def _partitions_added(core: KafkaCore, event: events.PartitionsAdded) -> None:
    topic = core.registry.by_id(event.topic_id)
    if topic is not None and event.total > len(topic.partitions):
        core.registry.add_partitions(topic.add_partitions(event.total))
        core.changed(topic)


def _configs_set(core: KafkaCore, event: events.ConfigsSet) -> None:
    topic = core.registry.by_id(event.topic_id)
    if topic is not None:
        topic.configs = dict(event.configs)
        core.note_limits(topic)
        core.changed(topic)


def _log_start_moved(core: KafkaCore, event: events.LogStartMoved) -> int:
    topic = core.registry.by_id(event.topic_id)
    if topic is None or event.partition >= len(topic.partitions):
        return event.offset
    partition = topic.partitions[event.partition]
    if event.offset > partition.log_start_offset:
        partition.log_start_offset = event.offset
        core.moved[partition] = None
        core.changed(topic)
        core.removed_records = True
    return partition.log_start_offset


def _offsets_committed(core: KafkaCore, event: events.OffsetsCommitted) -> None:
    core.offsets.commit(event.org, event.group, event.rows)


def _offsets_forgotten(core: KafkaCore, event: events.OffsetsForgotten) -> None:
    core.offsets.forget(event.org, event.group, event.keys)


def _group_forgotten(core: KafkaCore, event: events.GroupForgotten) -> None:
    core.offsets.forget(event.org, event.group)
    core.memberships.forget(event.org, event.group)


def _group_settled(core: KafkaCore, event: events.GroupMembership) -> None:
    core.memberships.put(event)


def _producer_ids_taken(core: KafkaCore, event: events.ProducerIdsTaken) -> None:
    core.producer_ids_end = max(core.producer_ids_end, event.next_id)


def _about_files(core: KafkaCore, event: events.Synced | events.SegmentBegun) -> None:
    """It is about the files: recovery has drawn its conclusions."""


_EFFECTS: Final[dict[type, Callable[[KafkaCore, Any], Any]]] = {
    events.TopicDropped: _topic_dropped,
    events.PartitionsAdded: _partitions_added,
    events.ConfigsSet: _configs_set,
    events.LogStartMoved: _log_start_moved,
    events.OffsetsCommitted: _offsets_committed,
    events.OffsetsForgotten: _offsets_forgotten,
    events.GroupForgotten: _group_forgotten,
    events.GroupMembership: _group_settled,
    events.ProducerIdsTaken: _producer_ids_taken,
    events.Synced: _about_files,
    events.SegmentBegun: _about_files,
}
