"""From a replayed topic to the segments it must have: one item of work for each.

An item says where the bytes of one segment come from, never the bytes themselves. Where segments
end is decided from lengths alone, by the rule the engine fills segments by, so items are
independent: a topic of a thousand segments is a thousand items.

Writing one is the last step of a checkpoint in bulk. Bytes are made by the engine's own
`encode_run`, written under a temporary name, synced and renamed, the index last. Names are made
durable for all segments together, before the snapshot that makes them count; until then every run
compares what is there, byte for byte, and writes the rest. So a task that is killed, or run twice,
does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

import numpy
from numpy.typing import NDArray

from headwater.config.store import SegmentSettings
from headwater.core.errors import DamageError, FormatError
from headwater.disk import Buffer, Disk, read_all, read_range
from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import (
    ENTRY_BYTES,
    FAULT_MEANING,
    INDEX_ENTRY,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    FrameFault,
    FrameState,
    IndexFlag,
    SegmentFile,
    SegmentPart,
    WalSlice,
    encode_run,
    first_checksum,
    frame_faults,
    identity_of,
    index_flags,
    salt_of,
    seal_checks,
    segment_file_name,
    topic_directory_name,
)
from headwater.format.segment.run import at_each_byte
from headwater.format.snapshot import TopicMeta
from headwater.recovery.topics.catalog import KnownTopic
from headwater.spark.jobs.log_files import LoggedRows, MappedFiles
from headwater.spark.jobs.topic_replay import Counts, Place, TopicReplay
from headwater.store.appender import is_full, room_for
from headwater.store.cold_tier import open_cold_tier
from headwater.store.pair import RecordDamage, create_file, end_of
from headwater.store.reclaim import choose_drops
from headwater.store.segment import Segment, file_work
from headwater.store.segment_stores import LocalSegmentStore, temporary_path
from headwater.store.tier import cold_index_bytes, flagged_copy
from headwater.store.topic_files import TopicFiles

_NOTHING = numpy.empty(0, numpy.int64)


@dataclass(frozen=True, slots=True)
class Base:
    """A segment that is there: taken over whole, with these records deleted."""

    segment: Segment
    directory: str
    deleted: NDArray[numpy.int64]
    """Seqs, ascending."""


@dataclass(frozen=True, slots=True)
class FrameSource:
    """Records behind each other in one log file; no path for dead ones that are in none."""

    path: str | None
    offsets: NDArray[numpy.int64]


@dataclass(frozen=True, slots=True)
class SegmentItem:
    topic_id: int
    first_seq: int
    base: Base | None
    entries: Entries
    """Of the records behind the base: lengths, times and which are dead. Offsets are not set."""
    sources: tuple[FrameSource, ...] = ()

    @property
    def is_cold(self) -> bool:
        return self.base is not None and self.base.segment.is_cold

    @property
    def data_bytes(self) -> int:
        """What there is to write."""
        base = 0 if self.base is None or self.is_cold else self.base.segment.data_bytes
        return base + int(self.entries["len"].sum(dtype=numpy.int64))


@dataclass(frozen=True, slots=True)
class PlanTask:
    """One topic to be planned, and what that needs to know."""

    known: KnownTopic
    directory: str | None
    """Of its segments; None when there is only the log."""
    cold: str | None
    settings: SegmentSettings
    now_ms: int
    clean_runs: tuple[int, ...]
    """Runs of the log that ended with a clean stop."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    meta: TopicMeta
    counts: Counts
    items: list[SegmentItem] = field(default_factory=list)


def plan_topic(disk: Disk, task: PlanTask, history: list[LoggedRows]) -> TopicPlan:
    """What a full checkpoint of the topic would leave on the disk, as work to do."""
    known = task.known
    files, findings = _files(disk, task)
    if files is not None and known.meta is not None and not known.touched and not known.is_behind:
        segments = files.load(
            known.checkpointed_seq,
            known.stored.active_first_seq,
            known.stored.active_data_bytes,
            known.stored.first_needed,
        )
        kept = _without_dropped(segments, known.stored.first_needed)
        place = str(files.directory)
        items = [_copy(known.topic_id, Base(segment, place, _NOTHING)) for segment in kept]
        return TopicPlan(known.meta, Counts(), items)
    replayed = TopicReplay(known, files, MappedFiles(disk), findings, task.clean_runs)
    replayed.replay(history)
    replayed.finish(task.now_ms)
    return _Planner(task, replayed).plan()


