"""Kafka's shared log, read beside its owner: nothing is locked or changed.

The checkpoint says which topics and segments there are; what came later is in the log, and is taken
as a start would take it: batch by batch, up to the first that is not whole. That is where the
owner writes right now, unless an event behind it says that it was synced: then it is damage. What
no checkpoint covers yet is synced here before it is shown: a loss of power must not give the offset
of a record that was shown to another one.

Whatever an owner at work could cause (a file that went, an index that was swapped) is an error that
says "read again".
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import (
    DamageError,
    FormatError,
    NewerFormatError,
    StorageError,
    SyncError,
)
from headwater.disk import Disk, File, OpenMode, map_file, opened, read_range
from headwater.format.checksum import checksum64
from headwater.format.kafka import events
from headwater.format.kafka.batch import read_sound
from headwater.format.kafka.checkpoint import (
    CHECKPOINT_HEADER,
    KafkaCheckpoint,
    SegmentMeta,
)
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    PREFIX_BYTES,
    Entries,
    Runs,
    count_entries,
    entry_key,
    find_runs,
    group_by_key,
    holes_in,
    keys_of,
    read_entries,
    topic_hash,
)
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    COPY_NAME,
    index_name,
    log_name,
)
from headwater.recovery.finding import Action
from headwater.recovery.history.kafka import own_runs
from headwater.recovery.kafka.survey import (
    check_known_entries,
    judge_begun,
    list_names,
    scan_checkpoints,
)
from headwater.recovery.kafka.table import CHECKPOINT_TABLE, IndexVerdict, Stray
from headwater.recovery.kafka.walk import (
    STRANGER,
    BatchVerdict,
    SeenTopic,
    SeenTopics,
    TakenBatch,
    Window,
    entries_known_synced,
    synced_and_bad,
    walk_batches,
)
from headwater.store.segment import SegmentChangedError

_ADVICE: Final = "see `headwater verify`, or restore a backup"
_NOTHING_TO_SYNC: Final = (errno.EROFS, errno.EINVAL, errno.ENOTSUP)
"""A file system that is read-only, or that does not know what a sync is."""
_REFUSED: Final = (BatchVerdict.NEWER, BatchVerdict.UNFOLLOWED)
"""No crash and no owner at work leaves such a batch."""


class SeenSegment(NamedTuple):
    """The batches of one index, and whose they are."""

    base_id: int
    entries: int
    checksum: int
    """Over those entries that the checkpoint covers."""
    runs: Runs
    by_key: dict[bytes, NDArray[numpy.int64]]


class OwnedBatches(NamedTuple):
    """The batches of one partition in order; one array element each."""

    offsets: NDArray[numpy.int64]
    """Of the first record of each."""
    counts: NDArray[numpy.int64]
    entries: Entries

    @property
    def end_offset(self) -> int:
        return int(self.offsets[-1] + self.counts[-1])


@dataclass(slots=True)
class _Young:
    """A segment of which something may be younger than the checkpoint's state."""

    meta: SegmentMeta
    sealed: bool
    listed: bool
    """The checkpoint knows all of it."""


def read_checkpoint(disk: Disk, directory: PurePath) -> KafkaCheckpoint:
    """What a start would go on from. An empty one when Kafka was never used here."""
    checkpoints = scan_checkpoints(disk, directory)
    first, checkpoint = checkpoints.first, checkpoints.chosen.checkpoint
    if checkpoint is not None:
        return checkpoint
    there = list_names(disk, directory)
    has_entries = bool(there.logs or there.indexes)  # it is there before they are
    row = CHECKPOINT_TABLE.decide(first.verdict, checkpoints.copy, has_entries)
    if row.action is Action.REFUSE_NEWER:
        raise NewerFormatError(first.what, path=first.path)
    if row.action.refuses:
        raise DamageError(first.what, path=first.path, offset=first.offset, advice=_ADVICE)
    return KafkaCheckpoint()


