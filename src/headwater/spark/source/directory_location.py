"""A data directory as a location to read from.

A task is sent where its records were. It first reads from the log what was deleted since, then
reads split by split; when a file is gone or has changed it takes a view of its own, locates the
rest of its seqs, and goes on behind the last one it has given out. So every seq is given once or
reported as lost, from whichever file has it by then (I6, I8, I9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from headwater.core.errors import DamageError
from headwater.recovery.history.floors import Deletion
from headwater.spark.source.batch_assembler import LostSeqs
from headwater.spark.source.changes import Changes, changes_since
from headwater.spark.source.deletions import deleted_rows, newest
from headwater.spark.source.directory import MAY_PASS, Directory, Tries
from headwater.spark.source.directory_snapshot import DirectorySnapshot
from headwater.spark.source.location import ReadContext
from headwater.spark.source.log_view import LogView
from headwater.spark.source.split_reader import read_split
from headwater.spark.source.splits import DirectorySlice, LostSplit, Split, clip
from headwater.wire.frame_rows import RecordColumns

T = TypeVar("T")

DROPPED: Final = "dropped"
"""The reason of a gap: the topic itself is gone."""


@dataclass(slots=True)
class DirectoryLocation:
    path: str
    cold: str | None = field(repr=False)
    rows_max: int
    bytes_max: int
    _directory: Directory | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> tuple[Any, ...]:
        """What was seen stays in the process that saw it."""
        return self.path, self.cold, self.rows_max, self.bytes_max

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.path, self.cold, self.rows_max, self.bytes_max = state
        self._directory = None

    @property
    def directory(self) -> Directory:
        if self._directory is None:
            self._directory = Directory(self.path, self.cold)
        return self._directory

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
