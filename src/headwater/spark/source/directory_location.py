"""A data directory as a location to read from.

A task is sent where its records were. It first reads from the log what was deleted since, then
reads split by split; when a file is gone or has changed it takes a view of its own, locates the
rest of its seqs, and goes on behind the last one it has given out. So every seq is given once or
reported as lost, from whichever file has it by then (I6, I8, I9).

An owner writes its floors down about once a second, and a stopped one not at all, while records go
on growing older. So a reader of the files applies caps and ages first, as an owner does, worked out
from index entries alone (`evicted`). Only topics that have a cap or an age cost anything here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy
from numpy.typing import NDArray

from headwater.config.topic import Discard, TopicSettings
from headwater.core.errors import DamageError
from headwater.format.segment import SEGMENT_FRAME_BYTES_MIN, Entries, IndexFlag, index_flags
from headwater.model.loss import Loss
from headwater.recovery.history.contents import Deletion
from headwater.recovery.topics.follower import LogFollower
from headwater.spark.source.deletions import Changes, changes_since, deleted_rows, newest
from headwater.spark.source.directory import MAY_PASS, Directory, Tries
from headwater.spark.source.filters import Filters
from headwater.spark.source.location import (
    DROPPED,
    DirectorySlice,
    LocationSnapshot,
    LogSplit,
    LostSeqs,
    LostSplit,
    ReadContext,
    SegmentSplit,
    SentLocation,
    Split,
    TopicFacts,
    clip,
    portions,
)
from headwater.spark.source.log_view import LogView, TopicLogView
from headwater.spark.source.split_reader import read_split
from headwater.wire.frame_rows import FrameRows, Mask, RecordColumns

_DEAD = int(IndexFlag.DELETED)


@dataclass(frozen=True, slots=True)
class Slots:
    """Index entries of neighbouring seqs, and which of them are deleted beyond what they say."""

    first_seq: int
    entries: Entries
    deleted: NDArray[numpy.bool_] | None = None

    def live(self) -> NDArray[numpy.int64]:
        """Positions of live records."""
        alive = index_flags(self.entries) & _DEAD == 0
        if self.deleted is not None:
            alive &= ~self.deleted
        return numpy.flatnonzero(alive)


@dataclass(frozen=True, slots=True)
class Evicted:
    """A prefix that is gone: the first seq that was not lost, the first that is kept, and why."""

    evict_floor: int
    first_seq: int
    reason: Loss


def has_retention(settings: TopicSettings) -> bool:
    return bool(settings.ttl_ms) or _has_caps(settings)


def _has_caps(settings: TopicSettings) -> bool:
    caps = settings.cap_records or settings.cap_bytes
    return bool(caps) and settings.discard is Discard.OLD


def evicted(topic: TopicLogView, slots: Iterable[Slots], now_ms: int) -> Evicted | None:
    """What caps and age take of these slots, which are all of the topic's, in order."""
    settings = topic.settings
    live = _live(slots)
    by_age: Evicted | None = None
    first_kept: tuple[Slots, int] | None = None
    if settings.ttl_ms:
        by_age, first_kept = _by_age(live, topic.head_seq + 1, now_ms - settings.ttl_ms)
    if _has_caps(settings):
        by_cap = _by_cap(live, first_kept, topic.head_seq + 1, settings)
        if by_cap is not None:
            reason = by_cap.reason if by_age is None else by_cap.reason | by_age.reason
            return Evicted(by_cap.evict_floor, by_cap.first_seq, reason)
    return by_age


def _live(slots: Iterable[Slots]) -> Iterator[tuple[Slots, NDArray[numpy.int64]]]:
    for some in slots:
        positions = some.live()
        if len(positions):
            yield some, positions


def _by_age(
    live: Iterator[tuple[Slots, NDArray[numpy.int64]]], end_seq: int, cutoff_ms: int
) -> tuple[Evicted | None, tuple[Slots, int] | None]:
    """Only a prefix expires: a record behind a younger one waits for it, whatever its own time."""
    last_old = 0
    cutoff = numpy.uint64(max(cutoff_ms, 0))
    for some, positions in live:
        young = positions[some.entries["ts"][positions] >= cutoff]
        if not len(young):
            last_old = some.first_seq + int(positions[-1])
            continue
        kept = int(young[0])
        older = positions[positions < kept]
        if len(older):
            last_old = some.first_seq + int(older[-1])
        gone = Evicted(last_old + 1, some.first_seq + kept, Loss.TTL) if last_old else None
        return gone, (some, kept)
    return (Evicted(last_old + 1, end_seq, Loss.TTL) if last_old else None), None


