"""Rewriting a mostly dead segment: dead records become empty frames, the live ones are copied.

Two files change together, so the swap is two renames with a durable name in between:

1. `.data.new` is written, synced and named; then `.idx.new`. A crash leaves the old pair whole.
2. `.data.new` takes the name `.data`. From here on `.idx.new` alone says: the swap has begun.
3. `.idx.new` takes the name `.idx`.

Whichever step a crash comes after, `topic_directory` finds one whole pair (I7).
"""

from __future__ import annotations

from dataclasses import replace

from headwater.core.errors import DamageError, InvariantError
from headwater.disk import sync_names
from headwater.format.segment import (
    Entries,
    FrameFault,
    IndexFlag,
    SegmentFile,
    compact_run,
    first_checksum,
    frame_faults,
    identity_of,
    index_flags,
    salt_of,
    seal_checks,
)
from headwater.store.pair import create_file
from headwater.store.segment import Segment, SegmentSlice, Tier
from headwater.store.topic_directory import TopicDirectory


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
    if disk.exists(new_idx):
        disk.unlink(new_idx)  # left by a try that failed; without its data it would mean a swap
        sync_names(disk, directory.path)
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
    pointer = directory.path_of(segment.first_seq, SegmentFile.COLD)
    if disk.exists(pointer):
        disk.unlink(pointer)
        sync_names(disk, directory.path)
    return replace(segment, data_bytes=data_bytes, tier=Tier.HOT)
