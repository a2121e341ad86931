"""From files to topics: the latest snapshot, the index files, then the log.

Two passes over the log: first what topics there are and how far each was checkpointed, then the
records and deletes that segments do not have yet. A frame that was already checkpointed
changes nothing, so recovering twice gives the same state as once (I4).

Once everything was read it is known which seqs have no record. The disk class goes on above every
seq it may have acked (I3); what was ephemeral is gone. Both are losses that readers see as a
tombstone (I9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import msgspec

from headwater.config.topic import TopicSettings, stored_settings
from headwater.core.arrays import numpy
from headwater.core.errors import DamageError, NewerFormatError, StorageError
from headwater.engine.start.router_replay import RouterReplay
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import TailChunk, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.loader import (
    Loaded,
    install,
    install_tags,
    load_tags,
    load_topic,
    note_refused,
    plan_tags,
    topic_from_meta,
)
from headwater.format.control_frames import (
    ROUTER_FRAMES,
    CheckpointEntry,
    IdempotencyEntry,
    LeaseEvent,
    TopicCreated,
    decode_checkpoint_mark,
)
from headwater.format.frame import Frame, FrameType, UnknownFrameError
from headwater.format.segment import IndexFlag
from headwater.format.snapshot import TopicMeta
from headwater.model.loss import Loss
from headwater.model.queue import LeaseHistory
from headwater.model.topic import TopicLog
from headwater.recovery.history.contents import (
    ContentSink,
    Deletion,
    LossSink,
    TopicHistory,
    lose_ephemeral,
    may_lose_ephemeral,
    reserved_seqs,
)
from headwater.recovery.history.topics import TABLE_FRAMES, TopicFold
from headwater.recovery.topics.replay import (
    FrameGroup,
    RecordRows,
    replay,
    replay_controls,
    replay_rows,
)
from headwater.recovery.topics.snapshots import (
    LatestSnapshot,
    covered_frames,
    find_snapshot,
    refuse_missing_frames,
)
from headwater.recovery.topics.survey import ShardSurvey
from headwater.store.segment import SegmentChangedError

Progress = Callable[[float], None]
_FIRST_PASS: Final = TABLE_FRAMES | ROUTER_FRAMES


class RecoveryNotes(msgspec.Struct):
    """What the operator should know about how the topics came back."""

    snapshot_number: int = 0
    snapshots_unreadable: list[str] = msgspec.field(default_factory=list)
    topics: int = 0
    topics_loaded: int = 0
    topics_broken: list[str] = msgspec.field(default_factory=list)
    """Topics whose files are damaged: refused until they are restored, the others are not."""
    frames_replayed: int = 0
    frames_checkpointed: int = 0
    seqs_reserved: int = 0
    """Seqs of the disk class that were reserved before a crash and have no record."""


def close_gaps(
    core: EngineCore,
    topics: Topics,
    notes: RecoveryNotes,
    was_ephemeral: Collection[int],
    load: Callable[[Topic], bool],
) -> list[Topic]:
    """Give lost seqs their slots; returns the topics whose losses are not on the disk yet.

    A clean stop leaves no seq between head and ceiling; so it does not matter how the last run
    ended, and opening twice gives the same as once (I4). `load` is False for a broken topic.
    """
    filled: list[Topic] = []
    for topic in core.registry:
        if topic.broken is not None:
            continue
        sink = _Losses(core, topics, topic, filled)
        ephemeral = topic.topic_id in was_ephemeral
        if topic.loaded and may_lose_ephemeral(topic.log.settings, was_ephemeral=ephemeral):
            is_logged = topic.log.settings.durability.is_logged
            topic.logged_upto = None if is_logged else topic.log.visible_seq
            lose_ephemeral(sink, topic.stored.head_seq)
        ceiling = core.ceilings.ceiling_of(topic.topic_id)
        if reserved_seqs(topic.log, ceiling):
            if not topic.loaded and not load(topic):
                continue
            notes.seqs_reserved += reserved_seqs(topic.log, ceiling)
            sink.lose(ceiling, logged=True)
        if topic.loaded:
            topics.evict(topic)
    return filled


@dataclass(frozen=True, slots=True)
class _Losses(LossSink):
    """A topic of the engine, which loses what has no record."""

    core: EngineCore
    topics: Topics
    topic: Topic
    filled: list[Topic]
    """Gets the topics of which it has to be written down."""

    @property
    def log(self) -> TopicLog:
        return self.topic.log

    def lose(self, upto_seq: int, *, logged: bool) -> None:
        self.topics.fill_dead(self.topic, upto_seq, self.topic.last_ts, lost=True, logged=logged)
        if logged:
            self.filled.append(self.topic)

    def begin_anew(self, log: TopicLog) -> None:
        topic = self.topic
        topic.log = log
        self.core.tail_bytes -= topic.tail_bytes
        topic.tail_bytes = 0
        topic.tail.clear()
        topic.meta = None


class TopicRecovery:
    """`shards` is what a survey of the log found; `load` reads the files of one topic."""

    def __init__(
        self,
        core: EngineCore,
        topics: Topics,
        shards: list[ShardSurvey],
        load: Callable[[Topic], Loaded] = load_topic,
        known_snapshot: LatestSnapshot | None = None,
    ) -> None:
        """`known_snapshot`: read before the log was opened. A reader beside an owner reads it
        later."""
        self._core = core
        self._topics = topics
        self._shards = shards
        self._load = load
        self._known_snapshot = known_snapshot
        self._fold = TopicFold(core.registry, self)
        self._touched: dict[int, Topic] = {}
        self._histories: dict[int, TopicHistory[RecordRows]] = {}
        """Of touched topics, once the log has something of what they hold."""
        self._covered: dict[PurePath, int] = {}
        self._routers = RouterReplay(core, topics)
        self._deleted_in: dict[int, Topic] = {}
        """Topics of which the log deletes something."""
        self.filled: list[Topic] = []
        """Topics with seqs that are lost, which is not on the disk yet."""
        self.notes = RecoveryNotes()

    def run(self, progress: Progress) -> None:
        self.read(progress)
        for topic in self._deleted_in.values():
            _flag_again(topic)
        was_ephemeral = {id_ for id_, each in self._histories.items() if each.was_ephemeral}
        self.filled = close_gaps(
            self._core, self._topics, self.notes, was_ephemeral, self._load_or_leave
        )
        self._routers.close_gaps(self._load_or_leave)
        progress(1.0)

    def read(self, progress: Progress) -> None:
        """Everything the files say, and nothing that only their owner may conclude from it."""
        self._from_snapshot()
        progress(0.1)
        groups = replay(self._core.disk, self._shards, self._covered)
        for topic_ids, frames in replay_controls(groups, self._covered, _FIRST_PASS):
            for frame in frames:
                self._note(frame)
            for topic_id in topic_ids:
                self._touch(topic_id)
        self._routers.attach()
        progress(0.4)
        for topic in list(self._touched.values()):
            self._load_or_leave(topic)
        progress(0.6)
        groups = replay(self._core.disk, self._shards, self._covered)
        for entry in replay_rows(groups, self._covered):
            self._take(entry)
        for history in self._histories.values():
            history.finish()
        self.notes.topics = len(self._core.registry)
        progress(0.9)

    def _load_or_leave(self, topic: Topic) -> bool:
        """Damage to one topic's files must not keep the others from being used (I6)."""
        try:
            install(topic, self._load(topic), self._core)
        except StorageError as error:
            if self._core.read_only:
                raise  # their owner may be changing them: try again
            if isinstance(error.__cause__, OSError) and not isinstance(error, DamageError):
                raise  # the disk failed, not the files: the next start may find them sound
            topic.broken = error
            self._core.broken[topic.topic_id] = topic
            if isinstance(error, DamageError):
                note_refused(self._core, topic, error)
            self.notes.topics_broken.append(f"{topic.name}: {error}")
            self._touched.pop(topic.topic_id, None)
            return False
        self.notes.topics_loaded += 1
        return True

    def _from_snapshot(self) -> None:
        core = self._core
        snapshot, unreadable = self._known_snapshot or find_snapshot(core.disk, core.directory)
        self.notes.snapshots_unreadable += unreadable
        if snapshot is not None:
            core.snapshot_number = self.notes.snapshot_number = snapshot.number
            core.registry.begin(snapshot, self._from_meta)
            self._routers.from_snapshot(snapshot.routers)
            self._covered = covered_frames(core.directory, snapshot, self._shards)
        refuse_missing_frames(self._shards, self._covered)

    def _from_meta(self, meta: TopicMeta) -> Topic:
        topic = topic_from_meta(self._core, meta)
        if meta.head_seq != meta.checkpointed_seq:
            # The snapshot knew of records that are in the log, if they are anywhere.
            self._touched[topic.topic_id] = topic
        return topic

    def follow(self, groups: Iterator[FrameGroup]) -> None:
        """What was written to the log since: for a process that reads it beside its owner.

        Records stay in memory when the owner has put them into segments: where they are read from
        makes no difference, and the segments that are known stay what they were.
        """
        met: dict[int, TopicHistory[RecordRows]] = {}
        for entry in replay_rows(groups, {}):
            if isinstance(entry, Frame):
                if entry.type is FrameType.CHECKPOINT_MARK:
                    for mark in decode_checkpoint_mark(entry):
                        self._follow_mark(mark)
                    continue
                self._note(entry)
            self._touch(entry.topic_id)
            self._whole(entry.topic_id)
            self._take(entry)
            if entry.topic_id in self._histories:
                met[entry.topic_id] = self._histories[entry.topic_id]
        for history in met.values():
            history.finish()

    def covered_frame(self, shard_directory: PurePath) -> int:
        """The last frame of this shard that the snapshot covers."""
        return self._covered.get(shard_directory, 0)

    @property
    def touched(self) -> Iterable[Topic]:
        """Topics that have frames in the log."""
        return self._touched.values()

    def _whole(self, topic_id: int) -> None:
        topic = self._touched.get(topic_id)
        if topic is not None and not topic.loaded:
            install(topic, self._load(topic), self._core)

    def _follow_mark(self, entry: CheckpointEntry) -> None:
        topic = self._core.registry.by_id(entry.topic_id)
        if topic is None:
            return
        if topic.loaded:
            if entry.checkpointed_seq > topic.log.visible_seq:
                raise SegmentChangedError(f"{topic.name!r} has copies that were never in the log")
            topic.log.restore_floors(entry.evict_floor, entry.earliest_seq, topic.log.losses)
        else:
            self._fold.checkpointed(entry)

    def _note(self, frame: Frame) -> None:
        """First pass: which topics and routers there are, and how far the files of each reach."""
        if frame.type in ROUTER_FRAMES:
            self._routers.note(frame)
        self._fold.take(frame)

    def _touch(self, topic_id: int) -> None:
        topic = self._core.registry.by_id(topic_id)
        if topic is not None:
            self._touched[topic_id] = topic

    # -- which topics there are; implements `TopicSink`

    def make(self, topic_id: int, body: TopicCreated) -> Topic:
        log = TopicLog(stored_settings(body.settings), body.epoch)
        topic = self._core.new_topic(topic_id, body.name, log)
        topic.loaded = False
        self._touched[topic_id] = topic
        return topic

    def forgotten(self, topic: Topic) -> None:
        self._touched.pop(topic.topic_id, None)
        self._histories.pop(topic.topic_id, None)
        topic.dropped = True
        self._core.expiring.pop(topic.topic_id, None)
        self._core.dropped.append(topic.topic_id)

    def forgotten_before(self, topic_id: int) -> None:
        self._core.dropped.append(topic_id)

    def moved(self, topic: Topic) -> None:
        self._touched[topic.topic_id] = topic

    # -- second pass: what the segments do not have

    def _take(self, entry: Frame | RecordRows) -> None:
        history = self._history(entry.topic_id)
        notes = self.notes
        if isinstance(entry, RecordRows):
            known = len(entry.seqs) if history is None else history.append(entry)
            notes.frames_checkpointed += known
            notes.frames_replayed += len(entry.seqs) - known
            return
        try:
            applied = history is not None and history.apply(entry)
        except UnknownFrameError as error:
            raise NewerFormatError(error.reason, path=self._core.directory) from error
        notes.frames_replayed += applied
        notes.frames_checkpointed += not applied

    def _history(self, topic_id: int) -> TopicHistory[RecordRows] | None:
        history = self._histories.get(topic_id)
        if history is None:
            topic = self._touched.get(topic_id)
            if topic is None:
                return None
            contents = _Contents(self._core, self._topics, topic, self._deleted_in)
            history = self._histories[topic_id] = TopicHistory(contents)
        return history


