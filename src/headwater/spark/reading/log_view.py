"""A data directory as its snapshot and its log tell it, without a look at a single segment.

For each topic: which seqs there are, the floors, how far segments reach, the records that are
only in the log, and the deletes that segments may not know of yet. What is in segments is read by
those who need it, so a topic with a hundred million records costs here what an empty one does.

Read beside a living owner, as `headwater.engine.read_only` does it: nothing is locked or changed,
and whatever cannot be explained by writing alone is an error that says "look again".
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

import numpy

from headwater.config.topic import TopicSettings, stored_settings
from headwater.core.errors import DamageError, NewerFormatError, RequestError
from headwater.disk import Disk
from headwater.format.frame import Frame, FrameType, UnknownFrameError
from headwater.format.names import WAL_DIRECTORY
from headwater.format.snapshot import Snapshot, TopicMeta
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
from headwater.recovery.follower import LogFollower
from headwater.recovery.inspection import look_until_settled
from headwater.recovery.replay import Group, replay
from headwater.recovery.rows import RecordRows, replay_rows
from headwater.recovery.snapshots import covered_frames, covered_logs, load_snapshot
from headwater.recovery.survey import ShardSurvey
from headwater.recovery.verdict import Verdict
from headwater.recovery.wal_recovery import look
from headwater.store.segment import SegmentChangedError


@dataclass(frozen=True, slots=True)
class Deletion:
    """Records up to `last_seq` were deleted: those whose tag matches, or jobs that are done."""

    last_seq: int
    matcher: TagMatcher | None
    seqs: tuple[int, ...] = ()
    """Jobs of a queue; without a matcher."""


def deletion_of(body: RecordsDeleted) -> Deletion | int:
    """By tag or by seq; or the first seq that is kept, when everything before it was deleted."""
    if body.seqs:
        return Deletion(max(body.seqs), None, body.seqs)
    end = body.upto_seq + 1
    if body.before_seq is not None:
        end = min(body.before_seq, end)
    if body.match is None:
        return end
    return Deletion(end - 1, TagMatcher(body.match.encode(), body.prefix))


@dataclass(slots=True)
class LoggedTopic:
    topic_id: int
    name: str
    epoch: int
    settings: TopicSettings
    head_seq: int = 0
    """The last seq that has, or had, a record in log or segments."""
    checkpointed_seq: int = 0
    """Everything up to here is in segments."""
    active_first_seq: int = 0
    active_data_bytes: int = 0
    evict_floor: int = 1
    first_seq: int = 1
    """Everything below is gone: deleted or lost. Dead records may still be at the front."""
    losses: Loss = Loss.NONE
    reach: dict[TagMatcher, int] = field(default_factory=dict)
    """Deletes by tag, each with the last seq it was about; segments may not know them yet."""
    done: list[int] = field(default_factory=list)
    """Jobs that were done; segments may not know it yet."""
    runs: list[RecordRows] = field(default_factory=list)
    """Records behind the checkpoint, in seq order; within a run there is no gap."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Seqs behind the checkpoint that a crash took: they were never in the log."""
    was_ephemeral: bool = False
    """Until the settings changed: a gap before the next record is a loss."""

    @classmethod
    def from_meta(cls, meta: TopicMeta) -> LoggedTopic:
        topic = cls(meta.topic_id, meta.name, meta.epoch, stored_settings(meta.settings))
        topic.head_seq = topic.checkpointed_seq = meta.checkpointed_seq
        topic.active_first_seq = meta.active_first_seq
        topic.active_data_bytes = meta.active_data_bytes
        topic.evict_floor = meta.evict_floor
        topic.raise_first(max(meta.earliest_seq, meta.evict_floor, meta.delete_below))
        topic.losses = Loss(meta.eviction_reason)
        return topic

    @property
    def deletions(self) -> list[Deletion]:
        deletions = [Deletion(last_seq, matcher) for matcher, last_seq in self.reach.items()]
        if self.done:
            deletions.append(Deletion(max(self.done), None, tuple(self.done)))
        return deletions

    def raise_first(self, seq: int) -> None:
        self.first_seq = max(self.first_seq, seq)

    def lose_below(self, evict_floor: int, earliest_seq: int, reason: Loss) -> None:
        self.evict_floor = max(self.evict_floor, evict_floor)
        self.raise_first(max(earliest_seq, evict_floor))
        self.losses |= reason

    def absorbed(self, entry: CheckpointEntry) -> None:
        """A checkpoint that is not older than what is known."""
        self.lose_below(entry.evict_floor, entry.earliest_seq, Loss.NONE)
        if entry.checkpointed_seq < self.checkpointed_seq:
            return
        upto = self.checkpointed_seq = entry.checkpointed_seq
        self.active_first_seq = entry.active_first_seq
        self.active_data_bytes = entry.active_data_bytes
        self.head_seq = max(self.head_seq, upto)
        self.lost = [(max(low, upto + 1), high) for low, high in self.lost if high > upto]
        self.runs = [
            run.since(max(upto + 1 - int(run.seqs[0]), 0))
            for run in self.runs
            if int(run.seqs[-1]) > upto
        ]

    def append(self, rows: RecordRows) -> None:
        known = int(numpy.searchsorted(rows.seqs, self.head_seq, "right"))
        rows = rows.since(known)
        borders = (numpy.flatnonzero(numpy.diff(rows.seqs) != 1) + 1).tolist()
        for start, end in itertools.pairwise([0, *borders, len(rows.seqs)]):
            if start < end:
                self._append_run(rows.part(start, end))

    def _append_run(self, run: RecordRows) -> None:
        first_seq = int(run.seqs[0])
        if first_seq > self.head_seq + 1 and self.was_ephemeral:
            self.lost.append((self.head_seq + 1, first_seq - 1))
        self.was_ephemeral = False
        self.runs.append(run)
        self.head_seq = int(run.seqs[-1])

    def delete(self, body: RecordsDeleted) -> None:
        deletion = deletion_of(body)
        if not isinstance(deletion, Deletion):
            self.raise_first(deletion)
        elif deletion.matcher is None:
            self.done += deletion.seqs
        else:
            known = self.reach.get(deletion.matcher, 0)
            self.reach[deletion.matcher] = max(deletion.last_seq, known)

    def reconfigure(self, body: SettingsChanged) -> None:
        self.was_ephemeral = self.was_ephemeral or not self.settings.durability.is_logged
        self.settings = stored_settings(body.settings)