def _files(disk: Disk, task: PlanTask) -> tuple[TopicFiles | None, list[RecordDamage]]:
    findings: list[RecordDamage] = []
    if task.directory is None:
        return None, findings
    cold = None if task.cold is None else open_cold_tier(disk, task.cold)
    store = None if cold is None else cold.topic(task.known.topic_id)
    place = PurePath(task.directory)
    files = TopicFiles(
        disk, place, task.settings, cold=store, report=findings.append, read_only=True
    )
    return files, findings


def is_dead(entries: Entries) -> NDArray[numpy.bool_]:
    """Which of the records get an empty frame."""
    dead: NDArray[numpy.bool_] = index_flags(entries) & IndexFlag.DELETED != 0
    return dead


def _without_dropped(segments: list[Segment], earliest_seq: int) -> list[Segment]:
    gone = {segment.first_seq for segment in choose_drops(segments, earliest_seq)}
    return [segment for segment in segments if segment.first_seq not in gone]


def _copy(topic_id: int, base: Base) -> SegmentItem:
    return SegmentItem(topic_id, base.segment.first_seq, base, numpy.empty(0, INDEX_ENTRY.dtype))


class _Planner:
    def __init__(self, task: PlanTask, replayed: TopicReplay) -> None:
        self._task = task
        self._replayed = replayed
        self._topic_id = task.known.topic_id
        self._deleted = numpy.unique(numpy.concatenate([_NOTHING, *replayed.unflagged]))

    def plan(self) -> TopicPlan:
        replayed = self._replayed
        log = replayed.log
        reached = self._task.known.checkpointed_seq if replayed.files is not None else 0
        last = log.visible_seq
        if replayed.logged_upto is not None:
            last = min(last, replayed.logged_upto)
        # What was evicted before it reached a segment never goes there.
        first = max(reached + 1, log.earliest_seq)
        active = replayed.active
        segments = list(replayed.segments)
        items: dict[int, SegmentItem] = {
            segment.first_seq: _copy(self._topic_id, self._base(segment)) for segment in segments
        }
        if first <= last and replayed.places:
            if active is not None and active.end_seq + 1 != first:
                segments[-1] = replace(active, sealed=True)
                active = None
            for item, segment in self._fill(active, first, last):
                items[item.first_seq] = item
                if segments and segments[-1].first_seq == segment.first_seq:
                    segments.pop()
                segments.append(segment)
        if segments and not segments[-1].sealed and segments[-1].end_seq < last:
            segments[-1] = replace(segments[-1], sealed=True)
        replayed.counts.left_out = _records_below(replayed.places, first)
        kept = _without_dropped(segments, log.earliest_seq)
        chosen = [items[segment.first_seq] for segment in kept]
        meta = self._meta(max(reached, last), segments)
        return TopicPlan(meta, replayed.counts, chosen)

    def _deleted_in(self, segment: Segment) -> NDArray[numpy.int64]:
        base_seq = self._replayed.log.index.base_seq
        low, high = numpy.searchsorted(
            self._deleted, (max(segment.first_seq, base_seq), segment.end_seq + 1)
        )
        return self._deleted[low : max(high, low)]

    def _fill(
        self, active: Segment | None, first_seq: int, last_seq: int
    ) -> Iterator[tuple[SegmentItem, Segment]]:
        """The active segment grown, then new ones, each up to the record that fills it."""
        entries = self._replayed.log.index.entries(first_seq, last_seq)
        entries["len"][is_dead(entries)] = SEGMENT_FRAME_BYTES_MIN
        sources = _Sources(self._replayed.places, first_seq)
        settings = self._task.settings
        done = 0
        while done < len(entries):
            segment = active or Segment(first_seq + done, 0, 0, False, int(entries["ts"][done]))
            some = entries[done : done + settings.segment_max_events]
            stop = done + room_for(segment, some, settings)
            new = entries[done:stop]
            grown = replace(
                segment,
                count=segment.count + len(new),
                data_bytes=segment.data_bytes + int(new["len"].sum(dtype=numpy.int64)),
            )
            base = None if active is None else self._base(active)
            taken = sources.take(len(new))
            item = SegmentItem(self._topic_id, segment.first_seq, base, new, taken)
            yield item, replace(grown, sealed=is_full(grown, settings))
            active, done = None, stop

    def _base(self, segment: Segment) -> Base:
        assert self._task.directory is not None
        return Base(segment, self._task.directory, self._deleted_in(segment))

    def _meta(self, checkpointed_seq: int, segments: list[Segment]) -> TopicMeta:
        replayed, known = self._replayed, self._task.known
        log = replayed.log
        active = segments[-1] if segments and not segments[-1].sealed else None
        return TopicMeta(
            topic_id=known.topic_id,
            name=known.name,
            epoch=known.epoch,
            settings=log.settings.to_stored(),
            head_seq=log.visible_seq,
            ceiling=min(replayed.ceiling, log.visible_seq),
            evict_floor=log.evict_floor,
            earliest_seq=log.earliest_seq,
            delete_below=log.delete_below,
            eviction_reason=int(log.losses),
            count=log.count,
            bytes=log.bytes,
            last_ts=replayed.last_ts,
            checkpointed_seq=checkpointed_seq,
            active_first_seq=0 if active is None else active.first_seq,
            active_data_bytes=0 if active is None else active.data_bytes,
            keys=tuple(replayed.keys.entries()),
            queue=None if replayed.leases is None else replayed.leases.meta(),
        )


