"""Kafka's shared log as a location to read from, alone or beside the other topics of its directory.

Partitions are called `kafka:TOPIC:PARTITION`, and a record's seq is its offset plus one, as at
every other door.

A task is sent where the batches were. First it reads from the log what became of the topics since:
what was deleted, or is before a log start that moved on, is reported as lost and never read. When a
file is gone or a batch is not what it was, it locates the rest of its seqs again, behind the last
one it has given out. So every seq is given once or reported as lost (I6, I8, I9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final, TypeVar

import numpy

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import DataLossError, StorageError
from headwater.core.limits import PARTITION_PREFIX
from headwater.disk import Disk, PosixDisk
from headwater.format.kafka.batch import BatchError
from headwater.format.kafka.mapping import BatchFrames
from headwater.format.kafka.names import KAFKA_DIRECTORY, parse_partition_name, partition_name
from headwater.model.loss import Loss
from headwater.recovery.history.kafka import first_offset
from headwater.recovery.kafka.view import KafkaView, OwnedBatches, SeenSegment, scan_topics
from headwater.recovery.kafka.walk import SeenTopic, SeenTopics
from headwater.spark.source.directory import MAY_PASS, Tries
from headwater.spark.source.directory_location import DirectoryLocation, DirectorySnapshot
from headwater.spark.source.filters import Filters
from headwater.spark.source.kafka_batches import (
    StoredBatch,
    between,
    first_not_older,
    stored_batches,
)
from headwater.spark.source.location import (
    DROPPED,
    RECREATED,
    LocationSnapshot,
    LostSeqs,
    ReadContext,
    SentLocation,
    TopicFacts,
)
from headwater.wire.frame_rows import FrameRows, RecordColumns

T = TypeVar("T")

LOG_START: Final = "log_start"
"""Why records are gone: retention or DeleteRecords moved the start of the log."""


@dataclass(frozen=True, slots=True)
class KafkaSlice:
    """Seqs of a partition, and the batches that hold them."""

    topic: str
    epoch: int
    first_seq: int
    last_seq: int
    batches: OwnedBatches = field(repr=False)

    @property
    def rows(self) -> int:
        return self.last_seq - self.first_seq + 1

    @property
    def size(self) -> int:
        return int(self.batches.entries["length"].sum(dtype=numpy.int64))


class KafkaDirectory:
    """The shared log of a data directory beside its owner, as one organisation sees it."""

    def __init__(
        self,
        path: str,
        organisation: int,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = PurePath(path) / KAFKA_DIRECTORY
        self.organisation = organisation
        self.disk = disk or PosixDisk()
        self.clock = clock or SystemClock()
        self._known: dict[int, SeenSegment] = {}
        self.position: object = None
        """How far the log reached when it was last read."""

    def now(self, work: Callable[[KafkaView], T]) -> T:
        """Do this on a view taken now; on a newer one when files change underneath, some times."""
        tries = Tries(self)
        while True:
            try:
                return work(self.view())
            except DataLossError:
                raise
            except MAY_PASS as error:
                tries.failed(error, self.position)

    def view(self) -> KafkaView:
        view = KafkaView(self.disk, self.path, self._known)
        self.position = view.position
        return view

    def find(self, view: KafkaView, name: str) -> tuple[SeenTopic, int] | None:
        """The topic and the number of the partition with this name."""
        spot = parse_partition_name(name)
        topic = None if spot is None else view.topics.find(self.organisation, spot[0])
        if spot is None or topic is None or spot[1] >= len(topic.partitions):
            return None
        return topic, spot[1]


def epoch_of(topic: SeenTopic) -> int:
    """The epoch of a topic: differs from that of an earlier topic of its name, as a server's
    does."""
    return topic.made_id + 1


@dataclass(slots=True)
class KafkaSnapshot(LocationSnapshot):
    directory: KafkaDirectory
    view: KafkaView
    rows_max: int
    bytes_max: int
    _batches: dict[str, OwnedBatches] = field(default_factory=dict)

    def names(self) -> list[str]:
        return sorted(
            partition_name(topic.name, index)
            for topic in self.view.topics
            if topic.org == self.directory.organisation
            for index in range(len(topic.partitions))
        )

    def facts(self, name: str) -> TopicFacts | None:
        known = self.directory.find(self.view, name)
        if known is None:
            return None
        topic, index = known
        batches = self._batches[name] = self.view.batches(topic, index)
        partition = topic.partitions[index]
        head = batches.end_offset if len(batches.counts) else partition.dropped
        start = first_offset(partition.log_start, partition.dropped, head)
        return TopicFacts(name, epoch_of(topic), start + 1, head, start + 1, LOG_START)

    def slices(
        self, facts: TopicFacts, first_seq: int, last_seq: int, filters: Filters
    ) -> list[KafkaSlice]:
        low = max(first_seq, facts.first_seq, filters.seq.low)
        high = min(last_seq, facts.head_seq, filters.seq.high)
        if low > high:
            return []
        batches = between(self._batches[facts.topic], low, high)
        slices = []
        for some in self._portions(batches):
            first = max(low, int(some.offsets[0]) + 1)
            last = min(high, some.end_offset)
            if filters.seq.meets(first, last):
                slices.append(KafkaSlice(facts.topic, facts.epoch, first, last, some))
        return slices

    def seq_at(self, facts: TopicFacts, ts_us: int, *, tolerant: bool = False) -> int:
        first = facts.first_seq
        batches = between(self._batches[facts.topic], first, facts.head_seq)
        where = self.directory.disk, self.directory.path
        seq = first_not_older(*where, batches, first, ts_us, tolerant=tolerant)
        return facts.head_seq + 1 if seq is None else seq

    def _portions(self, batches: OwnedBatches) -> Iterator[OwnedBatches]:
        """Whole batches in as few portions as the bounds allow, all about equally large."""
        rows = batches.counts
        sizes = batches.entries["length"].astype(numpy.int64)
        by_rows, by_size = (
            -(-int(rows.sum()) // self.rows_max),
            -(-int(sizes.sum()) // self.bytes_max),
        )
        weights, count = (rows, by_rows) if by_rows >= by_size else (sizes, by_size)
        before = numpy.cumsum(weights) - weights
        portion = before * count // max(int(weights.sum()), 1)
        borders = (numpy.flatnonzero(numpy.diff(portion)) + 1).tolist()
        for low, high in zip([0, *borders], [*borders, len(rows)], strict=True):
            yield OwnedBatches(*(column[low:high] for column in batches))


def read_slices(
    directory: KafkaDirectory, slices: list[KafkaSlice], context: ReadContext
) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
    try:
        topics = scan_topics(directory.disk, directory.path)
    except MAY_PASS:  # files were changed just now, or a crash left something behind
        topics = directory.now(lambda view: view.topics)
    for each in slices:
        for rows in KafkaSliceReader(directory, each, context).read(topics):
            yield each.topic, rows


class KafkaSliceReader:
    """One slice, read to its end whatever its owner does meanwhile."""

    def __init__(self, directory: KafkaDirectory, wanted: KafkaSlice, context: ReadContext) -> None:
        self._directory = directory
        self._slice = wanted
        self._context = context
        self._batches = wanted.batches
        self._at = wanted.first_seq
        """The next seq to be dealt with."""
        self._tolerant = False

    def read(self, topics: SeenTopics) -> Iterator[RecordColumns | LostSeqs]:
        tries = Tries(self._directory)
        yield from self._lost(topics)
        while self._at <= self._slice.last_seq:
            try:
                yield from self._read_batches()
                return
            except MAY_PASS as error:
                self._failed(error, tries)
            yield from self._locate_again()

    def _lost(self, topics: SeenTopics) -> Iterator[LostSeqs]:
        """What went since the slice was planned."""
        at, last = self._at, self._slice.last_seq
        spot = parse_partition_name(self._slice.topic)
        assert spot is not None, "its name was understood when it was planned"
        topic = topics.find(self._directory.organisation, spot[0])
        if topic is None or epoch_of(topic) != self._slice.epoch:
            self._at = last + 1
            yield LostSeqs(at, last, DROPPED if topic is None else RECREATED, last - at + 1)
            return
        start = topic.partitions[spot[1]].log_start
        if start >= at:
            upto = min(start, last)
            self._at = upto + 1
            yield LostSeqs(at, upto, LOG_START, upto - at + 1)

    def _locate_again(self) -> Iterator[LostSeqs]:
        """Find where the rest of the seqs is by now."""
        topics, self._batches = self._directory.now(self._where_now)
        yield from self._lost(topics)

    def _where_now(self, view: KafkaView) -> tuple[SeenTopics, OwnedBatches]:
        partition = self._directory.find(view, self._slice.topic)
        if partition is None:
            return view.topics, self._batches
        return view.topics, between(view.batches(*partition), self._at, self._slice.last_seq)

    def _read_batches(self) -> Iterator[RecordColumns | LostSeqs]:
        wanted = between(self._batches, self._at, self._slice.last_seq)
        frames, size = self._frames(), 0
        directory = self._directory
        for stored in stored_batches(directory.disk, directory.path, wanted):
            bad: StorageError | None = None
            try:
                skipped = not self._take(stored, frames)
            except StorageError as error:
                bad, skipped = error, True
            size += len(stored.bytes)
            limits = self._context.batch_rows_max, self._context.batch_bytes_max
            if skipped or len(frames) >= limits[0] or size >= limits[1]:
                yield from self._given(frames)
                if bad is not None:
                    yield self._damage_gap(stored, bad)
                self._at = min(stored.last_seq, self._slice.last_seq) + 1
                frames, size = self._frames(), 0
        yield from self._given(frames)
        at, last = self._at, self._slice.last_seq
        if at <= last:  # the log ends before them: an older copy, or a crash took them
            self._at = last + 1
            yield LostSeqs(at, last, Loss.LOST_TAIL.word, last - at + 1)

    def _frames(self) -> BatchFrames:
        return BatchFrames(self._at - 1, max(self._slice.last_seq - self._at + 1, 0))

    def _given(self, frames: BatchFrames) -> Iterator[RecordColumns]:
        if len(frames):
            made = frames.frames()
            yield FrameRows.of_log(memoryview(made.buffer), numpy.array(made.offsets, numpy.int64))
            self._at = frames.next_offset + 1

    def _take(self, stored: StoredBatch, frames: BatchFrames) -> bool:
        """The records of a batch to the frames; False when no filter could pass one of them."""
        filters = self._context.filters
        if not filters.seq.meets(stored.first_seq, stored.last_seq):
            return False
        # The times in its header are the producer's word; the server has not checked them.
        _, batch = stored.sound(verify=self._context.verify)
        try:
            frames.add(batch, stored.first_seq - 1)
        except BatchError as error:
            raise stored.unreadable(error) from error
        return True

    def _damage_gap(self, stored: StoredBatch, error: StorageError) -> LostSeqs:
        if not self._tolerant:
            raise error
        first, last = max(stored.first_seq, self._at), min(stored.last_seq, self._slice.last_seq)
        return LostSeqs(first, last, f"damaged: {error}", last - first + 1)

    def _failed(self, error: Exception, tries: Tries) -> None:
        try:
            tries.failed(error, self._directory.position)
        except StorageError:
            if self._context.fail_on_data_loss or self._tolerant:
                raise
            self._tolerant = True  # it is there to stay: reported as a gap, and the rest is read


@dataclass
class KafkaLocation(SentLocation):
    path: str
    organisation: int
    rows_max: int
    bytes_max: int

    @cached_property
    def directory(self) -> KafkaDirectory:
        return KafkaDirectory(self.path, self.organisation)

    def now(self, work: Callable[[KafkaSnapshot], T]) -> T:
        directory = self.directory
        return directory.now(
            lambda view: work(KafkaSnapshot(directory, view, self.rows_max, self.bytes_max))
        )

    def read(
        self, slices: list[KafkaSlice], context: ReadContext
    ) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
        return read_slices(self.directory, slices, context)


@dataclass(slots=True)
class MixedSnapshot(LocationSnapshot):
    """Each name is looked up where it belongs."""

    topics: DirectorySnapshot
    partitions: KafkaSnapshot

    def names(self) -> list[str]:
        return [*self.topics.names(), *self.partitions.names()]

    def facts(self, name: str) -> TopicFacts | None:
        return self._of(name).facts(name)

    def slices(
        self, facts: TopicFacts, first_seq: int, last_seq: int, filters: Filters
    ) -> list[Any]:
        return self._of(facts.topic).slices(facts, first_seq, last_seq, filters)

    def gap(self, facts: TopicFacts, cursor: int) -> LostSeqs | None:
        return self._of(facts.topic).gap(facts, cursor)

    def seq_at(self, facts: TopicFacts, ts_us: int, *, tolerant: bool = False) -> int:
        return self._of(facts.topic).seq_at(facts, ts_us, tolerant=tolerant)

    def _of(self, name: str) -> LocationSnapshot:
        return self.partitions if is_partition(name) else self.topics


@dataclass(slots=True)
class MixedLocation:
    """Topics and partitions of one data directory in one query."""

    topics: DirectoryLocation
    partitions: KafkaLocation

    def now(self, work: Callable[[MixedSnapshot], T]) -> T:
        return self.partitions.now(
            lambda partitions: self.topics.now(
                lambda topics: work(MixedSnapshot(topics, partitions))
            )
        )

    def read(
        self, slices: list[Any], context: ReadContext
    ) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
        own = [each for each in slices if isinstance(each, KafkaSlice)]
        others = [each for each in slices if not isinstance(each, KafkaSlice)]
        if others:
            yield from self.topics.read(others, context)
        if own:
            yield from self.partitions.read(own, context)


def is_partition(name: str) -> bool:
    """True for the name of a partition, and for a pattern that only partitions can fit."""
    return name.startswith(PARTITION_PREFIX)
