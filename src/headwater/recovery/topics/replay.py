"""Replay: the groups of all shards in the order they were written, and the log as tables.

Within a run a topic lives in one shard, and within a shard runs only grow. So merging the shards
by run gives every topic its own order back, even when the number of shards changed in between.

Many frames are read at a time, so that replaying costs little per record. Rows keep the order in
which they were written. Control frames are handed out one by one; the records between two of them
are handed out topic by topic, each with its bytes.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, Final

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk
from headwater.format.frame import (
    FRAME,
    FRAME_BYTES_MIN,
    Frame,
    FrameType,
    decode_frame,
)
from headwater.format.segment import INDEX_ENTRY, SEGMENT_FRAME_BYTES_MIN, Entries, IndexFlag
from headwater.format.table import FrameTable, read_table
from headwater.recovery.topics.survey import ShardSurvey, read_log_file


class FrameGroup(msgspec.Struct, frozen=True):
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
            raise _changed(self.path, error, at) from error


def _changed(path: PurePath, error: FormatError, offset: int | None) -> DamageError:
    """Of frames that the survey found to be sound."""
    what = f"changed while it was being read: {error.reason}"
    return DamageError(what, path=path, offset=offset)


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


ROWS_MAX: Final = 16_384
"""Frames that are decoded together."""
_APPEND: Final = int(FrameType.APPEND)
_MARK: Final = int(FrameType.CHECKPOINT_MARK)
_CONTROLS: Final = frozenset(FrameType) - {FrameType.APPEND}
_SHRINKAGE: Final = FRAME_BYTES_MIN - SEGMENT_FRAME_BYTES_MIN


def entries_in_log(
    sizes: NDArray[numpy.int64], ts: NDArray[numpy.uint64], flags: NDArray[numpy.uint8]
) -> Entries:
    """Index entries for records that are only in the log, from the columns of their frames."""
    entries = numpy.zeros(len(sizes), INDEX_ENTRY.dtype)
    entries["len"] = sizes - _SHRINKAGE
    entries["ts"] = ts
    entries["flags_check"] = flags | numpy.uint8(IndexFlag.IN_WAL)
    return entries


class RecordRows(msgspec.Struct, frozen=True):
    """Records of one topic, in seq order, as they lie in one log file."""

    topic_id: int
    path: PurePath
    buffer: memoryview
    """The whole of that file."""
    offsets: NDArray[numpy.int64]
    sizes: NDArray[numpy.int64]
    seqs: NDArray[numpy.int64]
    ts: NDArray[numpy.uint64]
    flags: NDArray[numpy.uint8]
    node_len: NDArray[numpy.int64]
    tag_len: NDArray[numpy.int64]

    def since(self, row: int) -> RecordRows:
        """Without the first `row` records."""
        return self.part(row, len(self.seqs))

    def part(self, start: int, end: int) -> RecordRows:
        columns = [
            getattr(self, name)[start:end]
            for name in ("offsets", "sizes", "seqs", "ts", "flags", "node_len", "tag_len")
        ]
        return RecordRows(self.topic_id, self.path, self.buffer, *columns)

    def entries(self) -> Entries:
        """Index entries for records that are only in the log."""
        return entries_in_log(self.sizes, self.ts, self.flags)

    def copy(self) -> tuple[bytes, NDArray[numpy.int64]]:
        """The frames' bytes one behind the other, and where each begins."""
        starts, ends = self.offsets.tolist(), (self.offsets + self.sizes).tolist()
        buffer = self.buffer
        joined = b"".join([buffer[a:b] for a, b in zip(starts, ends, strict=True)])
        offsets = numpy.zeros(len(self.sizes), numpy.int64)
        numpy.cumsum(self.sizes[:-1], out=offsets[1:])
        return joined, offsets

    def tags(self) -> Iterator[tuple[bytes, int]]:
        """The tag and seq of each record that has one."""
        for row in numpy.flatnonzero(self.tag_len).tolist():
            at = int(self.offsets[row]) + FRAME.size + int(self.node_len[row])
            yield bytes(self.buffer[at : at + int(self.tag_len[row])]), int(self.seqs[row])


def replay_rows(
    groups: Iterator[FrameGroup],
    covered: Mapping[PurePath, int],
    controls: Collection[FrameType] = _CONTROLS,
) -> Iterator[Frame | RecordRows]:
    """Everything a snapshot does not cover; of control frames, only these kinds."""
    kept = frozenset({*controls, FrameType.APPEND})
    for table, buffer, path in _tables(groups, covered):
        needed = _chosen(kept)[table.type]
        some = table if needed.all() else _rows(table, needed)
        yield from _split(some, buffer, path)


