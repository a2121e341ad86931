"""A data directory at one moment, on the driver: topics, floors, and slices for tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy

from headwater.format.segment import Entries
from headwater.recovery.topics.follower import LogFollower
from headwater.spark.source.batch_assembler import LostSeqs
from headwater.spark.source.deletions import deleted_rows
from headwater.spark.source.directory import Directory
from headwater.spark.source.filters import Filters
from headwater.spark.source.location import ReadContext, TopicFacts
from headwater.spark.source.log_view import LogView, TopicLogView
from headwater.spark.source.retention import Slots, evicted, has_retention
from headwater.spark.source.split_reader import read_split
from headwater.spark.source.splits import (
    DirectorySlice,
    LogSplit,
    LostSplit,
    SegmentSplit,
    Split,
    clip,
    portions,
)
from headwater.wire.frame_rows import FrameRows, Mask


@dataclass(slots=True)
class DirectorySnapshot:
    directory: Directory
    view: LogView
    rows_max: int
    bytes_max: int
    _splits: dict[str, list[Split]] = field(default_factory=dict)
    _copied: LogFollower | None = None

    def names(self) -> list[str]:
        return [topic.name for topic in self.view.topics()]

    def facts(self, name: str) -> TopicFacts | None:
        topic = self.view.find(name)
        if topic is None:
            return None
        first, floor, losses = topic.first_seq, topic.stored.evict_floor, topic.losses
        if has_retention(topic.settings) and topic.head_seq >= first:
            now_ms = self.directory.clock.wall_ms()
            gone = evicted(topic, self._slots(topic), now_ms)
            if gone is not None:
                first, floor = max(first, gone.first_seq), max(floor, gone.evict_floor)
                losses |= gone.reason
        return TopicFacts(name, topic.epoch, first, topic.head_seq, floor, losses.word)

    def slices(
        self, facts: TopicFacts, first_seq: int, last_seq: int, filters: Filters
    ) -> list[DirectorySlice]:
        topic = self.view.find(facts.topic)
        assert topic is not None, "facts are of this snapshot"
        low = max(first_seq, facts.first_seq, filters.seq.low)
        high = min(last_seq, facts.head_seq, filters.seq.high)
        kept = [
            split
            for split in clip(self._splits_of(topic), low, high)
            if self._may_pass(topic, split, filters)
        ]
        deletions = [each for each in topic.deletions if each.last_seq >= low]
        return [
            DirectorySlice(
                topic.name,
                topic.topic_id,
                topic.epoch,
                some[0].first_seq,
                some[-1].last_seq,
                some,
                deletions,
                self._follower(),
            )
            for some in portions(kept, self.rows_max, self.bytes_max)
        ]

    def gap(self, facts: TopicFacts, cursor: int) -> LostSeqs | None:
        return facts.gap_after(cursor)

    def seq_at(self, facts: TopicFacts, ts_us: int, *, tolerant: bool = False) -> int:
        topic = self.view.find(facts.topic)
        assert topic is not None, "facts are of this snapshot"
        for slots in self._slots(topic):
            young = numpy.flatnonzero(slots.entries["ts"].astype(numpy.int64) * 1_000 >= ts_us)
            if len(young):
                return max(slots.first_seq + int(young[0]), facts.first_seq)
        return facts.head_seq + 1

    def _may_pass(self, topic: TopicLogView, split: Split, filters: Filters) -> bool:
        if not filters.seq.meets(split.first_seq, split.last_seq):
            return False
        if isinstance(split, LostSplit) or not filters.has_times:
            return True
        times = self._entries(topic, split)["ts"].astype(numpy.int64) * 1_000
        return filters.ts_us.meets(int(times.min()), int(times.max()))

    def _follower(self) -> LogFollower:
        """One for all slices of this snapshot: each task gets a copy of its own when it is sent."""
        if self._copied is None:
            self._copied = self.view.follower()
        return self._copied

    def _splits_of(self, topic: TopicLogView) -> list[Split]:
        if topic.name not in self._splits:
            self._splits[topic.name] = self.directory.splits(self.view, topic)
        return self._splits[topic.name]

    def _slots(self, topic: TopicLogView) -> Iterator[Slots]:
        for split in self._splits_of(topic):
            if not isinstance(split, LostSplit):
                entries = self._entries(topic, split)
                yield Slots(split.first_seq, entries, self._deleted(topic, split, entries))

    def _entries(self, topic: TopicLogView, split: SegmentSplit | LogSplit) -> Entries:
        if isinstance(split, SegmentSplit):
            first = split.segment.first_seq
            entries = self.directory.files_of(topic.topic_id).index(split.segment)
            return entries[split.first_seq - first : split.last_seq - first + 1]
        run = next(run for run in topic.runs if run.seqs[0] <= split.first_seq <= run.seqs[-1])
        low = split.first_seq - int(run.seqs[0])
        return run.part(low, low + len(split.offsets)).entries()

    def _deleted(
        self, topic: TopicLogView, split: SegmentSplit | LogSplit, entries: Entries
    ) -> Mask | None:
        """Deletes by tag that the entries do not show: only those cost reading frames."""
        meant = [each for each in topic.deletions if each.last_seq >= split.first_seq]
        if not meant:
            return None
        deleted: Mask = numpy.zeros(len(entries), numpy.bool_)
        context = ReadContext(Filters(), verify=False, fail_on_data_loss=True)
        for each in read_split(self.directory, topic.topic_id, split, context, tolerant=True):
            if isinstance(each.what, FrameRows):
                by_frames = deleted_rows(each.what, meant)
                if by_frames is not None:
                    deleted[each.what.seqs[by_frames] - split.first_seq] = True
        return deleted
