"""The locations records can be read from, as planning and reading see them.

The planner takes a snapshot of a location (`LocationSnapshot`), which turns ranges of seqs into
slices, and a task reads each slice (`Location.read`). What a slice is made of only its location
knows: which seqs of which topic, and where they were when the query was planned. Where they are is
a hint. Segments are rewritten, moved and dropped and log files are trimmed while a query waits for
its turn, so a task that does not find its files locates the records again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import Any, Final, Protocol, TypeVar

import numpy
from numpy.typing import NDArray

from headwater.core.errors import DataLossError
from headwater.format.segment import SEGMENT_FRAME_BYTES_MIN
from headwater.recovery.history.contents import Deletion
from headwater.recovery.topics.follower import LogFollower
from headwater.spark.source.filters import Filters
from headwater.store.segment import Segment
from headwater.wire.frame_rows import RecordColumns

T = TypeVar("T")

DROPPED: Final = "dropped"
"""The reason of a gap: the topic itself is gone."""
RECREATED: Final = "recreated"
"""It is another topic of the same name."""


@dataclass(frozen=True, slots=True)
class LostSeqs:
    """Records that are lost, both ends included; the end may be unknown."""

    gap_from: int
    gap_to: int | None
    reason: str
    missed_estimate: int | None = None

    def __str__(self) -> str:
        upto = "" if self.gap_to is None else f" to {self.gap_to}"
        return f"seqs {self.gap_from}{upto} ({self.reason})"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic at one moment."""

    topic: str
    epoch: int
    first_seq: int
    """Everything below is gone."""
    head_seq: int
    evict_floor: int = 1
    """The first seq that was not lost: what is gone below it was lost and not deleted."""
    reason: str = ""
    """Why something was lost."""

    def gap_after(self, cursor: int) -> LostSeqs | None:
        """What a reader that has come as far as `cursor` has lost."""
        if cursor + 1 >= self.evict_floor:
            return None
        missed = self.evict_floor - cursor - 1
        return LostSeqs(cursor + 1, self.first_seq - 1, self.reason, missed)


class LocationSnapshot(Protocol):
    """A location at one moment."""

    def names(self) -> list[str]:
        """Of all topics, in order."""

    def facts(self, name: str) -> TopicFacts | None: ...

    def slices(
        self, facts: TopicFacts, first_seq: int, last_seq: int, filters: Filters
    ) -> list[Any]:
        """Where these seqs are, in portions for tasks. What no filter could pass is left out."""

    def gap(self, facts: TopicFacts, cursor: int) -> LostSeqs | None:
        """What a reader that has come as far as `cursor` has lost."""
        return facts.gap_after(cursor)

    def seq_at(self, facts: TopicFacts, ts_us: int, *, tolerant: bool = False) -> int:
        """The first seq whose record is not older; the one after the head when all are.

        `tolerant`: what cannot be read may be it, instead of being an error.
        """


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What every task needs beside its slices."""

    filters: Filters
    verify: bool
    fail_on_data_loss: bool
    batch_rows_max: int = 65_536
    batch_bytes_max: int = 16 * 1024 * 1024


class Location(Protocol):
    def now(self, work: Callable[[LocationSnapshot], T]) -> T:
        """Do this on a snapshot of the location as it is now; several times if it changes
        meanwhile."""

    def read(
        self, slices: list[Any], context: ReadContext
    ) -> Iterator[tuple[str, RecordColumns | LostSeqs]]:
        """On an executor: rows, and the losses between them, each with the name of its topic."""


class SentLocation:
    """Tasks are sent the fields of a location: what was seen stays in the process that saw it."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def data_loss(topic: str, gap: LostSeqs) -> DataLossError:
    return DataLossError(
        f"topic {topic!r} has lost {gap}",
        advice="with failOnDataLoss=false this becomes a row whose column gap describes it",
    )


@dataclass(frozen=True, slots=True)
class SegmentSplit:
    """A stretch of the entries of one segment."""

    segment: Segment
    first_seq: int
    last_seq: int

    @property
    def size(self) -> int:
        """Bytes, about."""
        rows = self.last_seq - self.first_seq + 1
        return self.segment.data_bytes * rows // max(self.segment.count, 1)

    def part(self, first_seq: int, last_seq: int) -> SegmentSplit:
        return replace(self, first_seq=first_seq, last_seq=last_seq)