def _by_cap(
    live: Iterator[tuple[Slots, NDArray[numpy.int64]]],
    first_kept: tuple[Slots, int] | None,
    end_seq: int,
    settings: TopicSettings,
) -> Evicted | None:
    seqs: list[NDArray[numpy.int64]] = []
    sizes: list[NDArray[numpy.int64]] = []
    if first_kept is not None:
        some, kept = first_kept
        positions = some.live()
        _note(some, positions[positions >= kept], seqs, sizes)
    for some, positions in live:
        _note(some, positions, seqs, sizes)
    if not seqs:
        return None
    every, payloads = numpy.concatenate(seqs), numpy.concatenate(sizes)
    over = max(len(every) - settings.cap_records, 0) if settings.cap_records else 0
    if settings.cap_bytes:
        total = numpy.cumsum(payloads)
        too_many = int(total[-1]) - settings.cap_bytes
        if too_many > 0:
            over = max(over, int(numpy.searchsorted(total, too_many)) + 1)
    if not over:
        return None
    first = int(every[over]) if over < len(every) else end_seq
    return Evicted(int(every[over - 1]) + 1, first, Loss.CAP)


def _note(
    some: Slots,
    positions: NDArray[numpy.int64],
    seqs: list[NDArray[numpy.int64]],
    sizes: list[NDArray[numpy.int64]],
) -> None:
    seqs.append(positions + some.first_seq)
    sizes.append(some.entries["len"][positions].astype(numpy.int64) - SEGMENT_FRAME_BYTES_MIN)


@dataclass(slots=True)
class DirectorySnapshot(LocationSnapshot):
    """A data directory at one moment, on the driver: topics, floors, and slices for tasks."""

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


T = TypeVar("T")


@dataclass
class DirectoryLocation(SentLocation):
    path: str
    cold: str | None = field(repr=False)
    rows_max: int
    bytes_max: int

    @cached_property
    def directory(self) -> Directory:
        return Directory(self.path, self.cold)

    def now(self, work: Callable[[DirectorySnapshot], T]) -> T:
        directory = self.directory
        return directory.now(
            lambda view: work(DirectorySnapshot(directory, view, self.rows_max, self.bytes_max))
        )

    def read(
        self, slices: list[DirectorySlice], context: ReadContext
    ) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
        try:
            changes: Changes | None = changes_since(
                slices[0].follower
            )  # all slices of a task have one plan
        except MAY_PASS:
            changes = None  # the log was trimmed or begun anew: every slice takes a view of its own
        for each in slices:
            reader = TopicSliceReader(self.directory, each, context)
            reader.take_in(changes)
            for rows in reader.read():
                yield each.topic, rows


class TopicSliceReader:
    """One slice, read to its end whatever its owner does meanwhile."""

    def __init__(self, directory: Directory, wanted: DirectorySlice, context: ReadContext) -> None:
        self._directory = directory
        self._slice = wanted
        self._context = context
        self._splits = list(wanted.splits)
        self._deletions = list(wanted.deletions)
        self._at = wanted.first_seq
        """The next seq to be dealt with."""
        self._tolerant = False

    def take_in(self, changes: Changes | None) -> None:
        """What was deleted since the slice was made; None when the log does not say any more."""
        wanted = self._slice
        if changes is None:
            self._locate_again()
            return
        if wanted.topic_id in changes.dropped:
            self._splits = [LostSplit(self._at, wanted.last_seq, DROPPED)]
            return
        self._at = max(self._at, changes.below.get(wanted.topic_id, 0))
        self._splits = clip(self._splits, self._at, wanted.last_seq)
        self._deletions = newest([*self._deletions, *changes.deletions.get(wanted.topic_id, ())])

    def read(self) -> Iterator[RecordColumns | LostSeqs]:
        tries = Tries(self._directory)
        while True:
            try:
                yield from self._read_splits()
                return
            except MAY_PASS as error:
                self._failed(error, tries)
                self._locate_again()

    def _read_splits(self) -> Iterator[RecordColumns | LostSeqs]:
        for split in self._splits:
            for result in read_split(
                self._directory,
                self._slice.topic_id,
                split,
                self._context,
                tolerant=self._tolerant,
            ):
                if isinstance(result.what, LostSeqs):
                    yield result.what
                elif result.what is not None:
                    rows = self._undeleted(result.what)
                    if len(rows):
                        yield rows
                self._at = max(self._at, result.upto_seq + 1)

    def _undeleted(self, rows: RecordColumns) -> RecordColumns:
        deleted = deleted_rows(rows, self._deletions)
        return rows if deleted is None else rows.kept(~deleted)

    def _failed(self, error: Exception, tries: Tries) -> None:
        try:
            tries.failed(error, self._directory.position)
        except DamageError:
            if self._context.fail_on_data_loss or self._tolerant:
                raise
            self._tolerant = True  # it is there to stay: reported as a gap, and the rest is read

    def _locate_again(self) -> None:
        """Find where the rest of the seqs are by now."""
        self._splits, self._deletions = self._directory.anew(self._where_now)

    def _where_now(self, view: LogView) -> tuple[list[Split], list[Deletion]]:
        first, last = self._at, self._slice.last_seq
        topic = view.find(self._slice.topic)
        if topic is None or topic.topic_id != self._slice.topic_id:
            return [LostSplit(first, last, DROPPED)], []
        splits = clip(self._directory.splits(view, topic), first, last)
        if first < topic.stored.evict_floor:
            upto = min(topic.first_seq - 1, last)
            splits.insert(0, LostSplit(first, upto, topic.losses.word))
        return splits, topic.deletions
