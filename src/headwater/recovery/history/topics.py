"""Which topics there are: names, ids and epochs, and how far the files of each are good.

TOPIC_CREATE     makes a topic, and forgets an older one of its name. Not if the topic is known, and
                 not if its id was given out before and its name had this epoch: then it was
                 dropped, and the snapshot knows that.
TOPIC_DELETE     forgets the topic. Files of a topic that is not known may be there all the same.
CHECKPOINT_MARK  moves how far files reach, never back.
EVICT_WATERMARK, DELETE
                 raise floors, never lower them: segments below a floor may go before a reader
                 replays the log.
ROUTER_CREATE    takes an id: routers and topics share them.

A topic lives in one shard in each run, and the shards of a run are read one behind the other: so
the frames of one topic come in their order, and those of two topics may not. The rule for
`TOPIC_CREATE` holds in any order, because ids and epochs ascend with time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from headwater.format.control_frames import (
    CheckpointEntry,
    RouterCreated,
    TopicCreated,
    decode_body,
    decode_checkpoint_mark,
)
from headwater.format.frame import Frame, FrameType
from headwater.format.snapshot import Snapshot, TopicMeta
from headwater.recovery.topics.stored_topic import StoredTopic


class TableTopic(Protocol):
    """What the table has to know of a topic, whoever holds it."""

    @property
    def topic_id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def stored(self) -> StoredTopic: ...

    checkpointed_seq: int


T = TypeVar("T", bound=TableTopic)


class TopicTable(Generic[T]):
    """Topics by id and by name. A name has at most one topic, an id is never given out again."""

    def __init__(self) -> None:
        self._by_name: dict[str, T] = {}
        self._by_id: dict[int, T] = {}
        self.epochs: dict[str, int] = {}
        """The last epoch of names that are gone."""
        self.next_topic_id = 1

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[T]:
        return iter(self._by_id.values())

    def __contains__(self, topic_id: int) -> bool:
        return topic_id in self._by_id

    def find(self, name: str) -> T | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: int) -> T | None:
        return self._by_id.get(topic_id)

    def epoch_of(self, name: str) -> int:
        """The newest epoch this name ever had; 0 when it never was a topic."""
        topic = self._by_name.get(name)
        return self.epochs.get(name, 0) if topic is None else topic.epoch

    def take_ids_below(self, topic_id: int) -> None:
        self.next_topic_id = max(self.next_topic_id, topic_id)

    def begin(self, snapshot: Snapshot, make: Callable[[TopicMeta], T]) -> None:
        """What a snapshot knows. The log goes on from there."""
        self.next_topic_id = snapshot.next_topic_id
        self.epochs.update(snapshot.epochs)
        for meta in snapshot.topics:
            self.add(make(meta))

    def add(self, topic: T) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.take_ids_below(topic.topic_id + 1)
        self.epochs.pop(topic.name, None)

    def remove(self, topic: T) -> None:
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        self._by_id.pop(topic.topic_id, None)
        self.epochs[topic.name] = topic.epoch


class TopicSink(Protocol[T]):
    """What a reader does about it. The fold keeps the table; the sink makes what stands in it. A
    reader that derives from this class need do no more."""

    def make(self, topic_id: int, body: TopicCreated) -> T:
        """A new topic, which has nothing yet."""

    def forgotten(self, topic: T) -> None:
        """It was dropped, or its name has a newer topic; it is out of the table."""
        return

    def forgotten_before(self, topic_id: int) -> None:
        """The log drops a topic that is not known: its files may still be there."""
        return

    def moved(self, topic: T) -> None:
        """A checkpoint says something new of it."""
        return


class TopicFold(Generic[T]):
    def __init__(self, table: TopicTable[T], sink: TopicSink[T]) -> None:
        self._table = table
        self._sink = sink

    def take(self, frame: Frame) -> None:
        """The next control frame of the log."""
        rule = _RULES.get(frame.type)
        if rule is not None:
            rule(self, frame)

    def created(self, topic_id: int, body: TopicCreated) -> None:
        table = self._table
        if topic_id in table:
            return
        if topic_id < table.next_topic_id and table.epoch_of(body.name) >= body.epoch:
            return  # dropped since, and the snapshot knows it
        older = table.find(body.name)
        if older is not None:
            self._forget(older)
        table.add(self._sink.make(topic_id, body))

    def dropped(self, topic_id: int) -> None:
        topic = self._table.by_id(topic_id)
        if topic is None:
            self._sink.forgotten_before(topic_id)
        else:
            self._forget(topic)

    def checkpointed(self, entry: CheckpointEntry) -> None:
        topic = self._table.by_id(entry.topic_id)
        if topic is None or entry.checkpointed_seq < topic.checkpointed_seq:
            return
        further = entry.checkpointed_seq > topic.checkpointed_seq
        topic.checkpointed_seq = entry.checkpointed_seq
        # The mark of the checkpoint that the snapshot was made of says what the snapshot says: of
        # a topic that was idle since, nothing has to be read.
        if topic.stored.move_to(entry) or further:
            self._sink.moved(topic)

    def _forget(self, topic: T) -> None:
        self._table.remove(topic)
        self._sink.forgotten(topic)

    # -- one for each kind of frame

    def _create(self, frame: Frame) -> None:
        if frame.topic_id not in self._table:
            self.created(frame.topic_id, decode_body(frame, TopicCreated))

    def _drop(self, frame: Frame) -> None:
        self.dropped(frame.topic_id)

    def _mark(self, frame: Frame) -> None:
        for entry in decode_checkpoint_mark(frame):
            self.checkpointed(entry)

    def _floors(self, frame: Frame) -> None:
        topic = self._table.by_id(frame.topic_id)
        if topic is not None:
            topic.stored.take(frame)

    def _router(self, frame: Frame) -> None:
        self._table.take_ids_below(decode_body(frame, RouterCreated).router_id + 1)


_RULES: Final[dict[FrameType, Callable[[TopicFold[Any], Frame], None]]] = {
    FrameType.TOPIC_CREATE: TopicFold._create,
    FrameType.TOPIC_DELETE: TopicFold._drop,
    FrameType.CHECKPOINT_MARK: TopicFold._mark,
    FrameType.EVICT_WATERMARK: TopicFold._floors,
    FrameType.DELETE: TopicFold._floors,
    FrameType.ROUTER_CREATE: TopicFold._router,
}

TABLE_FRAMES: Final = frozenset(_RULES)
"""Frames that say something about which topics there are: the others need not be decoded."""