class _Contents(ContentSink[RecordRows]):
    """A topic of the engine, which becomes what the log says it holds."""

    __slots__ = ("_core", "_deleted_in", "_topic", "_topics")

    def __init__(
        self, core: EngineCore, topics: Topics, topic: Topic, deleted_in: dict[int, Topic]
    ) -> None:
        self._core = core
        self._topics = topics
        self._topic = topic
        self._deleted_in = deleted_in

    @property
    def head_seq(self) -> int:
        return self._topic.log.visible_seq

    @property
    def settings(self) -> TopicSettings:
        return self._topic.log.settings

    def append(self, rows: RecordRows, start: int, end: int) -> None:
        topic, rows = self._topic, rows.part(start, end)
        topic.log.load_entries(rows.entries())
        for tag, seq in rows.tags():
            topic.log.note_tag(tag, seq)
        topic.last_ts = max(topic.last_ts, int(rows.ts[-1]))
        buffer, offsets = rows.copy()
        self._core.keep_in_tail(topic, TailChunk(int(rows.seqs[0]), buffer, offsets))

    def fill(self, upto_seq: int, ts: int, *, lost: bool) -> None:
        self._topics.fill_dead(self._topic, upto_seq, ts, lost=lost)
        self._topic.last_ts = max(self._topic.last_ts, ts)

    def delete_before(self, seq: int) -> None:
        self._deleted_in[self._topic.topic_id] = self._topic
        self._topics.apply_deletion(self._topic, seq, None, seq - 1)

    def delete(self, deletion: Deletion) -> None:
        topic = self._topic
        self._deleted_in[topic.topic_id] = topic
        if deletion.matcher is None:
            self._topics.apply_seqs_deletion(topic, deletion.seqs)
            return
        reads = plan_tags(topic)
        install_tags(topic, reads, load_tags(topic, reads))
        self._topics.apply_deletion(topic, None, deletion.matcher, deletion.last_seq)

    def reconfigure(self, settings: TopicSettings) -> None:
        self._topics.reconfigure(self._topic, settings)
        self._topic.meta = None

    def evict(self, evict_floor: int, earliest_seq: int, losses: Loss) -> None:
        self._topic.log.restore_floors(evict_floor, earliest_seq, losses)

    def reserve(self, ceiling: int) -> None:
        ceilings, topic_id = self._core.ceilings, self._topic.topic_id
        ceilings.restore(topic_id, max(ceiling, ceilings.ceiling_of(topic_id)))

    def lease(self, event: LeaseEvent, ts: int) -> None:
        topic = self._topic
        if topic.lease_history is None:
            topic.lease_history = LeaseHistory()
        topic.lease_history.apply(event, ts)
        topic.meta = None

    def remember(self, entry: IdempotencyEntry) -> None:
        self._topic.keys.remember(entry)


def _flag_again(topic: Topic) -> None:
    """The checkpoint that lets the log go writes the flags of deleted records once more. Whoever
    was killed while flipping them left them in the page cache only: what this start reads there, a
    power loss takes, and by then the log would not tell of it any more (I8)."""
    if topic.broken is not None or topic.dropped or not topic.segments:
        return
    index = topic.log.index
    first = max(topic.segments[0].first_seq, index.base_seq)
    end = min(topic.segments[-1].end_seq + 1, index.next_seq)
    if first < end:
        dead = index.flags(first, end) & (IndexFlag.DELETED | IndexFlag.LOST)
        seqs = numpy.flatnonzero(dead == IndexFlag.DELETED) + first
        if len(seqs):
            topic.unflagged.append(seqs)
