"""A data directory beside its owner: a stable view of it, and where the records of a topic lie.

The log says which topics there are and how far they go (`LogView`); here the segment files come
in. A view is kept and takes in what was written since; when that cannot be, a new one is taken.
Whatever goes wrong in a way an owner at work could cause is tried again on a new view, some times;
what goes wrong again while the log does not grow is an error with file and offset.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Final, Protocol, TypeVar

import numpy

from headwater.config.store import SegmentSettings
from headwater.core.clock import Clock, Doorbell, SystemClock
from headwater.core.errors import (
    DataLossError,
    FormatError,
    HeadwaterError,
    RequestError,
    StorageError,
    UnavailableError,
)
from headwater.core.units import US_PER_MS
from headwater.disk import Disk, PosixDisk
from headwater.format.names import TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.segment import topic_directory_name
from headwater.model.loss import Loss
from headwater.recovery.directory import access_error
from headwater.recovery.topics.replay import RecordRows
from headwater.spark.source.location import LogSplit, LostSplit, SegmentSplit, Split
from headwater.spark.source.log_view import LogView, TopicLogView
from headwater.store.cold_tier import URL_START, ObjectColdTier
from headwater.store.maps import SegmentMaps
from headwater.store.segment import Segment, SegmentChangedError
from headwater.store.segment_stores import ColdTier, LocalColdTier
from headwater.store.topic_files import TopicFiles

T = TypeVar("T")

VIEWS_MAX: Final = 12
"""New views that are taken for one piece of work before a task gives it up."""
PAUSE_MS_MAX: Final = 200
SAME_FAILURES_MAX: Final = 3
"""The same failure so often, while the log does not grow, is not the owner's doing."""
MISSING_FAILURES_MAX: Final = 8
MAY_PASS: Final = (UnavailableError, StorageError, FormatError, FileNotFoundError)
"""What an owner at work can cause. A DataLossError is not meant, though it is a StorageError."""
_MAPS_MAX: Final = 4


def cold_tier(disk: Disk, address: str) -> ColdTier:
    """The cold tier at this address. Unlike its owner, a reader makes no directory."""
    if address.startswith(URL_START):
        return ObjectColdTier(address)
    if "://" in address:
        raise RequestError(f"a cold tier is a directory or a URL with {URL_START}, not {address}")
    if not disk.is_directory(PurePath(address)):
        raise RequestError(f"there is no directory {address}; check the option cold")
    return LocalColdTier(disk, PurePath(address))


