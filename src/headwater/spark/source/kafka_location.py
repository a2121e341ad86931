"""Kafka's shared log as a location to read from, alone or beside the other topics of its
directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headwater.core.limits import PARTITION_PREFIX
from headwater.spark.source.batch_assembler import LostSeqs
from headwater.spark.source.directory_location import DirectoryLocation
from headwater.spark.source.directory_snapshot import DirectorySnapshot
from headwater.spark.source.filters import Filters
from headwater.spark.source.kafka_slice_reader import read_slices
from headwater.spark.source.kafka_snapshot import KafkaDirectory, KafkaSlice, KafkaSnapshot
from headwater.spark.source.location import LocationSnapshot, ReadContext, TopicFacts
from headwater.wire.frame_rows import RecordColumns

T = TypeVar("T")


@dataclass(slots=True)
class KafkaLocation:
    path: str
    organisation: int
    rows_max: int
    bytes_max: int
    _directory: KafkaDirectory | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> tuple[Any, ...]:
        """What was seen stays in the process that saw it."""
        return self.path, self.organisation, self.rows_max, self.bytes_max

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.path, self.organisation, self.rows_max, self.bytes_max = state
        self._directory = None

    @property
    def directory(self) -> KafkaDirectory:
        if self._directory is None:
            self._directory = KafkaDirectory(self.path, self.organisation)
        return self._directory

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
class MixedSnapshot:
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
