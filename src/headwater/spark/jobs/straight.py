"""Rows straight to sealed segments of a new topic, by every task at once, without a server.

Each partition is counted first, so that its rows have their seqs before they are written; then
each task writes its own segments. A task that is run again writes the same bytes to the same
names. Only when all are there does the topic come to be.

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import msgspec
import numpy
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.store import SegmentSettings
from headwater.config.topic import TopicSettings, check_topic_name
from headwater.core.durability import Durability
from headwater.core.errors import DamageError, RequestError, TopicExistsIncompatibleError
from headwater.disk import Disk, PosixDisk, replace_file, sync_names
from headwater.format.appends import encode_appends
from headwater.format.frame import FrameFlag
from headwater.format.names import TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.segment import (
    ENTRY_BYTES,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    SegmentPart,
    WalSlice,
    encode_run,
    first_checksum,
    identity_of,
    salt_of,
    seal_checks,
    topic_directory_name,
)
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
from headwater.spark.jobs.log_directories import owned, require_data_directory
from headwater.spark.jobs.origins import CARRIED, DATA, NODE, TAG
from headwater.spark.runtime.arrow_schema import to_spark
from headwater.spark.sink.json_columns import json_objects, json_texts
from headwater.store.appender import is_full, room_for
from headwater.store.segment import Segment
from headwater.store.segment_stores import LocalSegmentStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


_DONE: Final = pa.schema([(name, pa.int64()) for name in SegmentDone.__slots__])
_ENVELOPE: Final = frozenset((DATA, TAG, NODE))
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)
_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_DURABLE: Final = int(FrameFlag.DURABLE)
_NOT_HERE: Final = frozenset(("meta", "seq", "ts", "gap", "topic"))
"""Names that the sink gives a meaning, and this job none."""


def write_straight(
    rows: DataFrame, directory: PurePath, topic: str, durability: str | None, ts: int
) -> int:
    """Returns how many records the new topic has."""
    disk = PosixDisk()
    _refuse_columns(rows)
    _refuse_speculation(rows)
    settings = TopicSettings(durability=_kept(durability))
    require_data_directory(disk, directory)
    with owned(disk, [directory], writing=True):
        counts = _counts(rows)
        if not sum(counts):
            raise RequestError("there are no rows, so there is no topic to make of them")
        new = reserve(disk, directory, topic)
        starts = [1 + before for before in (0, *accumulate(counts))]
        task = StraightTask(str(new.segments), new.topic_id, tuple(starts), ts)
        written = rows.mapInArrow(task, to_spark(_DONE)).collect()
        segments = sorted((SegmentDone(*row) for row in written), key=lambda each: each.first_seq)
        add(disk, directory, new, settings, segments, ts)
        return sum(counts)


def _kept(durability: str | None) -> Durability:
    """What is in segments is on the disk: the classes that keep nothing there make no sense."""
    wanted = durability or Durability.FSYNC.value
    if wanted not in (Durability.FSYNC.value, Durability.DISK.value):
        raise RequestError(f"a topic of segments is of class fsync or disk, not {wanted!r}")
    return Durability(wanted)


def _refuse_columns(rows: DataFrame) -> None:
    names = [name for name in rows.columns if name not in CARRIED]
    strange = [name for name in names if name in _NOT_HERE]
    if DATA in names:
        strange += [name for name in names if name not in _ENVELOPE | _NOT_HERE]
    if strange:
        raise RequestError(
            f"column {strange[0]!r} cannot be written straight to segments; leave it out, rename "
            "it, or write through the server"
        )


def _refuse_speculation(rows: DataFrame) -> None:
    if rows.sparkSession.conf.get("spark.speculation", "false") == "true":
        raise RequestError(
            "two tasks must not write one segment: set spark.speculation to false for this job"
        )


def _counts(rows: DataFrame) -> list[int]:
    """Rows of each partition, in the order of partitions."""
    from pyspark.sql import functions as f

    counts = rows.groupBy(f.spark_partition_id().alias("partition")).count().collect()
    by_partition = {row["partition"]: row["count"] for row in counts}
    return [
        by_partition.get(partition, 0) for partition in range(max(by_partition, default=-1) + 1)
    ]


@dataclass(frozen=True)
class StraightTask:
    """What every task does; sent to all of them."""

    directory: str
    topic_id: int
    starts: tuple[int, ...]
    """The first seq of each partition, and the one behind the last."""
    ts: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        done = self.write(PosixDisk(), partition, batches)
        rows = [{name: getattr(each, name) for name in SegmentDone.__slots__} for each in done]
        yield pa.RecordBatch.from_pylist(rows, schema=_DONE)

    def write(
        self, disk: Disk, partition: int, batches: Iterable[pa.RecordBatch]
    ) -> list[SegmentDone]:
        """The segments of one partition."""
        # Partitions behind the last that has rows were not counted, and have none.
        behind_all = len(self.starts) - 1
        first = self.starts[min(partition, behind_all)]
        behind = self.starts[min(partition + 1, behind_all)]
        writer = SegmentWriter(disk, PurePath(self.directory), self.topic_id, first, self.ts)
        for batch in batches:
            writer.write(*columns_of(batch))
        writer.finish()
        if writer.next_seq != behind:
            raise DamageError(
                f"partition {partition} had {behind - first} rows when it was counted and "
                f"{writer.next_seq - first} when it was written",
                advice="the origin was changed meanwhile; nothing was added, run the job again",
            )
        return writer.done


def columns_of(batch: pa.RecordBatch) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Nodes, tags and payloads of the rows, as the server would have kept them."""
    names = [name for name in batch.schema.names if name not in CARRIED]
    if DATA in names:
        column = batch.column(DATA)
        if pa.types.is_string(column.type):
            payloads = pc.utf8_trim(column, characters=" \t\r\n")
        else:
            payloads = json_texts(column)
        payloads = pc.fill_null(payloads, "null")
    else:
        fields = [name for name in names if name not in (TAG, NODE)]
        payloads = json_objects(fields, [batch.column(name) for name in fields])
    return _words(batch, NODE), _words(batch, TAG), payloads.cast(pa.binary()).to_pylist()