def _mark(disk: Disk, directory: PurePath) -> bytes:
    """Tells one checkpoint from another: the header, with the checksum of the rest."""
    for path in (directory / CHECKPOINT_NAME, directory / COPY_NAME):
        if disk.exists(path):
            return read_range(disk, path, 0, CHECKPOINT_HEADER.size)
    return b""


def scan_topics(disk: Disk, directory: PurePath) -> SeenTopics:
    """Only the topics, as of now: what was said about them, and none of their records.

    A DamageError may also mean what a crash left at the end: a `KafkaView` tells them apart.
    """
    mark = _mark(disk, directory)
    checkpoint = read_checkpoint(disk, directory)
    topics = SeenTopics(checkpoint)
    for young in _segments(disk, directory, checkpoint, mark):
        first = max(checkpoint.as_of - young.meta.base_id, 0)
        tail = _entries_from(disk, directory, young.meta.number, first)
        _take_events(disk, directory, young.meta.number, tail, young.meta.base_id + first, topics)
    return topics


class KafkaView:
    """All topics and where their batches are, as of now.

    `known` holds what was seen of segments that have not changed since; it is filled here.
    """

    def __init__(
        self, disk: Disk, directory: PurePath, known: dict[int, SeenSegment] | None = None
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._known = {} if known is None else known
        mark = _mark(disk, directory)
        self.checkpoint = read_checkpoint(disk, directory)
        self.topics = SeenTopics(self.checkpoint)
        self.segments: list[SeenSegment] = []
        numbers = set()
        for young in _segments(disk, directory, self.checkpoint, mark, all_of_them=True):
            self._take(young)
            numbers.add(young.meta.number)
        for number in self._known.keys() - numbers:
            del self._known[number]

    @property
    def position(self) -> object:
        """Equal for two views when nothing was written between them."""
        ends = [(segment.base_id, segment.entries) for segment in self.segments[-1:]]
        return self.checkpoint.as_of, len(self.segments), tuple(ends)

    def batches(self, topic: SeenTopic, index: int) -> OwnedBatches:
        """All batches of a partition, also those before its log start that are still there."""
        key = entry_key(topic.org, topic_hash(topic.org, topic.name), index)
        counts: list[NDArray[numpy.int64]] = []
        entries: list[Entries] = []
        for segment in self.segments:
            members = segment.by_key.get(key)
            if members is None:
                continue
            own = own_runs(segment.runs, members, segment.base_id, topic.made_id)
            counts.append(segment.runs.counts[own])
            entries.append(segment.runs.entries[own])
        if not entries:
            none = numpy.zeros(0, numpy.int64)
            return OwnedBatches(none, none, read_entries(b"", 0))
        joined = numpy.concatenate(counts)
        offsets = topic.partitions[index].dropped + numpy.cumsum(joined) - joined
        return OwnedBatches(offsets, joined, numpy.concatenate(entries))

    def _take(self, young: _Young) -> None:
        meta = young.meta
        seen = self._known.get(meta.number)
        if seen is not None and young.listed and self._is_unchanged(meta, seen):
            self.segments.append(seen)
            return
        checkpointed, checksum, meta = self._checkpointed_entries(meta)
        young.meta = meta
        first = max(self.checkpoint.as_of - meta.base_id, 0)
        if first < meta.entries:
            entries = read_entries(checkpointed, meta.entries)[first:]
            where = self._disk, self._directory, meta.number
            _take_events(*where, entries, meta.base_id + first, self.topics, owners=True)
        if seen is None or seen[:3] != (meta.base_id, meta.entries, checksum):
            runs = find_runs(read_entries(checkpointed, meta.entries))
            groups = dict(group_by_key(runs))
            seen = SeenSegment(meta.base_id, meta.entries, checksum, runs, groups)
        self._known[meta.number] = seen
        self.segments.append(seen if young.listed else self._grown(seen, young, checkpointed))

    def _is_unchanged(self, meta: SegmentMeta, seen: SeenSegment) -> bool:
        """It is what it was when it was last read, and says nothing about topics."""
        same = (meta.base_id, meta.entries, meta.checksum) == seen[:3] and meta.rewrite is None
        return same and meta.base_id + meta.entries <= self.checkpoint.as_of

    def _checkpointed_entries(self, meta: SegmentMeta) -> tuple[memoryview, int, SegmentMeta]:
        """The entries that the checkpoint knows, after a check of their checksum, that, and the
        segment as it is now."""
        path, size = self._directory / index_name(meta.number), meta.entries * ENTRY_BYTES
        view = map_file(self._disk, path)
        known = check_known_entries(meta, view)
        if known.verdict is not IndexVerdict.SOUND:
            raise DamageError(known.what, path=path, offset=known.offset, advice=_ADVICE)
        return view[:size], known.checksum, known.meta

    def _grown(self, seen: SeenSegment, young: _Young, checkpointed: memoryview) -> SeenSegment:
        """With the whole batches that came since the checkpoint."""
        meta = young.meta
        tail = _entries_from(self._disk, self._directory, meta.number, meta.entries)
        if not len(tail):
            return seen
        whole = self._whole(young, tail, checkpointed, seen.base_id + meta.entries)
        if whole and not young.sealed:  # an owner syncs a segment before it begins the next
            for name in (log_name(meta.number), index_name(meta.number)):
                with opened(self._disk, self._directory / name, OpenMode.READ) as file:
                    _sync(file)
        more = find_runs(tail[:whole])
        runs = Runs(
            numpy.concatenate((seen.runs.starts, more.starts + meta.entries)),
            numpy.concatenate((seen.runs.counts, more.counts)),
            numpy.concatenate((seen.runs.entries, more.entries)),
        )
        entries = meta.entries + whole
        return SeenSegment(seen.base_id, entries, seen.checksum, runs, dict(group_by_key(runs)))

    def _whole(self, young: _Young, tail: Entries, checkpointed: memoryview, first_id: int) -> int:
        """How many of these entries are of whole batches; events among them are taken in."""
        meta = young.meta
        path = self._directory / log_name(meta.number)

        with opened(self._disk, path, OpenMode.READ) as file:
            log, at, end = Window(file), 0, meta.log_bytes
            last = read_entries(checkpointed, meta.entries)[-1:]
            behind_hole = bool(holes_in(last).any())
            for batch in walk_batches(
                meta.number, tail, log, meta.log_bytes, behind_hole=behind_hole
            ):
                if batch.is_dead:
                    at += batch.records
                    continue
                problem = batch.problem
                if not problem:
                    taken = self.topics.take_batch(first_id + at, batch.key, batch.bytes)
                    if taken.verdict in _REFUSED:
                        raise _refused(taken, path, batch.offset)
                    problem = taken.problem
                if problem:
                    entries = numpy.concatenate((read_entries(checkpointed, meta.entries), tail))
                    synced = entries_known_synced(meta.number, entries, meta.entries + at, log)
                    if young.sealed or meta.entries + at < synced:
                        what = synced_and_bad(problem, meta.number, meta.entries + at)
                        raise DamageError(what, path=path, offset=end, advice=_ADVICE)
                    return at
                at += batch.records
                end = batch.end
            return at


def _sync(file: File) -> None:
    """What was read of this file stays, also when its owner has not synced it yet."""
    try:
        file.sync_data()
    except OSError as error:
        if error.errno not in _NOTHING_TO_SYNC:
            raise SyncError(f"sync failed: {error.strerror}", path=file.path) from error


def _segments(
    disk: Disk,
    directory: PurePath,
    checkpoint: KafkaCheckpoint,
    mark: bytes,
    *,
    all_of_them: bool = False,
) -> Iterator[_Young]:
    """Segments in the order of their ids: those with something young, or all of them.

    One that the checkpoint does not know yet is known by its name alone. None of those went
    unseen: an owner writes a checkpoint before it deletes a segment, so there is another one then.
    """
    known = checkpoint.segments
    if not disk.is_directory(directory):
        return
    names = list_names(disk, directory)
    young = [number for number in names.later(checkpoint) if number in names.logs]
    sizes = {n: len(_entries_from(disk, directory, n, 0)) for n in young}
    later = [n for n in young if sizes[n]]
    for number in (n for n in young if not sizes[n]):
        if judge_begun(disk, directory, number) is Stray.EMPTIED:
            path = directory / index_name(number)
            if len(_entries_from(disk, directory, number, 0)):
                raise SegmentChangedError(f"{path} was written to; read it again")
            raise DamageError(Stray.EMPTIED.value, path=path, offset=0, advice=_ADVICE)
    if _mark(disk, directory) != mark:
        raise SegmentChangedError(f"{directory} has a newer checkpoint; read it again")
    for at, meta in enumerate(known, 1):
        listed = at < len(known)
        if all_of_them or not listed or meta.base_id + meta.entries > checkpoint.as_of:
            yield _Young(meta, listed or bool(later), listed)
    if not later:
        return
    base_id = 0
    if known:
        newest = known[-1]
        grown = len(_entries_from(disk, directory, newest.number, newest.entries))
        base_id = newest.base_id + newest.entries + grown
    for number in later:
        fresh = SegmentMeta(number, base_id, 0, 0, checksum64(b""), number)
        yield _Young(fresh, number != later[-1], False)
        base_id += sizes[number]


def _entries_from(disk: Disk, directory: PurePath, number: int, first: int) -> Entries:
    """The entries of an index from this one on, read and not mapped: it may be cut at its end."""
    start = first * ENTRY_BYTES
    with opened(disk, directory / index_name(number), OpenMode.READ) as file:
        contents = file.read(start, max(file.size() - start, 0))
    return read_entries(
        contents, count_entries(contents[: len(contents) // ENTRY_BYTES * ENTRY_BYTES])
    )


def _take_events(
    disk: Disk,
    directory: PurePath,
    number: int,
    entries: Entries,
    first_id: int,
    topics: SeenTopics,
    *,
    owners: bool = False,
) -> None:
    """Take in the events among these entries. One that is not sound may have told of a deletion.

    `owners`: the others must each be of a topic that exists by then.
    """
    path, done = directory / log_name(number), 0
    ours = numpy.flatnonzero(keys_of(entries) == _event_key())
    ours = ours[~holes_in(entries[ours])]
    if not entries["length"][ours].all():  # a newer checkpoint has what they said
        raise SegmentChangedError(f"{index_name(number)} was rewritten; read it again")
    if len(ours):
        with opened(disk, path, OpenMode.READ) as file:
            for at in ours.tolist():
                if owners:
                    _check_owners(path, entries[done:at], topics)
                done = at + 1
                begin = int(entries["physical_offset"][at]) + PREFIX_BYTES
                batch = memoryview(file.read(begin, int(entries["length"][at])))
                _take_event(path, begin, batch, first_id + at, topics)
    if owners:
        _check_owners(path, entries[done:], topics)


def _take_event(
    path: PurePath, begin: int, batch: memoryview, event_id: int, topics: SeenTopics
) -> None:
    try:
        read_sound(batch)
    except FormatError as error:
        raise DamageError(error.reason, path=path, offset=begin, advice=_ADVICE) from error
    taken = topics.take_event(event_id, batch)
    if taken.verdict in _REFUSED:
        raise _refused(taken, path, begin - PREFIX_BYTES)


def _event_key() -> numpy.void:
    """As `keys_of` gives it."""
    key: numpy.void = numpy.frombuffer(events.INTERNAL_KEY, f"V{len(events.INTERNAL_KEY)}")[0]
    return key


def _check_owners(path: PurePath, entries: Entries, topics: SeenTopics) -> None:
    stored = find_runs(entries[entries["length"] > 0]).entries
    event_key = _event_key()
    for at, key in enumerate(keys_of(stored)):
        if key != event_key and not topics.owns(key.tobytes()):
            offset = int(stored["physical_offset"][at])
            raise DamageError(STRANGER, path=path, offset=offset, advice=_ADVICE)


def _refused(taken: TakenBatch, path: PurePath, offset: int) -> StorageError:
    if taken.verdict is BatchVerdict.NEWER:
        return NewerFormatError(taken.problem, path=path)
    return DamageError(taken.problem, path=path, offset=offset, advice=_ADVICE)
