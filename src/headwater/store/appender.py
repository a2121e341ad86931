"""Appending a run to a topic's segments: where it is split, and in which order it is made durable.

Data, then index, then names: an index entry may only point at bytes that are there, and a
checkpoint may only speak of files whose names survive.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from headwater.config.store import SegmentSettings
from headwater.core.arrays import numpy
from headwater.core.errors import InvariantError
from headwater.disk import Buffer, Disk, sync_names
from headwater.format.segment import (
    ENTRY_BYTES,
    MEMORY_FLAGS,
    Entries,
    SegmentPart,
    first_checksum,
    identity_of,
    parse_topic_directory_name,
    seal_checks,
    segment_file_name,
)
from headwater.store.pair import append_bytes, create_file
from headwater.store.segment import Segment


def is_full(segment: Segment, settings: SegmentSettings) -> bool:
    return (
        segment.count >= settings.segment_max_events
        or segment.data_bytes >= settings.segment_max_bytes
    )


def is_old(segment: Segment, settings: SegmentSettings, now_ms: int) -> bool:
    age_ms = settings.segment_max_age_ms
    return age_ms > 0 and now_ms - segment.created_ms >= age_ms


def append_run(
    disk: Disk,
    directory: PurePath,
    settings: SegmentSettings,
    active: Segment | None,
    first_seq: int,
    data: Buffer,
    entries: Entries,
    now_ms: int,
    made: list[int],
) -> list[Segment]:
    """See `TopicFiles.append_run`. Segments that are begun are noted in `made`, ahead of it."""
    changed: list[Segment] = []
    if active is not None and (active.sealed or active.end_seq + 1 != first_seq):
        if not active.sealed:
            changed.append(replace(active, sealed=True))
        active = None
    view = memoryview(data)
    done = 0
    while done < len(entries):
        segment = active or Segment(first_seq + done, 0, 0, False, now_ms)
        if segment.count == 0:
            made.append(segment.first_seq)
        stop = done + room_for(segment, entries[done:], settings)
        grown = _write(disk, directory, segment, view, entries[done:stop])
        sealed = is_full(grown, settings)
        changed.append(replace(grown, sealed=sealed))
        active = None
        done = stop
    if made:
        sync_names(disk, directory)
    return changed


def room_for(segment: Segment, entries: Entries, settings: SegmentSettings) -> int:
    """How many of these records still go into the segment: up to the one that fills it."""
    lengths = numpy.cumsum(entries["len"], dtype=numpy.int64)
    wanted = settings.segment_max_bytes - segment.data_bytes
    until_full = int(numpy.searchsorted(lengths, wanted)) + 1
    return max(min(settings.segment_max_events - segment.count, until_full, len(entries)), 1)


def _write(
    disk: Disk, directory: PurePath, segment: Segment, data: memoryview, entries: Entries
) -> Segment:
    start = int(entries["offset"][0])
    end = int(entries["offset"][-1]) + int(entries["len"][-1])
    if end > len(data):
        raise InvariantError(f"the run ends at byte {len(data)}, its entries at {end}")
    entries["offset"] = entries["offset"].astype(numpy.int64) - start + segment.data_bytes
    entries["flags_check"] &= numpy.uint32(0xFF & ~MEMORY_FLAGS)
    if not segment.count:
        checksum = first_checksum(data[start:end])
        topic_id = parse_topic_directory_name(directory.name)
        segment = replace(segment, identity=identity_of(topic_id, checksum))
    seal_checks(entries, segment.first_seq + segment.count, segment.salt)
    parts = (
        (SegmentPart.DATA, segment.data_bytes, data[start:end]),
        (SegmentPart.IDX, segment.count * ENTRY_BYTES, memoryview(entries.tobytes())),
    )
    for part, at, added in parts:
        path = directory / segment_file_name(segment.first_seq, part)
        if segment.count:
            append_bytes(disk, path, at, added)
        else:
            create_file(disk, path, added)
    return replace(
        segment,
        count=segment.count + len(entries),
        data_bytes=segment.data_bytes + end - start,
    )


def make_directories(disk: Disk, path: PurePath, ours: int = 2) -> None:
    """Have a directory and those above it, durably.

    One that is there already may have been made by a process that died before it could sync the
    name, so the last `ours` names are synced all the same: a topic's directory, and the one that
    holds all topics.
    """
    chain = (*reversed(path.parents), path)
    for position, each in enumerate(chain):
        is_new = not disk.is_directory(each)
        if is_new:
            disk.make_directory(each)
        if is_new or position >= len(chain) - ours:
            sync_names(disk, each.parent)
