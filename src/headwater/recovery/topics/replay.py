"""Replay: the groups of all shards in the order they were written.

Within a run a topic lives in one shard, and within a shard runs only grow. So merging the shards
by run gives every topic its own order back, even when the number of shards changed in between.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk
from headwater.format.frame import Frame, decode_frame
from headwater.recovery.topics.survey import ShardSurvey, read_log_file


@dataclass(frozen=True, slots=True)
class FrameGroup:
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


def replay(
    disk: Disk, shards: list[ShardSurvey], covered: Mapping[PurePath, int] | None = None
) -> Iterator[FrameGroup]:
    """`covered` says, by directory, up to which frame the caller has everything: groups that lie
    wholly before that are left out, and files of which nothing is left are not read."""
    streams = [_groups_of(disk, shard, (covered or {}).get(shard.directory, 0)) for shard in shards]
    return heapq.merge(*streams, key=lambda group: group.run)


def _groups_of(disk: Disk, shard: ShardSurvey, covered: int) -> Iterator[FrameGroup]:
    following = [*[scan.number for scan in shard.files[1:]], shard.chain.next_frame]
    for scan, next_frame in zip(shard.files, following, strict=False):
        spans = _uncovered(scan.spans, covered)
        if not spans or next_frame - 1 <= covered:
            continue
        buffer = read_log_file(disk, scan.path, start=spans[0], upto=spans[-3])
        for index in range(0, len(spans), 4):
            start, end, run, mark = spans[index : index + 4]
            yield FrameGroup(scan.path, scan.number, buffer, start, end, run, mark + 1)


def _uncovered(spans: Sequence[int], covered: int) -> Sequence[int]:
    """Without the groups behind which another begins that is covered too."""
    marks = spans[3::4]
    begun = bisect_right(marks, covered)
    return spans[4 * max(begun - 1, 0) :]