def _records_below(places: list[Place], seq: int) -> int:
    """Records of the log whose seq is below."""
    return sum(
        min(max(seq - place.first_seq, 0), len(place.offsets))
        for place in places
        if place.path is not None
    )


class _Sources:
    """Takes the places of the next so many seqs."""

    def __init__(self, places: list[Place], first_seq: int) -> None:
        self._places = [
            place for place in places if place.first_seq + len(place.offsets) > first_seq
        ]
        self._at = 0
        self._skipped = max(first_seq - self._places[0].first_seq, 0) if self._places else 0

    def take(self, count: int) -> tuple[FrameSource, ...]:
        taken: list[FrameSource] = []
        while count:
            place = self._places[self._at]
            offsets = place.offsets[self._skipped : self._skipped + count]
            taken.append(FrameSource(place.path, offsets))
            count -= len(offsets)
            self._skipped += len(offsets)
            if self._skipped == len(place.offsets):
                self._at, self._skipped = self._at + 1, 0
        return tuple(taken)


_DEAD: Final = numpy.uint8(IndexFlag.DELETED | IndexFlag.LOST)
_ON_DISK: Final = numpy.uint32(0xFF & ~int(IndexFlag.IN_WAL | IndexFlag.DAMAGED))
_NO_BYTES = memoryview(b"")
_UNFINISHED_DELETES: Final = (FrameFault.DELETED, FrameFault.NOT_DELETED)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one item."""

    topic_id: int
    first_seq: int
    records: int
    """Live ones that came from the log."""
    dead: int
    data_bytes: int
    skipped: bool
    """It was there, as it should be."""


def write_segment(disk: Disk, output: PurePath, item: SegmentItem) -> Written:
    directory = output / TOPICS_DIRECTORY / topic_directory_name(item.topic_id)
    if item.is_cold:
        return _point(disk, directory, item)
    wanted = expected_entries(disk, item)
    store = LocalSegmentStore(disk, directory)
    skipped = _is_there(store, item, wanted)
    if not skipped:
        data = _data(disk, item)
        if len(data) != end_of(wanted):
            raise DamageError(
                f"{len(data)} bytes were made of records that have {end_of(wanted)}",
                path=store.path_of(item.first_seq, SegmentPart.DATA),
                advice="the log was changed while it was read; run the job again",
            )
        _name(item, wanted, data)
        with file_work(directory):
            disk.make_directory(directory)
            for part, contents in ((SegmentPart.DATA, data), (SegmentPart.IDX, wanted.tobytes())):
                _replace(disk, store.path_of(item.first_seq, part), contents)
    return _written_of(item, end_of(wanted), skipped)


def _replace(disk: Disk, path: PurePath, contents: Buffer) -> None:
    """New bytes under this name. The bytes are durable on return, the name is not."""
    temporary = temporary_path(path)
    create_file(disk, temporary, contents)
    disk.rename(temporary, path)


def expected_entries(disk: Disk, item: SegmentItem) -> Entries:
    """The index of the segment as it must be, known before any payload is read."""
    new = item.entries.copy()
    flags = index_flags(new)
    flags = numpy.where(is_dead(new), flags & _DEAD, flags).astype(numpy.uint32) & _ON_DISK
    new["flags_check"] = flags
    if item.base is None:
        base, salt = new[:0], 0
    else:
        base, salt = _base_entries(disk, item.base), item.base.segment.salt
    ends = end_of(base) + numpy.cumsum(new["len"], dtype=numpy.int64)
    new["offset"] = ends - new["len"]
    seal_checks(new, item.first_seq + len(base), salt)
    return numpy.concatenate((base, new))


def _base_entries(disk: Disk, base: Base) -> Entries:
    """The index of a segment that is there, what was bad in it read again, deletes flagged."""
    files = TopicFiles(disk, PurePath(base.directory), SegmentSettings(), read_only=True)
    entries = files.index(base.segment)
    return flagged_copy(entries, base.segment, base.deleted)


def _name(item: SegmentItem, entries: Entries, data: bytes | bytearray) -> None:
    """Seal the entries with whose segment it is. One that grows has it already, or never had."""
    if item.base is None:
        identity = identity_of(item.topic_id, first_checksum(data))
        seal_checks(entries, item.first_seq, salt_of(identity))


def _is_there(store: LocalSegmentStore, item: SegmentItem, wanted: Entries) -> bool:
    """Whole and the same: the index byte for byte, every frame by its checksum."""
    first_seq = item.first_seq
    if not store.exists(first_seq, SegmentPart.IDX) or not store.exists(
        first_seq, SegmentPart.DATA
    ):
        return False
    if store.len(first_seq, SegmentPart.IDX) != len(wanted) * ENTRY_BYTES:
        return False
    if store.len(first_seq, SegmentPart.DATA) != end_of(wanted):
        return False
    data = store.read_range(first_seq, SegmentPart.DATA, 0, end_of(wanted))
    _name(item, wanted, data)
    idx = store.read_range(first_seq, SegmentPart.IDX, 0, len(wanted) * ENTRY_BYTES)
    if idx != wanted.tobytes():
        return False
    return not frame_faults(data, wanted, first_seq).any()


def _data(disk: Disk, item: SegmentItem) -> bytearray:
    data = bytearray()
    if item.base is not None:
        data += _base_data(disk, item.base)
    if len(item.entries):
        mapped = MappedFiles(disk)
        slices = [
            WalSlice(_NO_BYTES if source.path is None else mapped.view(source.path), source.offsets)
            for source in item.sources
        ]
        dead = numpy.where(is_dead(item.entries), index_flags(item.entries) & _DEAD, 0)
        first_seq = item.first_seq + (0 if item.base is None else item.base.segment.count)
        try:
            made, _ = encode_run(slices, first_seq, dead.astype(numpy.uint8), item.entries["ts"])
        except FormatError as error:
            path = next(source.path for source in item.sources if source.path is not None)
            raise DamageError(error.reason, path=path, offset=error.offset) from error
        data += made
    return data


def _base_data(disk: Disk, base: Base) -> bytearray:
    """The frames that are there, those of deleted records flagged. Damage is not taken over."""
    segment = base.segment
    path = PurePath(base.directory) / segment_file_name(segment.first_seq, SegmentFile.DATA)
    with file_work(path):
        data = bytearray(read_range(disk, path, 0, segment.data_bytes))
    entries = _base_entries(disk, base)
    ends = entries["offset"].astype(numpy.int64) + entries["len"]
    inside = base.deleted[ends[base.deleted - segment.first_seq] <= len(data)]
    at_each_byte(data, "<u1")[ends[inside - segment.first_seq] - 1] = FrameState.DELETED
    faults = frame_faults(data, entries, segment.first_seq)
    faults[numpy.isin(faults, _UNFINISHED_DELETES)] = FrameFault.NONE
    if faults.any():
        position = int(faults.argmax())
        meaning = FAULT_MEANING[FrameFault(int(faults[position]))]
        raise DamageError(
            f"seq {segment.first_seq + position}: {meaning}",
            path=path,
            offset=int(entries["offset"][position]),
            advice="`headwater pipeline verify` lists everything; restore a backup",
        )
    return data


def _point(disk: Disk, directory: PurePath, item: SegmentItem) -> Written:
    """A segment of the cold tier stays there; the index that points at it is taken over."""
    assert item.base is not None
    segment = item.base.segment
    entries = _base_entries(disk, item.base)
    contents = cold_index_bytes(entries, segment.first_seq, segment.data_bytes, segment.identity)
    path = directory / segment_file_name(segment.first_seq, SegmentFile.COLD)
    with file_work(path):
        skipped = disk.exists(path) and read_all(disk, path) == contents
        if not skipped:
            disk.make_directory(directory)
            _replace(disk, path, contents)
    return _written_of(item, 0, skipped)


def _written_of(item: SegmentItem, data_bytes: int, skipped: bool) -> Written:
    dead = int(is_dead(item.entries).sum())
    live = len(item.entries) - dead
    return Written(item.topic_id, item.first_seq, live, dead, data_bytes, skipped)
