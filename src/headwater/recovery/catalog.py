"""Which topics there are and how far their segments reach: a snapshot, and notes taken of the log.

The log is noted stretch by stretch, anywhere and in any order: a stretch is what one run wrote
into one file. The notes are then taken in, in the order in which the stretches were written.
Nothing here reads records. The rules are those of the engine's first pass over the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.config.topic import TopicSettings, stored_settings
from headwater.core.durability import Durability
from headwater.format.control import decode_head_watermark
from headwater.format.frame import Frame, FrameType
from headwater.format.snapshot import KeyMeta, Snapshot, TopicMeta
from headwater.format.topic_frames import (
    CheckpointEntry,
    RecordsDeleted,
    SettingsChanged,
    TopicCreated,
    decode_body,
    decode_evict_watermark,
)
from headwater.recovery.stored_topic import StoredTopic


@dataclass(slots=True)
class TopicNotes:
    """What one stretch of the log says of one topic, apart from its records."""

    created: TopicCreated | None = None
    dropped: bool = False
    settings: TopicSettings | None = None
    """As they were changed last."""
    mark: CheckpointEntry | None = None
    """The checkpoint that reached furthest."""
    evict_floor: int = 1
    earliest_seq: int = 1
    delete_below: int = 0
    losses: int = 0
    ceiling: int = 0
    changed: bool = False
    """There is more about it than checkpoints that absorbed what was known."""

    def take(self, frame: Frame) -> None:
        """A control frame of this topic."""
        if frame.type is FrameType.TOPIC_CREATE:
            self.created = decode_body(frame, TopicCreated)
        elif frame.type is FrameType.TOPIC_DELETE:
            self.dropped = True
        elif frame.type is FrameType.CONFIG_UPDATE:
            self.settings = stored_settings(decode_body(frame, SettingsChanged).settings)
        elif frame.type is FrameType.EVICT_WATERMARK:
            evict_floor, earliest_seq, reason = decode_evict_watermark(frame)
            self.evict_floor = max(self.evict_floor, evict_floor)
            self.earliest_seq = max(self.earliest_seq, earliest_seq)
            self.losses |= reason
        elif frame.type is FrameType.DELETE:
            body = decode_body(frame, RecordsDeleted)
            if body.match is None and body.before_seq is not None:
                below = min(body.before_seq, body.upto_seq + 1)
                self.delete_below = max(self.delete_below, below)
        elif frame.type is FrameType.HEAD_WATERMARK:
            self.ceiling = max(self.ceiling, decode_head_watermark(frame))

    def take_mark(self, entry: CheckpointEntry) -> None:
        if self.mark is None or entry.checkpointed_seq >= self.mark.checkpointed_seq:
            self.mark = entry


@dataclass(slots=True)
class KnownTopic:
    topic_id: int
    name: str
    epoch: int
    settings: TopicSettings
    """As the snapshot or the creation had them: what the log changed later is in `now`."""
    now: TopicSettings
    checkpointed_seq: int = 0
    stored: StoredTopic = field(default_factory=StoredTopic)
    last_ts: int = 0
    ceiling: int = 0
    """No seq up to here may be handed out again."""
    keys: tuple[KeyMeta, ...] = ()
    meta: TopicMeta | None = None
    """What the snapshot says; None for a topic it does not know."""
    touched: bool = False
    """The log speaks of it, or the snapshot knew of records that were in the log only."""
    changed: bool = False
    """The log has something of it that the snapshot does not know."""

    @property
    def is_behind(self) -> bool:
        """Seqs were reserved that no record was found for: they count as lost."""
        return self.now.durability is Durability.DISK and self.ceiling > self.stored.head_seq


def _from_meta(meta: TopicMeta) -> KnownTopic:
    settings = stored_settings(meta.settings)
    return KnownTopic(
        meta.topic_id,
        meta.name,
        meta.epoch,
        settings,
        settings,
        meta.checkpointed_seq,
        StoredTopic.from_meta(meta),
        meta.last_ts,
        meta.ceiling,
        meta.keys,
        meta,
        touched=meta.head_seq != meta.checkpointed_seq,
        changed=meta.head_seq != meta.checkpointed_seq,
    )


class Catalog:
    """`with_segments` is False for a log alone: how far segments reached is no matter then."""

    def __init__(self, snapshot: Snapshot | None, *, with_segments: bool = True) -> None:
        self._by_id: dict[int, KnownTopic] = {}
        self._by_name: dict[str, KnownTopic] = {}
        self._with_segments = with_segments
        self.epochs: dict[str, int] = {}
        """The last epoch of names that are gone."""
        self.next_topic_id = 1
        if snapshot is not None:
            self.next_topic_id = snapshot.next_topic_id
            self.epochs.update(snapshot.epochs)
            for meta in snapshot.topics:
                self._add(_from_meta(meta))

    def __iter__(self) -> Iterator[KnownTopic]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, topic_id: int) -> bool:
        return topic_id in self._by_id

    def find(self, name: str) -> KnownTopic | None:
        return self._by_name.get(name)

    def take(self, notes: dict[int, TopicNotes]) -> None:
        """The notes of the next stretch. Ids ascend with time, and topics are taken by id."""
        for topic_id, noted in sorted(notes.items()):
            if noted.created is not None:
                self._created(topic_id, noted.created)
            topic = self._by_id.get(topic_id)
            if topic is None:
                continue
            topic.touched = True
            topic.changed = topic.changed or noted.changed
            self._note(topic, noted)
            if noted.dropped:
                self._forget(topic)

    def _note(self, topic: KnownTopic, noted: TopicNotes) -> None:
        mark, stored = noted.mark, topic.stored
        if not self._with_segments:
            mark = None
        if mark is not None and mark.checkpointed_seq >= topic.checkpointed_seq:
            topic.checkpointed_seq = mark.checkpointed_seq
            stored.move_to(mark)
        stored.evict_floor = max(stored.evict_floor, noted.evict_floor)
        stored.earliest_seq = max(stored.earliest_seq, noted.earliest_seq)
        stored.delete_below = max(stored.delete_below, noted.delete_below)
        stored.losses |= noted.losses
        topic.now = noted.settings or topic.now
        topic.ceiling = max(topic.ceiling, noted.ceiling)

    def _created(self, topic_id: int, body: TopicCreated) -> None:
        if topic_id in self._by_id:
            return
        older = self._by_name.get(body.name)
        newest = self.epochs.get(body.name, 0) if older is None else older.epoch
        if topic_id < self.next_topic_id and newest >= body.epoch:
            return  # dropped since, and the snapshot knows it
        if older is not None:
            self._forget(older)
        settings = stored_settings(body.settings)
        self._add(KnownTopic(topic_id, body.name, body.epoch, settings, settings))

    def _add(self, topic: KnownTopic) -> None:
        self._by_id[topic.topic_id] = topic
        self._by_name[topic.name] = topic
        self.next_topic_id = max(self.next_topic_id, topic.topic_id + 1)
        self.epochs.pop(topic.name, None)

    def _forget(self, topic: KnownTopic) -> None:
        del self._by_id[topic.topic_id]
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        self.epochs[topic.name] = topic.epoch
