"""Partitions of Kafka topics in a data directory, read from the files of the shared log.

Their names are `kafka:TOPIC:PARTITION`, and a record's seq is its offset plus one, as at every
other door. This is what the driver sees; what a task does with its slices is in `kafka_reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, TypeVar

import numpy

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import DataLossError
from headwater.disk import Disk, PosixDisk
from headwater.format.kafka.names import KAFKA_DIRECTORY, parse_partition_name, partition_name
from headwater.recovery.history.kafka import first_offset
from headwater.recovery.kafka.topics import SeenTopic
from headwater.recovery.kafka.view import KafkaView, OwnedBatches, SeenSegment
from headwater.spark.source.batch_assembler import LostSeqs
from headwater.spark.source.directory import MAY_PASS, Tries
from headwater.spark.source.filters import Filters
from headwater.spark.source.kafka_batches import between, first_not_older
from headwater.spark.source.location import TopicFacts

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
class KafkaSnapshot:
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

    def gap(self, facts: TopicFacts, cursor: int) -> LostSeqs | None:
        return facts.gap_after(cursor)

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
