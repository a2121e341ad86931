"""The locations records can be read from, as planning and reading see them.

The planner takes a snapshot of a location (`LocationSnapshot`), which turns ranges of seqs into
slices, and a task reads each slice (`Location.read`). What a slice is made of only its location
knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol, TypeVar

from headwater.spark.source.filters import Filters
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
