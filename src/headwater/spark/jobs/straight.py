"""Rows straight to sealed segments of a new topic, by every task at once, without a server.

Each partition is counted first, so that its rows have their seqs before they are written; then
each task writes its own segments. A task that is run again writes the same bytes to the same
names. Only when all are there does the topic come to be: see `new_topic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.store import SegmentSettings
from headwater.config.topic import TopicSettings
from headwater.core.durability import Durability
from headwater.core.errors import DamageError, RequestError
from headwater.disk import Disk, PosixDisk
from headwater.format.appends import encode_appends
from headwater.format.frame import FrameFlag
from headwater.format.segment import (
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    WalSlice,
    encode_run,
    first_checksum,
    identity_of,
    salt_of,
    seal_checks,
)
from headwater.spark.jobs.log_directories import owned, require_data_directory
from headwater.spark.jobs.new_topic import SegmentDone, add, reserve
from headwater.spark.jobs.origins import CARRIED, DATA, NODE, TAG
from headwater.spark.runtime.arrow_schema import to_spark
from headwater.spark.sink.json_columns import json_objects, json_texts
from headwater.store.appender import is_full, room_for
from headwater.store.segment import Segment
from headwater.store.segment_stores import LocalSegmentStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
