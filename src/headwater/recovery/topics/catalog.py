"""Which topics there are and how far their segments reach: a snapshot, and notes taken of the log.

The log is noted stretch by stretch, anywhere and in any order: a stretch is what one run wrote
into one file. The notes are then taken in, in the order in which the stretches were written.
Nothing here reads records. The rules are `history.topics`'.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.config.topic import TopicSettings, stored_settings
from headwater.core.durability import Durability
from headwater.format.control_frames import (
    CheckpointEntry,
    IdempotencyEntry,
    SettingsChanged,
    TopicCreated,
    decode_body,
    decode_head_watermark,
)
from headwater.format.frame import Frame, FrameType
from headwater.format.snapshot import Snapshot, TopicMeta
from headwater.recovery.history.contents import Floors
from headwater.recovery.history.topics import TopicFold, TopicSink, TopicTable
from headwater.recovery.topics.stored_topic import StoredTopic


@dataclass(slots=True)
class TopicNotes(Floors):
    """What one stretch of the log says of one topic, apart from its records."""

    created: TopicCreated | None = None
    dropped: bool = False
    settings: TopicSettings | None = None
    """As they were changed last."""
    mark: CheckpointEntry | None = None
    """The checkpoint that reached furthest."""
    ceiling: int = 0
    changed: bool = False
    """There is more about it than checkpoints of what was known."""

    def take(self, frame: Frame) -> None:
        """A control frame of this topic."""
        if frame.type is FrameType.TOPIC_CREATE:
            self.created = decode_body(frame, TopicCreated)
        elif frame.type is FrameType.TOPIC_DELETE:
            self.dropped = True
        elif frame.type is FrameType.CONFIG_UPDATE:
            self.settings = stored_settings(decode_body(frame, SettingsChanged).settings)
        elif frame.type is FrameType.HEAD_WATERMARK:
            self.ceiling = max(self.ceiling, decode_head_watermark(frame))
        else:
            Floors.take(self, frame)

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
    keys: tuple[IdempotencyEntry, ...] = ()
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


class Catalog(TopicTable[KnownTopic], TopicSink[KnownTopic]):
    """`with_segments` is False for a log alone: how far segments reached is no matter then."""

    def __init__(self, snapshot: Snapshot | None, *, with_segments: bool = True) -> None:
        super().__init__()
        self._fold = TopicFold(self, self)
        self._with_segments = with_segments
        if snapshot is not None:
            self.begin(snapshot, _from_meta)

    def note(self, frame: Frame) -> None:
        """The next control frame of the log."""
        self._fold.take(frame)

    def take(self, notes: dict[int, TopicNotes]) -> None:
        """The notes of the next stretch. Ids ascend with time, and topics are taken by id."""
        for topic_id, noted in sorted(notes.items()):
            if noted.created is not None:
                self._fold.created(topic_id, noted.created)
            topic = self.by_id(topic_id)
            if topic is None:
                continue
            topic.touched = True
            topic.changed = topic.changed or noted.changed
            if noted.mark is not None and self._with_segments:
                self._fold.checkpointed(noted.mark)
            topic.stored.rise_to(noted)
            topic.now = noted.settings or topic.now
            topic.ceiling = max(topic.ceiling, noted.ceiling)
            if noted.dropped:
                self._fold.dropped(topic_id)

    def make(self, topic_id: int, body: TopicCreated) -> KnownTopic:
        settings = stored_settings(body.settings)
        return KnownTopic(topic_id, body.name, body.epoch, settings, settings)