def _words(batch: pa.RecordBatch, name: str) -> list[bytes]:
    if name not in batch.schema.names:
        return [b""] * len(batch)
    texts = pc.fill_null(batch.column(name).cast(pa.string()), "")
    encoded: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return encoded


class SegmentWriter:
    """Records one behind the other into segments, cut where the engine would cut them."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        topic_id: int,
        first_seq: int,
        ts: int,
        settings: SegmentSettings | None = None,
    ) -> None:
        self._store = LocalSegmentStore(disk, directory)
        self._topic_id = topic_id
        self._ts = ts
        self._settings = settings or SegmentSettings()
        self._segment = Segment(first_seq, 0, 0, False, ts)
        self._data = bytearray()
        self._entries: list[Entries] = []
        self.next_seq = first_seq
        self.done: list[SegmentDone] = []

    def write(self, nodes: list[bytes], tags: list[bytes], payloads: list[bytes]) -> None:
        """All columns are equally long."""
        if not payloads:
            return
        flags = [
            _DURABLE | (_HAS_NODE if node else 0) | (_HAS_TAG if tag else 0)
            for node, tag in zip(nodes, tags, strict=True)
        ]
        times = [self._ts] * len(payloads)
        frames = encode_appends(self._topic_id, self.next_seq, times, flags, nodes, tags, payloads)
        made = WalSlice(frames.buffer, numpy.array(frames.offsets, numpy.int64))
        data, entries = encode_run([made], self.next_seq, verify=False)
        view = memoryview(data)
        while len(entries):
            taken = room_for(self._segment, entries, self._settings)
            self._take(view, entries[:taken])
            entries = entries[taken:]

    def finish(self) -> None:
        """Put down what is left."""
        if not self._entries:
            return
        entries = numpy.concatenate(self._entries)
        segment = self._segment
        identity = identity_of(self._topic_id, first_checksum(self._data))
        seal_checks(entries, segment.first_seq, salt_of(identity))
        self._store.put(segment.first_seq, self._data, entries.tobytes())
        counted = segment.data_bytes - segment.count * SEGMENT_FRAME_BYTES_MIN
        self.done.append(SegmentDone(segment.first_seq, segment.count, segment.data_bytes, counted))
        self._segment = Segment(self.next_seq, 0, 0, False, self._ts)
        self._data = bytearray()
        self._entries = []

    def _take(self, data: memoryview, entries: Entries) -> None:
        first, last = int(entries["offset"][0]), entries[-1]
        end = int(last["offset"]) + int(last["len"])
        some = entries.copy()
        some["offset"] = some["offset"] - first + len(self._data)
        self._entries.append(some)
        self._data += data[first:end]
        self.next_seq += len(entries)
        grown = self._segment.count + len(entries)
        self._segment = replace(self._segment, count=grown, data_bytes=len(self._data))
        if is_full(self._segment, self._settings):
            self.finish()