@dataclass(frozen=True, slots=True)
class LogSplit:
    """Records that lie in one file of the log, one for each seq."""

    path: PurePath
    first_seq: int
    offsets: NDArray[numpy.uint32] = field(repr=False)
    size: int

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.offsets) - 1

    def part(self, first_seq: int, last_seq: int) -> LogSplit:
        offsets = self.offsets[first_seq - self.first_seq : last_seq - self.first_seq + 1]
        size = self.size * len(offsets) // max(len(self.offsets), 1)
        return LogSplit(self.path, first_seq, offsets, size)


@dataclass(frozen=True, slots=True)
class LostSplit:
    """Seqs that should have records and have none."""

    first_seq: int
    last_seq: int
    reason: str
    size: int = 0

    def part(self, first_seq: int, last_seq: int) -> LostSplit:
        return replace(self, first_seq=first_seq, last_seq=last_seq)

    @property
    def gap(self) -> LostSeqs:
        missed = self.last_seq - self.first_seq + 1
        return LostSeqs(self.first_seq, self.last_seq, self.reason, missed)


Split = SegmentSplit | LogSplit | LostSplit


def clip(splits: list[Split], first_seq: int, last_seq: int) -> list[Split]:
    """Only what is between these seqs."""
    return [
        split
        if first_seq <= split.first_seq and split.last_seq <= last_seq
        else split.part(max(first_seq, split.first_seq), min(last_seq, split.last_seq))
        for split in splits
        if split.first_seq <= last_seq and first_seq <= split.last_seq
    ]


def _even(splits: list[Split], rows_max: int, bytes_max: int) -> tuple[int, int]:
    """The same bounds, the one that decides lowered to an even share of everything."""
    stored = [split for split in splits if not isinstance(split, LostSplit)]
    counts = [split.last_seq - split.first_seq + 1 for split in stored]
    rows, size = sum(counts), sum(split.size for split in stored)
    by_rows, by_size = -(-rows // rows_max), -(-size // bytes_max)
    if by_rows >= by_size:
        return max(-(-rows // max(by_rows, 1)), 1), bytes_max
    # Room for one record more, or what is cut off by rounding would be a portion of its own.
    record = max(split.size // some for split, some in zip(stored, counts, strict=True)) + 1
    slack = max(record, SEGMENT_FRAME_BYTES_MIN)
    return rows_max, min(bytes_max, -(-size // by_size) + slack)


def portions(splits: list[Split], rows_max: int, bytes_max: int) -> Iterator[list[Split]]:
    """Splits in portions of bounded size, cut where they must be; at least one seq in each.

    Portions are as few as the bounds allow and about equal: a short one at the end would leave
    cores without work while the others finish.
    """
    rows_max, bytes_max = _even(splits, rows_max, bytes_max)
    portion: list[Split] = []
    rows = size = 0
    waiting = list(reversed(splits))
    while waiting:
        split = waiting.pop()
        count = split.last_seq - split.first_seq + 1
        each = max(split.size / count, SEGMENT_FRAME_BYTES_MIN)
        room = min(rows_max - rows, int((bytes_max - size) / each))
        if isinstance(split, LostSplit):
            room = count
        elif room < 1 and portion:
            yield portion
            portion, rows, size = [], 0, 0
            waiting.append(split)
            continue
        taken = min(max(room, 1), count)
        if taken < count:
            cut = split.first_seq + taken
            waiting.append(split.part(cut, split.last_seq))
            split = split.part(split.first_seq, cut - 1)
        portion.append(split)
        if not isinstance(split, LostSplit):
            rows, size = rows + taken, size + split.size
    if portion:
        yield portion


class _SlicedFiles:
    """A slice that is read from files, split by split."""

    __slots__ = ()
    splits: list[Split]

    @property
    def rows(self) -> int:
        return sum(p.last_seq - p.first_seq + 1 for p in self.splits)

    @property
    def size(self) -> int:
        return sum(split.size for split in self.splits)


@dataclass(frozen=True, slots=True)
class DirectorySlice(_SlicedFiles):
    """Seqs of a topic in a data directory."""

    topic: str
    topic_id: int
    epoch: int
    first_seq: int
    last_seq: int
    splits: list[Split]
    deletions: list[Deletion]
    follower: LogFollower = field(repr=False)
    """Goes on where the log ended when this was planned."""


@dataclass(frozen=True, slots=True)
class ColdSlice(_SlicedFiles):
    """Seqs of a topic in a cold tier by itself."""

    topic: str
    splits: list[Split]


@dataclass(frozen=True, slots=True)
class RemoteSlice:
    """Seqs of a topic on a server."""

    topic: str
    epoch: int
    first_seq: int
    last_seq: int
    size: int

    @property
    def rows(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class GapSlice:
    """A loss that was known when the query was planned."""

    topic: str
    gap: LostSeqs
    rows: int = 1
    size: int = 0
