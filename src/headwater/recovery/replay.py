"""Replay: the groups of all shards in the order they were written.

Within a run a topic lives in one shard, and within a shard runs only grow. So merging the shards
by run gives every topic its own order back, even when the number of shards changed in between.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk
from headwater.format.frame import Frame, decode_frame
from headwater.recovery.survey import ShardSurvey, read_log_file


@dataclass(frozen=True, slots=True)
class Group:
    """The frames of one commit, as a stretch of a buffer whose hash the survey checked."""

    path: PurePath
    number: int
    """Number of the file they lie in."""
    buffer: memoryview
    start: int
    end: int
    run: int
    first_frame: int
    """Number of the first of the frames in the shard."""

    def frames(self) -> Iterator[Frame]:
        at = self.start
        try:
            while at < self.end:
                frame = decode_frame(self.buffer, at, self.end, verify=False)
                yield frame
                at += frame.size
        except FormatError as error:
            raise DamageError(
                f"changed while it was being read: {error.reason}", path=self.path, offset=at
            ) from error


def replay(disk: Disk, shards: list[ShardSurvey]) -> Iterator[Group]:
    streams = [_groups_of(disk, shard) for shard in shards]
    return heapq.merge(*streams, key=lambda group: group.run)


def _groups_of(disk: Disk, shard: ShardSurvey) -> Iterator[Group]:
    for scan in shard.files:
        spans = scan.spans
        if not spans:
            continue
        buffer = read_log_file(disk, scan.path)
        for index in range(0, len(spans), 4):
            start, end, run, mark = spans[index : index + 4]
            yield Group(scan.path, scan.number, buffer, start, end, run, mark + 1)