def replay_controls(
    groups: Iterator[FrameGroup], covered: Mapping[PurePath, int], controls: Collection[FrameType]
) -> Iterator[tuple[list[int], list[Frame]]]:
    """Control frames of these kinds, many frames of the log at a time, and the topics that those
    many are about. A checkpoint mark is about many topics, and is not counted."""
    wanted = frozenset(controls)
    for table, buffer, path in _tables(groups, covered):
        topics = numpy.unique(table.topic_id[table.type != _MARK]).tolist()
        rows = numpy.flatnonzero(_chosen(wanted)[table.type]).tolist()
        yield topics, [_control(table, buffer, path, row) for row in rows]


@cache
def _chosen(kinds: frozenset[FrameType]) -> NDArray[numpy.bool_]:
    """Of each byte whether it is the type of such a frame."""
    return numpy.isin(numpy.arange(256), [int(kind) for kind in kinds])


def _tables(
    groups: Iterator[FrameGroup], covered: Mapping[PurePath, int]
) -> Iterator[tuple[FrameTable, memoryview, PurePath]]:
    """Groups of one file and run together, without the frames that are covered."""
    for (path, _run), together in itertools.groupby(groups, lambda g: (g.path, g.run)):
        least = covered.get(path.parent, 0)
        while some := list(itertools.islice(together, ROWS_MAX)):
            # Of the groups that begin within what is covered, all but the last end in it too.
            begun = bisect_right(some, least + 1, key=lambda group: group.first_frame)
            del some[: max(begun - 1, 0)]
            buffer = some[0].buffer
            try:
                table = read_table(buffer, [(group.start, group.end) for group in some])
            except FormatError as error:
                raise _changed(path, error, error.offset) from error
            numbers = _numbers(table, some)
            if numbers[0] <= least:
                table = _rows(table, numbers > least)
            if len(table):
                yield table, buffer, path


def _numbers(table: FrameTable, groups: list[FrameGroup]) -> NDArray[numpy.int64]:
    """The number of each frame in its shard."""
    counts = numpy.diff(table.first_rows)
    firsts = numpy.array([group.first_frame for group in groups], numpy.int64)
    return numpy.repeat(firsts - table.first_rows[:-1], counts) + numpy.arange(len(table))


def _rows(table: FrameTable, chosen: Any) -> FrameTable:
    names = [name for name in FrameTable.__struct_fields__ if name != "first_rows"]
    columns = {name: getattr(table, name)[chosen] for name in names}
    return FrameTable(**columns, first_rows=numpy.array([0], numpy.int64))


def _split(table: FrameTable, buffer: memoryview, path: PurePath) -> Iterator[Frame | RecordRows]:
    controls = numpy.flatnonzero(table.type != _APPEND).tolist()
    at = 0
    for row in [*controls, len(table)]:
        if row > at:
            yield from _by_topic(table, buffer, path, at, row)
        if row < len(table):
            yield _control(table, buffer, path, row)
        at = row + 1


def _control(table: FrameTable, buffer: memoryview, path: PurePath, row: int) -> Frame:
    start = int(table.offset[row])
    try:
        return decode_frame(buffer, start, start + int(table.size[row]), verify=False)
    except FormatError as error:
        raise _changed(path, error, start) from error


def _by_topic(
    table: FrameTable, buffer: memoryview, path: PurePath, start: int, end: int
) -> Iterator[RecordRows]:
    topics = table.topic_id[start:end]
    if (topics == topics[0]).all():
        yield _record_rows(table, buffer, path, slice(start, end), int(topics[0]))
        return
    order = numpy.argsort(topics, kind="stable")
    ordered = topics[order]
    borders = numpy.flatnonzero(numpy.diff(ordered)) + 1
    for rows in numpy.split(order, borders):
        yield _record_rows(table, buffer, path, rows + start, int(topics[rows[0]]))


def _record_rows(
    table: FrameTable,
    buffer: memoryview,
    path: PurePath,
    rows: NDArray[numpy.int64] | slice,
    topic_id: int,
) -> RecordRows:
    return RecordRows(
        topic_id,
        path,
        buffer,
        table.offset[rows],
        table.size[rows],
        table.seq[rows].astype(numpy.int64),
        table.ts[rows],
        table.flags[rows],
        table.node_len[rows],
        table.tag_len[rows],
    )
