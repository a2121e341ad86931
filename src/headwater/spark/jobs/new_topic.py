"""A topic that is added to a stopped data directory from outside, its segments first.

The engine knows topics from its snapshot and its log. Neither the log nor what the snapshot says
of others is touched here: a snapshot is written that says the same, and the new topic. In order:

1. the directory's lock is taken, so that no engine runs, and the name must be one that was never
   used;
2. a snapshot that has given out the new topic's id: whatever a crash leaves from now on, no topic
   of the engine will ever be put among it;
3. the segments, durable;
4. two snapshots with the topic. The first makes it a topic; with the second, the newest and the
   one before both know it, so that it outlives an unreadable one like any other topic (I7).

A crash before step 4 leaves a directory that no process opens, and no topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import msgspec

from headwater.config.topic import TopicSettings, check_topic_name
from headwater.core.errors import DamageError, TopicExistsIncompatibleError
from headwater.disk import Disk, replace_file, sync_names
from headwater.format.names import TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.segment import ENTRY_BYTES, SegmentPart, topic_directory_name
from headwater.format.snapshot import (
    META_DIRECTORY,
    Snapshot,
    TopicMeta,
    encode_snapshot,
    snapshot_name,
)
from headwater.recovery.history.topics import TABLE_FRAMES
from headwater.recovery.topics.catalog import Catalog
from headwater.recovery.topics.replay import replay, replay_controls
from headwater.recovery.topics.report import inspect_until_stable
from headwater.recovery.topics.snapshots import covered_frames, load_snapshot
from headwater.store.segment_stores import LocalSegmentStore


@dataclass(frozen=True, slots=True)
class NewTopic:
    topic_id: int
    name: str
    epoch: int
    segments: PurePath
    """The directory its segments go to."""


@dataclass(frozen=True, slots=True)
class SegmentDone:
    first_seq: int
    records: int
    data_bytes: int
    payload_bytes: int


def reserve(disk: Disk, directory: PurePath, name: str) -> NewTopic:
    """Steps 1 and 2, in a directory that is ours."""
    check_topic_name(name)
    snapshot, catalog = _known(disk, directory)
    if catalog.find(name) is not None:
        raise TopicExistsIncompatibleError(
            f"there is a topic {name!r} in {directory}; segments are written for a new topic only, "
            "one that is there is written through its server",
            detail={"topic": name},
        )
    if name in catalog.epochs:
        raise TopicExistsIncompatibleError(
            f"there was a topic {name!r} in {directory}; choose a name that was never used",
            detail={"topic": name},
        )
    topic_id = catalog.next_topic_id
    store = msgspec.structs.replace(
        snapshot, number=snapshot.number + 1, next_topic_id=topic_id + 1
    )
    _store(disk, directory, store)
    return NewTopic(topic_id, name, 1, segment_directory(directory, topic_id))


def segment_directory(directory: PurePath, topic_id: int) -> PurePath:
    return directory / TOPICS_DIRECTORY / topic_directory_name(topic_id)


def add(
    disk: Disk,
    directory: PurePath,
    new: NewTopic,
    settings: TopicSettings,
    segments: Sequence[SegmentDone],
    ts: int,
) -> None:
    """Step 4. The segments must be there, one behind the other from seq 1 on."""
    _check(disk, new, segments)
    last = segments[-1]
    head_seq = last.first_seq + last.records - 1
    meta = TopicMeta(
        topic_id=new.topic_id,
        name=new.name,
        epoch=new.epoch,
        settings=settings.to_stored(),
        head_seq=head_seq,
        ceiling=0,
        evict_floor=1,
        earliest_seq=1,
        delete_below=0,
        eviction_reason=0,
        count=head_seq,
        bytes=sum(segment.payload_bytes for segment in segments),
        last_ts=ts,
        checkpointed_seq=head_seq,
        active_first_seq=last.first_seq,
        active_data_bytes=last.data_bytes,
    )
    snapshot, _ = _known(disk, directory)
    for further in (1, 2):
        with_topic = msgspec.structs.replace(
            snapshot, number=snapshot.number + further, topics=(*snapshot.topics, meta)
        )
        _store(disk, directory, with_topic)


def _known(disk: Disk, directory: PurePath) -> tuple[Snapshot, Catalog]:
    """What the newest snapshot says, and which topics there are by it and by the log."""
    report = inspect_until_stable(disk, directory / WAL_DIRECTORY)
    report.raise_if_refused()
    snapshot = load_snapshot(disk, directory, [])
    covered = {} if snapshot is None else covered_frames(directory, snapshot, report.shards)
    catalog = Catalog(snapshot)
    for _, frames in replay_controls(replay(disk, report.shards, covered), covered, TABLE_FRAMES):
        for frame in frames:
            catalog.note(frame)
    return snapshot or Snapshot(0, 1, (), (), {}), catalog


def _check(disk: Disk, new: NewTopic, segments: Sequence[SegmentDone]) -> None:
    store = LocalSegmentStore(disk, new.segments)
    expected = 1
    for segment in segments:
        path = store.path_of(segment.first_seq, SegmentPart.IDX)
        if segment.first_seq != expected:
            raise DamageError(f"the segment of seq {expected} is missing", path=path)
        wanted = (segment.data_bytes, segment.records * ENTRY_BYTES)
        parts = (SegmentPart.DATA, SegmentPart.IDX)
        if tuple(store.len(segment.first_seq, part) for part in parts) != wanted:
            raise DamageError("a segment is not as long as it was written", path=path)
        expected += segment.records
    if list(store.list()) != [segment.first_seq for segment in segments]:
        raise DamageError("there are segments that no task wrote", path=new.segments)


def _store(disk: Disk, directory: PurePath, snapshot: Snapshot) -> None:
    meta = directory / META_DIRECTORY
    if not disk.is_directory(meta):
        disk.make_directory(meta)
        sync_names(disk, directory)
    replace_file(disk, meta / snapshot_name(snapshot.number), encode_snapshot(snapshot))