class LogView:
    """Topics as of now; `follow` takes in what was written since."""

    def __init__(self, disk: Disk, directory: PurePath) -> None:
        wal_directory = directory / WAL_DIRECTORY
        if not disk.is_directory(wal_directory):
            raise RequestError(
                f"{directory} is not a Headwater data directory: there is no {WAL_DIRECTORY}/ in it"
            )
        self.directory = directory
        self._by_id: dict[int, LoggedTopic] = {}
        self._by_name: dict[str, LoggedTopic] = {}
        self._epochs: dict[str, int] = {}
        self._next_topic_id = 1
        # The snapshot first: of what it covers, the log need not be read. Should the log be
        # trimmed behind a newer one in between, that shows, and another view is taken.
        snapshot = load_snapshot(disk, directory, [])
        known = {} if snapshot is None else covered_logs(directory, snapshot)
        report = look(disk, wal_directory, covered=known)
        if report.refusals:
            report = look_until_settled(disk, wal_directory, covered=known)
        report.raise_if_refused()
        _refuse_unfinished(report.shards)
        self._follower = LogFollower(disk, wal_directory, report.shards)
        covered = self._from_snapshot(snapshot, report.shards)
        self._take_in(replay(disk, report.shards, covered), covered)

    def follower(self) -> LogFollower:
        """A follower of its own for somebody else, who goes on where this view is now."""
        return copy.deepcopy(self._follower)

    @property
    def position(self) -> object:
        """Equal for two views when nothing was written to the log between them."""
        return self._follower.position

    def topics(self) -> Iterator[LoggedTopic]:
        """By name."""
        return (self._by_name[name] for name in sorted(self._by_name))

    def find(self, name: str) -> LoggedTopic | None:
        return self._by_name.get(name)

    def follow(self) -> bool:
        """Take in what was written since. False when that was nothing."""
        groups = self._follower.poll()
        self._take_in(iter(groups), {})
        return bool(groups)

    def _from_snapshot(
        self, snapshot: Snapshot | None, shards: list[ShardSurvey]
    ) -> dict[PurePath, int]:
        covered: dict[PurePath, int] = {}
        if snapshot is not None:
            covered = covered_frames(self.directory, snapshot, shards)
            self._epochs.update(snapshot.epochs)
            self._next_topic_id = snapshot.next_topic_id
            for meta in snapshot.topics:
                self._add(LoggedTopic.from_meta(meta))
        for shard in shards:
            ended = covered.get(shard.directory, 0)
            if shard.files and shard.files[0].number > ended + 1:
                raise DamageError(
                    f"the log begins at frame {shard.files[0].number}, but the newest readable "
                    f"snapshot ends at frame {ended}",
                    path=shard.directory,
                    advice="restore the missing snapshot or a backup",
                )
        return covered

    def _take_in(self, groups: Iterator[Group], covered: dict[PurePath, int]) -> None:
        for entry in replay_rows(groups, covered, records=True):
            if isinstance(entry, RecordRows):
                topic = self._by_id.get(entry.topic_id)
                if topic is not None:
                    topic.append(entry)
            else:
                self._apply(entry)

    def _apply(self, frame: Frame) -> None:
        try:
            if frame.type is FrameType.CHECKPOINT_MARK:
                for entry in decode_checkpoint_mark(frame):
                    topic = self._by_id.get(entry.topic_id)
                    if topic is not None:
                        topic.absorbed(entry)
                return
            if frame.type is FrameType.TOPIC_CREATE:
                self._created(frame)
                return
            topic, apply = self._by_id.get(frame.topic_id), _APPLY.get(frame.type)
            if topic is not None and frame.type is FrameType.TOPIC_DELETE:
                self._forget(topic)
            elif topic is not None and apply is not None:
                apply(topic, frame)
        except UnknownFrameError as error:
            raise NewerFormatError(error.reason, path=self.directory) from error

    def _created(self, frame: Frame) -> None:
        if frame.topic_id in self._by_id:
            return
        body = decode_body(frame, TopicCreated)
        older = self._by_name.get(body.name)
        newest = self._epochs.get(body.name, 0) if older is None else older.epoch
        if frame.topic_id < self._next_topic_id and newest >= body.epoch:
            return  # dropped since, and the snapshot knows it
        if older is not None:
            self._forget(older)
        settings = stored_settings(body.settings)
        self._add(LoggedTopic(frame.topic_id, body.name, body.epoch, settings))

    def _add(self, topic: LoggedTopic) -> None:
        self._by_id[topic.topic_id] = topic
        self._by_name[topic.name] = topic
        self._next_topic_id = max(self._next_topic_id, topic.topic_id + 1)
        self._epochs.pop(topic.name, None)

    def _forget(self, topic: LoggedTopic) -> None:
        del self._by_id[topic.topic_id]
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        self._epochs[topic.name] = topic.epoch


def _refuse_unfinished(shards: Iterable[ShardSurvey]) -> None:
    """Only the last file of a shard can be in the middle of a write."""
    for shard in shards:
        for scan in shard.files[:-1]:
            if scan.verdict is not Verdict.CLEAN:
                raise SegmentChangedError(f"{scan.path} was changed while it was being read")


def _floors(topic: LoggedTopic, frame: Frame) -> None:
    evict_floor, earliest_seq, reason = decode_evict_watermark(frame)
    topic.lose_below(evict_floor, earliest_seq, Loss(reason))


_APPLY: Final[dict[FrameType, Callable[[LoggedTopic, Frame], None]]] = {
    FrameType.CONFIG_UPDATE: lambda topic, frame: topic.reconfigure(
        decode_body(frame, SettingsChanged)
    ),
    FrameType.DELETE: lambda topic, frame: topic.delete(decode_body(frame, RecordsDeleted)),
    FrameType.EVICT_WATERMARK: _floors,
}
