"""Removing segments and whole topics, in an order that a start can finish.

A segment's index is renamed to `.dropped` first, durably; only then does anything go. A topic's
directory gets a name that no topic has; its files go in the background (I16, claim 283).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from headwater.disk import Disk, sync_names
from headwater.format.segment import (
    SegmentFile,
    deleted_directory_name,
    parse_deleted_directory_name,
    topic_directory_name,
)
from headwater.store.failures import file_work
from headwater.store.segment import Segment
from headwater.store.segment_stores import SegmentStore
from headwater.store.topic_directory import TopicDirectory

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
