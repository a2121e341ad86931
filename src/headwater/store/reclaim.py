"""How space comes back: deletes in files, rewritten segments, and segments and topics that go.

Which segments may go, be rewritten or move are rules over numbers. Reclaiming changes when space
comes back, never what a reader sees.

Deletes are flags flipped in place, data before index, both synced. Only the state byte of a frame
and the flags and check of an entry change, so a torn write damages at most one entry, which is then
read again from the data. The log keeps the delete until both are durable, and flipping twice is the
same as flipping once (I8).

In a rewrite of a mostly dead segment, dead records become empty frames, the live ones are copied.
Two files change together, so the swap is two renames with a durable name in between:

1. `.data.new` is written, synced and named; then `.idx.new`. A crash leaves the old pair whole.
2. `.data.new` takes the name `.data`. From here on `.idx.new` alone says: the swap has begun.
3. `.idx.new` takes the name `.idx`.

Whichever step a crash comes after, `topic_directory` finds one whole pair (I7).

Segments and whole topics are removed in an order that a start can finish. A segment's index is
renamed to `.dropped` first, durably; only then does anything go. A topic's directory gets a name
that no topic has; its files go in the background (I16, claim 283).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from headwater.config.store import SegmentSettings
from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import DamageError, InvariantError
from headwater.disk import (
    Disk,
    File,
    OpenMode,
    opened,
    remove_files,
    sync_file,
    sync_names,
    write_all,
)
from headwater.format.segment import (
    ENTRY_BYTES,
    MEMORY_FLAGS,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    FrameFault,
    FrameState,
    IndexFlag,
    SegmentFile,
    compact_run,
    deleted_directory_name,
    first_checksum,
    frame_faults,
    identity_of,
    index_flags,
    parse_deleted_directory_name,
    salt_of,
    seal_checks,
    topic_directory_name,
)
from headwater.store.pair import create_file
from headwater.store.segment import Segment, SegmentSlice, Tier, file_work
from headwater.store.segment_stores import SegmentStore
from headwater.store.topic_directory import TopicDirectory


def choose_drops(segments: Sequence[Segment], earliest_seq: int) -> list[Segment]:
    """Sealed segments that end below the earliest live seq. Never the active one."""
    return [segment for segment in segments if segment.sealed and segment.end_seq < earliest_seq]


def choose_relocations(segments: Sequence[Segment], settings: SegmentSettings) -> list[Segment]:
    """Sealed hot segments beyond what may stay hot, oldest first; the stricter bound wins."""
    newest_first = sorted(
        (segment for segment in segments if segment.sealed and not segment.is_cold),
        key=lambda segment: -segment.first_seq,
    )
    moving: list[Segment] = []
    kept_bytes = 0
    for position, segment in enumerate(newest_first):
        kept_bytes += segment.data_bytes
        too_many = position >= settings.hot_retain_segments
        too_large = 0 < settings.hot_retain_bytes < kept_bytes
        if too_many or too_large:
            moving = newest_first[position:]
            break
    return moving[::-1]


def may_relocate(hot_bytes: Sequence[int], settings: SegmentSettings) -> bool:
    """Whether these sizes of hot segments are more than may stay, as far as sizes show."""
    too_many = len(hot_bytes) > settings.hot_retain_segments
    return too_many or 0 < settings.hot_retain_bytes < sum(hot_bytes)


def dead_bytes(entries: Entries) -> int:
    """What rewriting would give back: dead records less the empty frames they leave behind."""
    is_dead = (index_flags(entries) & IndexFlag.DELETED) != 0
    lengths = entries["len"][is_dead].astype(numpy.int64)
    return int((lengths - SEGMENT_FRAME_BYTES_MIN).sum())


def is_rewrite_due(segment: Segment, entries: Entries, settings: SegmentSettings) -> bool:
    """True when enough of a sealed segment is dead that its live records are worth copying."""
    if not segment.sealed or not settings.rewrite_dead_ratio:
        return False
    dead = dead_bytes(entries)
    return dead > 0 and dead >= segment.data_bytes * settings.rewrite_dead_ratio


_DELETED_STATE = bytes((FrameState.DELETED,))


def check_seqs(segment: Segment, entries: Entries, seqs: NDArray[numpy.int64]) -> None:
    first, last = int(seqs[0]), int(seqs[-1])
    if first < segment.first_seq or last > segment.end_seq or len(entries) != last - first + 1:
        raise InvariantError(
            f"entries of {len(entries)} records given for seqs {first} to {last} "
            f"of segment {segment.first_seq} to {segment.end_seq}"
        )


def flag_frames(disk: Disk, path: PurePath, entries: Entries, rows: NDArray[numpy.int64]) -> None:
    """Flip the state byte of these frames and sync."""
    readable = rows[(index_flags(entries[rows]) & IndexFlag.DAMAGED) == 0]
    ends = entries["offset"][readable].astype(numpy.int64) + entries["len"][readable]

    with opened(disk, path, OpenMode.UPDATE) as file:
        _refuse_short(file, int(ends.max(initial=0)))
        for end in ends.tolist():
            write_all(file, end - 1, [_DELETED_STATE])
        sync_file(file)


def flag_entries(
    disk: Disk,
    path: PurePath,
    segment: Segment,
    entries: Entries,
    seqs: NDArray[numpy.int64],
) -> None:
    """Set DELETED in the entries of these seqs and sync."""
    first = int(seqs[0])
    # A damaged entry gets a sound one that says no more than that its record is deleted: it would
    # come back with every start. The last one says where the data ends, and stays as it is.
    damaged = (index_flags(entries[seqs - first]) & IndexFlag.DAMAGED) != 0
    seqs = seqs[~(damaged & (seqs == segment.end_seq))]
    if not len(seqs):
        return
    flagged = entries.copy()
    flagged["flags_check"] &= numpy.uint32(0xFF & ~MEMORY_FLAGS)
    flagged["flags_check"] |= numpy.uint32(IndexFlag.DELETED)
    seal_checks(flagged, first, segment.salt)
    borders = numpy.flatnonzero(numpy.diff(seqs) > 1) + 1

    with opened(disk, path, OpenMode.UPDATE) as file:
        _refuse_short(file, (int(seqs[-1]) - segment.first_seq + 1) * ENTRY_BYTES)
        for run in numpy.split(seqs, borders):
            low, high = int(run[0]), int(run[-1])
            changed = flagged[low - first : high - first + 1].tobytes()
            write_all(file, (low - segment.first_seq) * ENTRY_BYTES, [changed])
        sync_file(file)


def _refuse_short(file: File, needed: int) -> None:
    there = file.size()
    if there < needed:
        raise DamageError(
            f"{needed - there} bytes are missing at the end", path=file.path, offset=there
        )


def compact(segment: Segment, entries: Entries, stored: SegmentSlice) -> tuple[bytearray, Entries]:
    """The new bytes of a segment. One that holds damage is left as it is, for an operator."""
    if not segment.sealed or len(entries) != segment.count:
        raise InvariantError(f"segment {segment.first_seq} cannot be rewritten now")
    live = (index_flags(entries) & IndexFlag.DELETED) == 0
    faults = frame_faults(stored.buffer, entries, segment.first_seq, stored.base)
    faults[(faults == FrameFault.DELETED) | ~live] = FrameFault.NONE
    if faults.any():
        position = int(faults.argmax())
        raise DamageError(
            f"seq {segment.first_seq + position} is damaged; the segment is not rewritten",
            path=stored.path,
            offset=int(entries["offset"][position]),
        )
    return compact_run(stored.buffer, entries, segment.first_seq, stored.base)


def identify(
    directory: TopicDirectory, segment: Segment, data: bytearray, entries: Entries
) -> Segment:
    """The segment that has these new bytes; seals the entries with whose it is."""
    identity = identity_of(directory.topic_id, first_checksum(data))
    seal_checks(entries, segment.first_seq, salt_of(identity))
    return replace(segment, identity=identity)


def prepare(directory: TopicDirectory, segment: Segment, data: bytearray, idx: bytes) -> None:
    """Have the new files, durable, beside the old ones. Until the swap they mean nothing."""
    disk = directory.disk
    new_data = directory.path_of(segment.first_seq, SegmentFile.NEW_DATA)
    new_idx = directory.path_of(segment.first_seq, SegmentFile.NEW_IDX)
    # Left by a try that failed; without its data it would mean a swap.
    remove_files(disk, [new_idx])
    for path, contents in ((new_data, data), (new_idx, idx)):
        create_file(disk, path, contents)
        sync_names(disk, directory.path)


def swap(directory: TopicDirectory, segment: Segment, data_bytes: int) -> Segment:
    """Let the new files take the names of the old ones."""
    disk = directory.disk
    for source, target in (
        (SegmentFile.NEW_DATA, SegmentFile.DATA),
        (SegmentFile.NEW_IDX, SegmentFile.IDX),
    ):
        disk.rename(
            directory.path_of(segment.first_seq, source),
            directory.path_of(segment.first_seq, target),
        )
        sync_names(disk, directory.path)
    remove_files(disk, [directory.path_of(segment.first_seq, SegmentFile.COLD)])
    return replace(segment, data_bytes=data_bytes, tier=Tier.HOT)


INDEXES = (SegmentFile.IDX, SegmentFile.COLD)


def drop_segments(
    directory: TopicDirectory, segments: Iterable[Segment], cold: SegmentStore | None
) -> None:
    """Remove these segments from both tiers. Repeating it after a crash is harmless."""
    disk = directory.disk
    to_delete = [segment.first_seq for segment in segments]
    with file_work(directory.path):
        _unlink_each(directory, to_delete, marking=True)
        sync_names(disk, directory.path)
        _unlink_each(directory, to_delete, marking=False)
        sync_names(disk, directory.path)
    for segment in to_delete:
        if cold is not None:
            cold.delete(segment)
    with file_work(directory.path):
        for first_seq in to_delete:
            marker = directory.path_of(first_seq, SegmentFile.DROPPED)
            if disk.exists(marker):
                disk.unlink(marker)
        sync_names(disk, directory.path)


def _unlink_each(directory: TopicDirectory, to_delete: Iterable[int], *, marking: bool) -> None:
    disk = directory.disk
    for first_seq in to_delete:
        marker = directory.path_of(first_seq, SegmentFile.DROPPED)
        for kind in INDEXES if marking else (SegmentFile.DATA, *INDEXES):
            path = directory.path_of(first_seq, kind)
            if not disk.exists(path):
                continue
            if marking and not disk.exists(marker):
                disk.rename(path, marker)
            elif not marking:
                disk.unlink(path)


def rename_for_drop(disk: Disk, topics: PurePath, topic_id: int) -> bool:
    """Take the topic's directory out of sight, durably. False when there is none."""
    source = topics / topic_directory_name(topic_id)
    target = topics / deleted_directory_name(topic_id)
    with file_work(topics):
        if not disk.is_directory(source):
            return False
        if not disk.is_directory(target):
            disk.rename(source, target)
        sync_names(disk, topics)
    return True


def list_dropped(disk: Disk, topics: PurePath) -> list[int]:
    """Topics whose directories were renamed and still have to go."""
    if not disk.is_directory(topics):
        return []
    topic_ids = map(parse_deleted_directory_name, disk.list_directory(topics))
    return sorted(topic_id for topic_id in topic_ids if topic_id is not None)


def remove_dropped(
    disk: Disk, topics: PurePath, topic_id: int, cold: SegmentStore | None = None
) -> None:
    """Remove what is left of a dropped topic, in both tiers. Repeating it is harmless.

    The directory goes last: as long as it is there, something may be left in the cold store.
    """
    directory = topics / deleted_directory_name(topic_id)
    with file_work(directory):
        if not disk.is_directory(directory):
            return
        sync_names(disk, topics)  # the new name first, or files go from a topic in sight
    if cold is not None:
        for first_seq in cold.list():
            cold.delete(first_seq)
    with file_work(directory):
        for name in disk.list_directory(directory):
            disk.unlink(directory / name)
        disk.remove_directory(directory)
        sync_names(disk, topics)
