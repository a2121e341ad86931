"""A data directory as its snapshot and its log tell it, without a look at a single segment.

For each topic: which seqs there are, the floors, how far segments reach, the records that are
only in the log, and the deletes that segments may not know of yet. What is in segments is read by
those who need it, so a topic with a hundred million records costs here what an empty one does.

Read beside a living owner, as `headwater.engine.read_only` does it: nothing is locked or changed,
and whatever cannot be explained by writing alone is an error that says "look again".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from headwater.config.topic import TopicSettings, stored_settings
from headwater.core.errors import NewerFormatError, RequestError
from headwater.disk import Disk
from headwater.format.control_frames import TopicCreated
from headwater.format.frame import Frame, FrameType, UnknownFrameError
from headwater.format.names import WAL_DIRECTORY
from headwater.format.snapshot import Snapshot, TopicMeta
from headwater.model.loss import Loss
from headwater.model.match import TagMatcher
from headwater.recovery.history.contents import CONTENT_FRAMES, ContentSink, Deletion, TopicHistory
from headwater.recovery.history.topics import TABLE_FRAMES, TopicFold, TopicSink, TopicTable
from headwater.recovery.topics.follower import LogFollower
from headwater.recovery.topics.replay import FrameGroup, RecordRows, replay, replay_rows
from headwater.recovery.topics.report import inspect_until_stable, inspect_wal, refuse_unfinished
from headwater.recovery.topics.snapshots import (
    covered_frames,
    covered_logs,
    load_snapshot,
    refuse_missing_frames,
)
from headwater.recovery.topics.stored_topic import StoredTopic
from headwater.recovery.topics.survey import ShardSurvey

_WANTED: Final = (TABLE_FRAMES | CONTENT_FRAMES) - {
    FrameType.HEAD_WATERMARK,
    FrameType.IDEMPOTENCY,
    FrameType.LEASE,
}
"""What only an owner needs is left out: it hands out seqs, keys and jobs."""


@dataclass(slots=True)
class TopicLogView(ContentSink[RecordRows]):
    topic_id: int
    name: str
    epoch: int
    settings: TopicSettings
    stored: StoredTopic = field(default_factory=StoredTopic)
    """How far segments reach, and the floors."""
    head_seq: int = 0
    """The last seq that has, or had, a record in log or segments."""
    checkpointed_seq: int = 0
    """Everything up to here is in segments."""
    reach: dict[TagMatcher, int] = field(default_factory=dict)
    """Deletes by tag, each with the last seq it was about; segments may not know them yet."""
    done: list[int] = field(default_factory=list)
    """Jobs that were done; segments may not know it yet."""
    runs: list[RecordRows] = field(default_factory=list)
    """Records behind the checkpoint, in seq order; within a run there is no gap."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Seqs behind the checkpoint that a crash took: they were never in the log."""
    history: TopicHistory[RecordRows] = field(init=False)

    def __post_init__(self) -> None:
        self.history = TopicHistory(self)

    @classmethod
    def from_meta(cls, meta: TopicMeta) -> TopicLogView:
        settings, stored = stored_settings(meta.settings), StoredTopic.from_meta(meta)
        topic = cls(meta.topic_id, meta.name, meta.epoch, settings, stored)
        topic.head_seq = topic.checkpointed_seq = meta.checkpointed_seq
        return topic

    @property
    def first_seq(self) -> int:
        """Everything below is gone: deleted or lost. Dead records may still be at the front."""
        return self.stored.first_needed

    @property
    def losses(self) -> Loss:
        return Loss(self.stored.losses)

    @property
    def deletions(self) -> list[Deletion]:
        deletions = [Deletion(last_seq, matcher) for matcher, last_seq in self.reach.items()]
        if self.done:
            deletions.append(Deletion(max(self.done), None, tuple(self.done)))
        return deletions

    def checkpointed(self) -> None:
        """Everything up to `checkpointed_seq` is read from segments from now on."""
        upto = self.checkpointed_seq
        self.head_seq = max(self.head_seq, upto)
        self.lost = [(max(low, upto + 1), high) for low, high in self.lost if high > upto]
        self.runs = [
            run.since(max(upto + 1 - int(run.seqs[0]), 0))
            for run in self.runs
            if int(run.seqs[-1]) > upto
        ]

    # -- what the log says of it; the numbers are read from it as well

    def append(self, rows: RecordRows, start: int, end: int) -> None:
        self.runs.append(rows.part(start, end))
        self.head_seq = int(rows.seqs[end - 1])

    def fill(self, upto_seq: int, ts: int, *, lost: bool) -> None:
        if lost:
            self.lost.append((self.head_seq + 1, upto_seq))
        self.head_seq = upto_seq

    def delete_before(self, seq: int) -> None:
        self.stored.delete_before(seq)

    def delete(self, deletion: Deletion) -> None:
        if deletion.matcher is None:
            self.done += deletion.seqs
        else:
            known = self.reach.get(deletion.matcher, 0)
            self.reach[deletion.matcher] = max(deletion.last_seq, known)

    def reconfigure(self, settings: TopicSettings) -> None:
        self.settings = settings

    def evict(self, evict_floor: int, earliest_seq: int, losses: Loss) -> None:
        self.stored.evict(evict_floor, earliest_seq, losses)


class LogView(TopicSink[TopicLogView]):
    """Topics as of now; `follow` takes in what was written since."""

    def __init__(self, disk: Disk, directory: PurePath) -> None:
        wal_directory = directory / WAL_DIRECTORY
        if not disk.is_directory(wal_directory):
            raise RequestError(
                f"{directory} is not a Headwater data directory: there is no {WAL_DIRECTORY}/ in it"
            )
        self.directory = directory
        self._table: TopicTable[TopicLogView] = TopicTable()
        self._fold = TopicFold(self._table, self)
        # The snapshot first: of what it covers, the log need not be read. Should the log be
        # trimmed behind a newer one in between, that shows, and another view is taken.
        snapshot = load_snapshot(disk, directory, [])
        known = {} if snapshot is None else covered_logs(directory, snapshot)
        report = inspect_wal(disk, wal_directory, covered=known)
        if report.refusals:
            report = inspect_until_stable(disk, wal_directory, covered=known)
        report.raise_if_refused()
        refuse_unfinished(report.shards)
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

    def topics(self) -> Iterator[TopicLogView]:
        """By name."""
        return iter(sorted(self._table, key=lambda topic: topic.name))

    def find(self, name: str) -> TopicLogView | None:
        return self._table.find(name)

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
            self._table.begin(snapshot, TopicLogView.from_meta)
        refuse_missing_frames(shards, covered)
        return covered

    def _take_in(self, groups: Iterator[FrameGroup], covered: dict[PurePath, int]) -> None:
        for entry in replay_rows(groups, covered, _WANTED):
            topic = self._table.by_id(entry.topic_id)
            if not isinstance(entry, RecordRows):
                self._apply(entry, topic)
            elif topic is not None:
                topic.history.append(entry)

    def _apply(self, frame: Frame, topic: TopicLogView | None) -> None:
        try:
            if topic is None or not topic.history.apply(frame):
                self._fold.take(frame)
        except UnknownFrameError as error:
            raise NewerFormatError(error.reason, path=self.directory) from error

    def make(self, topic_id: int, body: TopicCreated) -> TopicLogView:
        return TopicLogView(topic_id, body.name, body.epoch, stored_settings(body.settings))

    def moved(self, topic: TopicLogView) -> None:
        topic.checkpointed()
