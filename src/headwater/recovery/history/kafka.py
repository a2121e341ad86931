"""Kafka's shared log: which topics there are, and whose each of its batches is.

The log speaks of itself in events, which are batches of a key of their own among the data:

TopicMadeEvent     makes a topic. Not if its id is known: then a checkpoint had it.
TopicDroppedEvent  forgets the topic, and what groups have read of it. Its name may have a newer
                   topic, which stays.
PartitionsAdded    gives it more partitions, never fewer.
ConfigsSet         these are all its configs from here on.
LogStartMoved      everything before an offset of a partition is gone. It only rises (I10).
OffsetsCommitted, OffsetsForgotten, GroupForgotten, GroupMembership
                   how far a group is, and who is in it.
ProducerIdsTaken   no id below is given out again.
Synced, SegmentBegun
                   are about the files: `recovery.kafka.walk`, and `check_begun` here.

An event whose effect is known changes nothing, so that a log may be read again from before a
checkpoint. What a topic holds is not in the events: an entry is of the topic that has its key, if
it is younger than the event that made that topic, and its offset is counted (`own_runs`,
`first_offset`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Final, Generic, Protocol, TypeVar

from headwater.core.arrays import NDArray, numpy
from headwater.format.kafka import events
from headwater.format.kafka.entry import Runs
from headwater.format.kafka.events import AnyEvent


class LoggedTopic(Protocol):
    """What the fold has to know of a topic, whoever holds it."""

    @property
    def org(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sized: ...


T = TypeVar("T", bound=LoggedTopic)


class KafkaTable(Generic[T]):
    """Topics by id and by name. Organisations never see each other's: a name has the org."""

    def __init__(self) -> None:
        self._by_name: dict[int, dict[str, T]] = {}
        self._by_id: dict[bytes, T] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[T]:
        return iter(self._by_id.values())

    def of(self, org: int) -> Iterable[T]:
        return self._by_name.get(org, {}).values()

    def find(self, org: int, name: str) -> T | None:
        names = self._by_name.get(org)
        return None if names is None else names.get(name)

    def by_id(self, topic_id: bytes) -> T | None:
        return self._by_id.get(topic_id)

    def add(self, topic: T) -> None:
        self._by_name.setdefault(topic.org, {})[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def remove(self, topic: T) -> None:
        del self._by_id[topic.topic_id]
        names = self._by_name[topic.org]
        if names.get(topic.name) is topic:
            del names[topic.name]


class KafkaSink(Protocol[T]):
    """What a reader does about it. The fold keeps the table; the sink makes what stands in it. The
    last ones are for those who keep groups and producers; a reader that derives from this class
    may leave them out."""

    __slots__ = ()

    def make(self, event: events.TopicMadeEvent, event_id: int) -> T:
        """A new topic, which has nothing yet."""
        raise NotImplementedError

    def made(self, topic: T) -> None:
        """It is in the table."""
        return

    def dropped(self, topic: T) -> None:
        """It is out of the table."""
        return

    def add_partitions(self, topic: T, total: int) -> None:
        """It has so many from here on, which are more than before."""
        raise NotImplementedError

    def move_log_start(self, topic: T, partition: int, offset: int) -> None:
        """There is such a partition; it may have a later start already."""
        raise NotImplementedError

    def set_configs(self, topic: T, configs: dict[str, str]) -> None:
        return

    def commit_offsets(self, event: events.OffsetsCommitted) -> None:
        return

    def forget_offsets(self, event: events.OffsetsForgotten) -> None:
        return

    def forget_group(self, event: events.GroupForgotten) -> None:
        return

    def keep_members(self, event: events.GroupMembership) -> None:
        return

    def take_producer_ids(self, next_id: int) -> None:
        return


class KafkaFold(Generic[T]):
    __slots__ = ("_table", "sink")

    def __init__(self, table: KafkaTable[T], sink: KafkaSink[T]) -> None:
        self._table = table
        self.sink = sink

    def take(self, event: AnyEvent, event_id: int) -> None:
        """The next event of the log. `event_id` is its global id: where a topic begins."""
        _RULES[type(event)](self, event, event_id)

    # -- one for each kind of event

    def _made(self, event: events.TopicMadeEvent, event_id: int) -> None:
        if self._table.by_id(event.topic_id) is None:
            topic = self.sink.make(event, event_id)
            self._table.add(topic)
            self.sink.made(topic)

    def _dropped(self, event: events.TopicDroppedEvent, _event_id: int) -> None:
        topic = self._table.by_id(event.topic_id)
        if topic is not None:
            self._table.remove(topic)
            self.sink.dropped(topic)

    def _partitions(self, event: events.PartitionsAdded, _event_id: int) -> None:
        topic = self._table.by_id(event.topic_id)
        if topic is not None and event.total > len(topic.partitions):
            self.sink.add_partitions(topic, event.total)

    def _configs(self, event: events.ConfigsSet, _event_id: int) -> None:
        topic = self._table.by_id(event.topic_id)
        if topic is not None:
            self.sink.set_configs(topic, dict(event.configs))

    def _log_start(self, event: events.LogStartMoved, _event_id: int) -> None:
        topic = self._table.by_id(event.topic_id)
        if topic is not None and event.partition < len(topic.partitions):
            self.sink.move_log_start(topic, event.partition, event.offset)

    def _about_files(self, event: events.Synced | events.SegmentBegun, _event_id: int) -> None:
        """Those who read the files have drawn their conclusions."""


_RULES: Final[dict[type, Callable[[KafkaFold[Any], Any, int], None]]] = {
    events.TopicMadeEvent: KafkaFold._made,
    events.TopicDroppedEvent: KafkaFold._dropped,
    events.PartitionsAdded: KafkaFold._partitions,
    events.ConfigsSet: KafkaFold._configs,
    events.LogStartMoved: KafkaFold._log_start,
    events.OffsetsCommitted: lambda fold, event, _: fold.sink.commit_offsets(event),
    events.OffsetsForgotten: lambda fold, event, _: fold.sink.forget_offsets(event),
    events.GroupForgotten: lambda fold, event, _: fold.sink.forget_group(event),
    events.GroupMembership: lambda fold, event, _: fold.sink.keep_members(event),
    events.ProducerIdsTaken: lambda fold, event, _: fold.sink.take_producer_ids(event.next_id),
    events.Synced: KafkaFold._about_files,
    events.SegmentBegun: KafkaFold._about_files,
}


# -- what a topic holds


def own_runs(
    runs: Runs, members: NDArray[numpy.int64], base_id: int, made_id: int
) -> NDArray[numpy.int64]:
    """Of the runs that have a topic's key, those that are its own: the others are of a topic that
    had its name before, and are older than the event that made it."""
    if len(members) and int(runs.starts[members[0]]) + base_id > made_id:
        return members  # they are in order
    return members[runs.starts[members] + base_id > made_id]


def is_own(first_id: int, made_id: int) -> bool:
    """Whether a batch with a topic's key is its own."""
    return first_id > made_id


def first_offset(log_start: int, dropped: int, end_offset: int) -> int:
    """The first offset a partition has. Of a crash between the two, the log start survives and the
    records before it may not; and what went with deleted segments is gone in any case."""
    return max(min(log_start, end_offset), dropped)