class Directory:
    def __init__(
        self,
        path: str,
        cold: str | None = None,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = PurePath(path)
        self.disk = disk or PosixDisk()
        self.clock = clock or SystemClock()
        self._cold = None if cold is None else cold_tier(self.disk, cold)
        self._view: LogView | None = None
        self._maps = SegmentMaps(_MAPS_MAX)

    def is_data_directory(self) -> bool:
        return self.disk.is_directory(self.path / WAL_DIRECTORY)

    def now(self, work: Callable[[LogView], T]) -> T:
        """Do this on a view that has everything that was written before the call."""

        def followed(view: LogView) -> T:
            view.follow()
            return work(view)

        return self.stable(followed)

    def stable(self, work: Callable[[LogView], T]) -> T:
        """Do this on a view; on a new one when the files were changed underneath, some times."""
        tries = Tries(self)
        while True:
            try:
                if self._view is None:
                    self._view = LogView(self.disk, self.path)
                return work(self._view)
            except DataLossError:
                raise
            except MAY_PASS as error:
                position = self.position
                self._view = None
                tries.failed(error, position)

    def anew(self, work: Callable[[LogView], T]) -> T:
        """Do this on a view taken now, from nothing."""
        self._view = None
        return self.stable(work)

    @property
    def position(self) -> object:
        """How far the log reached when it was last read; None when it never was."""
        return None if self._view is None else self._view.position

    def files_of(self, topic_id: int) -> TopicFiles:
        return TopicFiles(
            self.disk,
            self.path / TOPICS_DIRECTORY / topic_directory_name(topic_id),
            SegmentSettings(),
            maps=self._maps,
            cold=None if self._cold is None else self._cold.topic(topic_id),
            read_only=True,
        )

    def segments(self, view: LogView, topic: TopicLogView) -> list[Segment]:
        """The segments of a topic as the log knows them, oldest first."""
        segments = self.files_of(topic.topic_id).load(
            topic.checkpointed_seq,
            topic.stored.active_first_seq,
            topic.stored.active_data_bytes,
            topic.first_seq,
        )
        if not _is_gapless(topic, segments):
            # Floors are in the log before segments go. So when the log has nothing newer about
            # this topic, nothing went since it was read, and the gap was always there.
            before = (topic.first_seq, topic.checkpointed_seq)
            view.follow()
            again = view.find(topic.name)
            if again is not topic or (topic.first_seq, topic.checkpointed_seq) != before:
                raise SegmentChangedError(f"segments of {topic.name!r} were dropped meanwhile")
        return [segment for segment in segments if segment.end_seq >= topic.first_seq]

    def splits(self, view: LogView, topic: TopicLogView) -> list[Split]:
        """Where each seq from `first_seq` to `head_seq` is, in order. Deleted ones may be left
        out; those that should be there and are not are a `LostSplit`."""
        splits: list[Split] = []
        expected = topic.first_seq
        if expected <= topic.checkpointed_seq:
            for segment in self.segments(view, topic):
                if segment.first_seq > expected:
                    splits.append(_lost(expected, segment.first_seq - 1))
                first = max(segment.first_seq, topic.first_seq)
                splits.append(SegmentSplit(segment, first, segment.end_seq))
                expected = segment.end_seq + 1
            if expected <= topic.checkpointed_seq and topic.settings.durability.is_logged:
                splits.append(_lost(expected, topic.checkpointed_seq))
        newer: list[Split] = [_log_split(run) for run in topic.runs]
        newer += [_lost(low, high) for low, high in topic.lost]
        newer.sort(key=lambda split: split.first_seq)
        low = topic.first_seq
        splits += [p if p.first_seq >= low else p.part(low, p.last_seq) for p in newer
                  if p.last_seq >= low]  # fmt: skip
        return splits


class LiveDirectory(Protocol):
    """A directory with an owner at work."""

    @property
    def path(self) -> PurePath: ...

    @property
    def clock(self) -> Clock: ...


class Tries:
    """How often something was tried, and when it is given up."""

    def __init__(self, directory: LiveDirectory) -> None:
        self._directory = directory
        self._seen: list[tuple[object, str]] = []

    def failed(self, error: Exception, snapshot: object) -> None:
        """Wait a moment; or raise, when it is not the owner's doing or has lasted too long.

        `position` is how far the log reached: always the same means that no owner writes.
        """
        self._seen.append((snapshot, str(error)))
        seen = self._seen
        # Files are moved and dropped without a word in the log, so that one is missing says less.
        missing = isinstance(error, FileNotFoundError) or isinstance(
            error.__cause__, FileNotFoundError
        )
        enough = MISSING_FAILURES_MAX if missing else SAME_FAILURES_MAX
        if len(seen) >= enough and len(set(seen[-enough:])) == 1:
            raise self._verdict(error) from error
        if len(seen) >= VIEWS_MAX:
            raise UnavailableError(
                f"{self._directory.path} was changed by its owner each time it was read; "
                f"try again (last: {error})"
            ) from error
        if len(seen) > 1:  # the first new view is mostly all it takes
            clock = self._directory.clock
            pause_us = min(1 << len(seen), PAUSE_MS_MAX) * US_PER_MS
            clock.wait(Doorbell(), clock.monotonic_us() + pause_us)

    def _verdict(self, error: Exception) -> HeadwaterError:
        if isinstance(error, FileNotFoundError):
            return access_error(PurePath(error.filename or self._directory.path), error)
        assert isinstance(error, HeadwaterError)
        return error


def _is_gapless(topic: TopicLogView, segments: list[Segment]) -> bool:
    """Every seq that should be in segments is there."""
    expected = topic.first_seq
    for segment in segments:
        if segment.first_seq > expected:
            return False
        expected = max(expected, segment.end_seq + 1)
    return expected > topic.checkpointed_seq or not topic.settings.durability.is_logged


def _lost(first_seq: int, last_seq: int) -> LostSplit:
    return LostSplit(first_seq, last_seq, Loss.LOST_TAIL.word)


def _log_split(run: RecordRows) -> LogSplit:
    return LogSplit(
        run.path, int(run.seqs[0]), run.offsets.astype(numpy.uint32), int(run.sizes.sum())
    )
