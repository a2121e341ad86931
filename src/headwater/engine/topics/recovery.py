"""From files to topics: the latest snapshot, the index files, then the log.

Two passes over the log: first what topics there are and how far each was checkpointed, then the
records and deletes that segments do not have yet. A frame that was already checkpointed
changes nothing, so recovering twice gives the same state as once (I4).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

import numpy

from headwater.config.topic import stored_settings
from headwater.core.errors import DamageError, NewerFormatError, StorageError
from headwater.engine.core import EngineCore
from headwater.engine.routers.recovery import RouterReplay
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
from headwater.engine.topics.losses import RecoveryNotes, close_gaps
from headwater.engine.topics.tail import TailChunk
from headwater.engine.topics.topic import Topic
from headwater.format.control import (
    IdempotencyEntry,
    decode_head_watermark,
    decode_idempotency,
)
from headwater.format.frame import Frame, FrameType, UnknownFrameError
from headwater.format.lease_frames import decode_lease_event
from headwater.format.router_frames import ROUTER_FRAMES
from headwater.format.segment import IndexFlag
from headwater.format.topic_frames import (
    CheckpointEntry,
    RecordsDeleted,
    SettingsChanged,
    TopicCreated,
    decode_body,
    decode_checkpoint_mark,
    decode_evict_watermark,
)
from headwater.model.loss import Loss
from headwater.model.match import TagMatcher
from headwater.model.queue import LeaseHistory
from headwater.model.topic import TopicLog
from headwater.recovery.replay import FrameGroup, replay
from headwater.recovery.rows import RecordRows, replay_rows
from headwater.recovery.snapshots import LatestSnapshot, covered_frames, find_snapshot
from headwater.recovery.survey import ShardSurvey
from headwater.store.segment import SegmentChangedError

Progress = Callable[[float], None]


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
        self._touched: dict[int, Topic] = {}
        self._covered: dict[PurePath, int] = {}
        self._was_ephemeral: set[int] = set()
        """Topics that were, until the frame at hand: a gap before the next record is a loss."""
        self._keys: list[tuple[Topic, IdempotencyEntry]] = []
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
        self.filled = close_gaps(
            self._core, self._topics, self.notes, self._was_ephemeral, self._load_or_leave
        )
        self._routers.close_gaps(self._load_or_leave)
        progress(1.0)

    def read(self, progress: Progress) -> None:
        """Everything the files say, and nothing that only their owner may conclude from it."""
        self._from_snapshot()
        progress(0.1)
        for entry in self._rows(records=False):
            if isinstance(entry, RecordRows):
                self._touch(entry.topic_id)
            else:
                self._note_topic(entry)
        self._routers.attach()
        progress(0.4)
        for topic in list(self._touched.values()):
            self._load_or_leave(topic)
        progress(0.6)
        for entry in self._rows(records=True):
            if isinstance(entry, RecordRows):
                self._append(entry)
            else:
                self._apply(entry)
        self._remember_keys()
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
            core.registry.next_topic_id = snapshot.next_topic_id
            core.registry.epochs.update(snapshot.epochs)
            for meta in snapshot.topics:
                topic = topic_from_meta(core, meta)
                core.registry.add(topic)
                if meta.head_seq != meta.checkpointed_seq:
                    # The snapshot knew of records that are in the log, if they are anywhere.
                    self._touched[topic.topic_id] = topic
            self._routers.from_snapshot(snapshot.routers)
            self._covered = covered_frames(core.directory, snapshot, self._shards)
        self._check_reach()

    def follow(self, groups: Iterator[FrameGroup]) -> None:
        """What was written to the log since: for a process that reads it beside its owner.

        Records stay in memory when the owner has put them into segments: where they are read from
        makes no difference, and the segments that are known stay what they were.
        """
        for frame in replay_rows(groups, {}, records=True):
            if isinstance(frame, RecordRows):
                self._touch(frame.topic_id)
                self._whole(frame.topic_id)
                self._append(frame)
                continue
            if frame.type is FrameType.CHECKPOINT_MARK:
                for entry in decode_checkpoint_mark(frame):
                    self._follow_mark(entry)
                continue
            self._note_topic(frame)
            self._whole(frame.topic_id)
            self._apply(frame)
        self._remember_keys()

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
        elif entry.checkpointed_seq >= topic.checkpointed_seq:
            topic.checkpointed_seq = entry.checkpointed_seq
            topic.stored.move_to(entry)

    def _check_reach(self) -> None:
        """The log must begin no later than where the snapshot ends."""
        for shard in self._shards:
            covered = self._covered.get(shard.directory, 0)
            if shard.files and shard.files[0].number > covered + 1:
                raise DamageError(
                    f"the log begins at frame {shard.files[0].number}, but the newest readable "
                    f"snapshot ends at frame {covered}",
                    path=shard.directory,
                    advice="restore the missing snapshot or a backup",
                )

    def _rows(self, *, records: bool) -> Iterator[Frame | RecordRows]:
        groups = replay(self._core.disk, self._shards, self._covered)
        return replay_rows(groups, self._covered, records=records)

    def _touch(self, topic_id: int) -> None:
        topic = self._core.registry.by_id(topic_id)
        if topic is not None:
            self._touched[topic_id] = topic

    def _note_topic(self, frame: Frame) -> None:
        """First pass: which topics there are, and how far their segments reach."""
        registry = self._core.registry
        if frame.type is FrameType.CHECKPOINT_MARK:
            for entry in decode_checkpoint_mark(frame):
                topic = registry.by_id(entry.topic_id)
                if topic is not None and entry.checkpointed_seq >= topic.checkpointed_seq:
                    topic.checkpointed_seq = entry.checkpointed_seq
                    # The mark of the checkpoint that the snapshot was made of says what that says:
                    # a topic that was idle since need not be read.
                    if topic.stored.move_to(entry):
                        self._touched[topic.topic_id] = topic
            return
        if frame.type in ROUTER_FRAMES:
            self._routers.note(frame)
        if frame.type is FrameType.TOPIC_CREATE:
            self._created(frame)
        topic = registry.by_id(frame.topic_id)
        if topic is None:
            if frame.type is FrameType.TOPIC_DELETE:
                self._core.dropped.append(frame.topic_id)  # its files may still be there
            return
        if frame.type is FrameType.TOPIC_DELETE:
            self._forget(topic)
        else:
            self._touched[topic.topic_id] = topic
            self._note_floors(topic, frame)

    def _note_floors(self, topic: Topic, frame: Frame) -> None:
        """Floors only rise, and segments below them may be gone before they are replayed."""
        stored = topic.stored
        if frame.type is FrameType.EVICT_WATERMARK:
            evict_floor, earliest_seq, reason = decode_evict_watermark(frame)
            stored.evict_floor = max(stored.evict_floor, evict_floor)
            stored.earliest_seq = max(stored.earliest_seq, earliest_seq)
            stored.losses |= reason
        elif frame.type is FrameType.DELETE:
            body = decode_body(frame, RecordsDeleted)
            if body.match is None and body.before_seq is not None:
                below = min(body.before_seq, body.upto_seq + 1)
                stored.delete_below = max(stored.delete_below, below)

    def _created(self, frame: Frame) -> None:
        registry = self._core.registry
        if registry.by_id(frame.topic_id) is not None:
            return
        body = decode_body(frame, TopicCreated)
        if frame.topic_id < registry.next_topic_id and registry.epoch_of(body.name) >= body.epoch:
            return  # dropped since, and the snapshot knows it
        older = registry.find(body.name)
        if older is not None:
            self._forget(older)
        log = TopicLog(stored_settings(body.settings), body.epoch)
        topic = self._core.new_topic(frame.topic_id, body.name, log)
        topic.loaded = False
        registry.add(topic)
        self._touched[topic.topic_id] = topic

    def _forget(self, topic: Topic) -> None:
        self._core.registry.remove(topic)
        self._touched.pop(topic.topic_id, None)
        topic.dropped = True
        self._core.expiring.pop(topic.topic_id, None)
        self._core.dropped.append(topic.topic_id)

    def _apply(self, frame: Frame) -> None:
        """Second pass: records and deletes that the segments do not have."""
        topic = self._touched.get(frame.topic_id)
        apply = _APPLY.get(frame.type)
        if topic is None or apply is None:
            self.notes.frames_checkpointed += 1
            return
        self.notes.frames_replayed += 1
        try:
            apply(self, topic, frame)
        except UnknownFrameError as error:
            raise NewerFormatError(error.reason, path=self._core.directory) from error

    def _append(self, rows: RecordRows) -> None:
        topic = self._touched.get(rows.topic_id)
        if topic is None:
            self.notes.frames_checkpointed += len(rows.seqs)
            return
        known = int(numpy.searchsorted(rows.seqs, topic.log.visible_seq, "right"))
        self.notes.frames_checkpointed += known
        self.notes.frames_replayed += len(rows.seqs) - known
        rows = rows.since(known)  # the rest is in segments already
        borders = (numpy.flatnonzero(numpy.diff(rows.seqs) != 1) + 1).tolist()
        for start, end in itertools.pairwise([0, *borders, len(rows.seqs)]):
            if start < end:
                self._append_run(topic, rows.part(start, end))

    def _append_run(self, topic: Topic, rows: RecordRows) -> None:
        first_seq = int(rows.seqs[0])
        if first_seq > topic.log.visible_seq + 1:
            lost = topic.topic_id in self._was_ephemeral
            self._topics.fill_dead(topic, first_seq - 1, int(rows.ts[0]), lost=lost)
        self._was_ephemeral.discard(topic.topic_id)
        topic.log.load_entries(rows.entries())
        for tag, seq in rows.tags():
            topic.log.note_tag(tag, seq)
        topic.last_ts = max(topic.last_ts, int(rows.ts[-1]))
        buffer, offsets = rows.copy()
        self._topics.keep_in_tail(topic, TailChunk(first_seq, buffer, offsets))

    def _delete(self, topic: Topic, frame: Frame) -> None:
        body = decode_body(frame, RecordsDeleted)
        self._deleted_in[topic.topic_id] = topic
        if body.seqs:
            self._topics.apply_seqs_deletion(topic, body.seqs)
            return
        matcher = None if body.match is None else TagMatcher(body.match.encode(), body.prefix)
        if matcher is not None:
            reads = plan_tags(topic)
            install_tags(topic, reads, load_tags(topic, reads))
        self._topics.apply_deletion(topic, body.before_seq, matcher, body.upto_seq)

    def _settings(self, topic: Topic, frame: Frame) -> None:
        if not topic.log.settings.durability.is_logged:
            self._was_ephemeral.add(topic.topic_id)
        settings = stored_settings(decode_body(frame, SettingsChanged).settings)
        self._topics.reconfigure(topic, settings)
        topic.meta = None

    def _floors(self, topic: Topic, frame: Frame) -> None:
        evict_floor, earliest_seq, reason = decode_evict_watermark(frame)
        topic.log.restore_floors(evict_floor, earliest_seq, Loss(reason))

    def _ceiling(self, topic: Topic, frame: Frame) -> None:
        ceiling = max(decode_head_watermark(frame), self._core.ceilings.ceiling_of(topic.topic_id))
        self._core.ceilings.restore(topic.topic_id, ceiling)

    def _fill_slots(self, topic: Topic, frame: Frame) -> None:
        self._routers.fill_slots(topic, frame)

    def _lease(self, topic: Topic, frame: Frame) -> None:
        if topic.lease_history is None:
            topic.lease_history = LeaseHistory()
        topic.lease_history.apply(decode_lease_event(frame), frame.ts)
        topic.meta = None

    def _key(self, topic: Topic, frame: Frame) -> None:
        self._keys.append((topic, decode_idempotency(frame)))

    def _remember_keys(self) -> None:
        """A key stands in front of the records it protects, so it is applied after them."""
        for topic, entry in self._keys:
            if entry.last_seq <= topic.log.visible_seq:
                topic.keys.remember(
                    entry.key,
                    entry.first_seq,
                    entry.last_seq,
                    created=entry.created,
                    expires_ts=entry.expires_ts,
                )
        self._keys.clear()


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


_APPLY: dict[FrameType, Callable[[TopicRecovery, Topic, Frame], None]] = {
    FrameType.CONFIG_UPDATE: TopicRecovery._settings,
    FrameType.DELETE: TopicRecovery._delete,
    FrameType.EVICT_WATERMARK: TopicRecovery._floors,
    FrameType.HEAD_WATERMARK: TopicRecovery._ceiling,
    FrameType.IDEMPOTENCY: TopicRecovery._key,
    FrameType.LEASE: TopicRecovery._lease,
    FrameType.ROUTER_PLACES: TopicRecovery._fill_slots,
}
