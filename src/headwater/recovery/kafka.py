"""Opening Kafka's shared log: the checkpoint, the indexes, and the tail nobody vouched for.

What the checkpoint knows as synced is held against its checksums and refused when it differs; of a
log only its length is looked at. What came later is walked batch by batch, and in the last segment
the first batch that is not whole is cut together with everything behind it, unless an event behind
it says that it was synced: then it is damage and refused like any other. Files that nothing
leads to are what a crash left of a rewrite or of a new segment: they are removed.

Keeps I4, I5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple, TypeVar

import msgspec
import numpy

from headwater.core.errors import DamageError, FormatError, NewerFormatError, StorageError
from headwater.core.units import MIB
from headwater.disk import Disk, File, OpenMode, read_whole, sync_file, sync_names, write_all
from headwater.format.checksum import RunningChecksum, checksum64
from headwater.format.kafka.batch import BatchHeader
from headwater.format.kafka.checkpoint import (
    KafkaCheckpoint,
    SegmentMeta,
    decode_checkpoint,
    rewritten,
)
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    PREFIX_BYTES,
    count_entries,
    entry_key,
    read_entries,
)
from headwater.format.kafka.events import (
    INTERNAL_KEY,
    PREDECESSOR_MISSING,
    AnyEvent,
    PartitionsAdded,
    SegmentBegun,
    TopicMade,
    decode_event,
)
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    REWRITE_SUFFIX,
    KafkaFile,
    index_name,
    log_name,
    parse_name,
)
from headwater.format.kafka.topic_hash import topic_hash
from headwater.recovery.kafka_batches import Walked, walk_batches
from headwater.recovery.kafka_synced import entries_known_synced, synced_and_bad
from headwater.store.pair import with_file

_CHECKPOINT_BYTES_MAX = 2**31
_PIECE_BYTES = 4 * MIB
Answer = TypeVar("Answer")
_RESTORE = "restore a backup"
_UPDATE = "open it with the version that wrote it"


class TailBatch(NamedTuple):
    """A batch that is younger than the checkpoint's state."""

    first_id: int
    key: bytes
    header: BatchHeader
    event: AnyEvent | None


class Cut(NamedTuple):
    """What was behind the last whole batch."""

    path: PurePath
    offset: int
    entries: int
    reason: str


@dataclass
class RecoveredKafka:
    checkpoint: KafkaCheckpoint
    segments: list[SegmentMeta] = field(default_factory=list)
    """In the order of global ids; the last one is written on."""
    tail: list[TailBatch] = field(default_factory=list)
    checksum: RunningChecksum = field(default_factory=RunningChecksum)
    """Over the entries of the last segment."""
    next_number: int = 0
    cut: Cut | None = None


def recover_kafka(
    disk: Disk, directory: PurePath, progress: Callable[[float], None] | None = None
) -> RecoveredKafka | None:
    """What the directory holds, mended. None when there is nothing yet."""
    found = _Survey(disk, directory)
    path = directory / CHECKPOINT_NAME
    if not disk.exists(path):
        if found.indexes:
            raise DamageError("the checkpoint is missing", path=path, advice=_RESTORE)
        return None
    try:
        checkpoint = decode_checkpoint(read_whole(disk, path, _CHECKPOINT_BYTES_MAX))
    except FormatError as error:
        raise DamageError(error.reason, path=path, offset=error.offset, advice=_RESTORE) from error
    except NewerFormatError as error:
        raise NewerFormatError(error.what, path=path, advice=_UPDATE) from error
    recovered = RecoveredKafka(checkpoint)
    recovered.next_number = max([-1, *found.logs, *found.indexes]) + 1
    _Opening(disk, directory, found, recovered).run(progress or (lambda _: None))
    return recovered


class _Survey:
    """Which files there are."""

    def __init__(self, disk: Disk, directory: PurePath) -> None:
        self.logs: set[int] = set()
        self.indexes: set[int] = set()
        self.strays: list[str] = []
        for name in disk.list_directory(directory):
            parsed = parse_name(name)
            if parsed is not None:
                (self.logs if parsed[1] is KafkaFile.LOG else self.indexes).add(parsed[0])
            elif name.endswith(REWRITE_SUFFIX):
                self.strays.append(name)


class _Opening:
    def __init__(
        self, disk: Disk, directory: PurePath, found: _Survey, recovered: RecoveredKafka
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._found = found
        self._recovered = recovered
        self._referenced: set[int] = set()
        self._keys: set[bytes] | None = None

    def run(self, progress: Callable[[float], None]) -> None:
        recovered, known = self._recovered, self._recovered.checkpoint.segments
        later = self._later_segments(known[-1].number if known else -1)
        for at, meta in enumerate(known):
            progress(at / (len(known) + len(later)))
            sealed = at + 1 < len(known) or bool(later)
            self._take(meta, sealed=sealed, listed=at + 1 < len(known))
        for at, number in enumerate(later):
            progress((at + len(known)) / (len(known) + len(later)))
            base = recovered.segments[-1] if recovered.segments else None
            base_id = 0 if base is None else base.base_id + base.entries
            fresh = SegmentMeta(number, base_id, 0, 0, checksum64(b""), number)
            self._take(fresh, sealed=at + 1 < len(later), listed=False)
        # An empty last segment is written on: the checkpoint may list it, and the one before it may
        # be rewritten by now, or gone with its ids.
        self._remove_strays()

    def _later_segments(self, last_known: int) -> list[int]:
        """Segments made after the checkpoint, up to the last one that has an entry.

        Others are what a crash left of a new segment, or the log of a rewrite, which has none.
        """
        later = sorted(n for n in self._found.indexes if n > last_known)
        later = [n for n in later if count_entries(self._view(index_name(n)))]
        for number in later:
            if number not in self._found.logs:
                raise self._damage(log_name(number), 0, "a file is missing")
        return later

    def _view(self, name: str) -> memoryview:
        return self._look(name, lambda file: file.view())

    def _size(self, name: str) -> int:
        return self._look(name, lambda file: file.size())

    def _look(self, name: str, work: Callable[[File], Answer]) -> Answer:
        path = self._directory / name
        try:
            return with_file(self._disk, path, OpenMode.READ, work)
        except FileNotFoundError as error:
            raise DamageError("a file is missing", path=path, advice=_RESTORE) from error

    def _take(self, meta: SegmentMeta, *, sealed: bool, listed: bool) -> None:
        """One segment. `sealed`: another follows. `listed`: the checkpoint knows it was sealed."""
        name = index_name(meta.number)
        view = self._view(name)
        meta = self._hold_against(meta, view, name)
        count = meta.entries if listed else count_entries(view)
        if count < meta.entries:
            raise self._damage(name, count * ENTRY_BYTES, "entries that were synced are gone")
        if sealed and len(view) != count * ENTRY_BYTES:
            raise self._damage(name, count * ENTRY_BYTES, "the index of a full segment has a hole")
        entries = read_entries(view, count)
        known = entries[: meta.entries]
        self._referenced.update(numpy.unique(known["segment_id"][known["length"] > 0]).tolist())
        end = msgspec.structs.replace(meta, entries=count)
        if not listed:
            end = self._walk(meta, view, count, sealed=sealed)
            self._referenced.add(meta.number)
        elif self._recovered.checkpoint.as_of < meta.base_id + meta.entries:
            self._walk(meta, view, count, sealed=True)
        self._check_log(end, sealed=sealed)
        checksum = RunningChecksum()
        checksum.update(view[: end.entries * ENTRY_BYTES])
        if not sealed:
            self._settle(meta, end)
        self._recovered.checksum = checksum
        self._recovered.segments.append(msgspec.structs.replace(end, checksum=checksum.value()))

    def _hold_against(self, meta: SegmentMeta, view: memoryview, name: str) -> SegmentMeta:
        """The segment as it is: before the rewrite that was about to be done, or after it."""
        size = meta.entries * ENTRY_BYTES
        if len(view) < size:
            raise self._damage(name, len(view), f"the index ends before byte {size}")
        found, rewrite = checksum64(view[:size]), meta.rewrite
        if rewrite is not None and found == rewrite.checksum:
            return rewritten(meta)
        if found != meta.checksum:
            raise self._damage(name, 0, "the entries are not those that were synced")
        return msgspec.structs.replace(meta, rewrite=None)

    def _check_log(self, meta: SegmentMeta, *, sealed: bool) -> None:
        """By its length alone: its bytes are looked at when somebody reads them."""
        if sealed and meta.log_number not in self._referenced:
            return  # all its records are dead, and the log went already or goes now
        name = log_name(meta.log_number)
        size = self._size(name)
        if size < meta.log_bytes or (sealed and size != meta.log_bytes):
            what = f"the log has {size} bytes and should have {meta.log_bytes}"
            raise self._damage(name, min(size, meta.log_bytes), what)

    def _walk(
        self, meta: SegmentMeta, view: memoryview, count: int, *, sealed: bool
    ) -> SegmentMeta:
        """Check what the checkpoint does not vouch for, and take in what is new since then.

        Returns the segment up to its last whole batch.
        """
        start = min(max(self._recovered.checkpoint.as_of - meta.base_id, 0), meta.entries)
        log = self._view(log_name(meta.number)) if count > start else memoryview(b"")
        offset = meta.log_bytes if start == meta.entries else self._end_before(view, start)
        entries = read_entries(view, count)
        at = start
        for batch in walk_batches(meta.number, entries[start:], log, offset):
            reason = batch.problem
            if not reason and batch.header is not None:
                reason = self._note(meta.number, meta.base_id + at, batch)
            if reason:
                name = log_name(meta.number)
                if sealed or at < meta.entries:
                    raise self._damage(name, batch.offset, reason)
                if at < entries_known_synced(meta.number, entries, at, lambda a, b: log[a:b]):
                    raise self._damage(name, batch.offset, synced_and_bad(reason, meta.number, at))
                self._recovered.cut = Cut(self._directory / name, batch.offset, count - at, reason)
                return msgspec.structs.replace(meta, entries=at, log_bytes=batch.offset)
            at += batch.records
            offset = batch.end
        end = max(offset, meta.log_bytes)
        return msgspec.structs.replace(meta, entries=at, log_bytes=end)

    def _note(self, number: int, first_id: int, batch: Walked) -> str:
        """Keep a sound batch for the state. Returns why it cannot be ours, if it cannot."""
        assert batch.header is not None
        event: AnyEvent | None = None
        if batch.key == INTERNAL_KEY:
            try:
                event = decode_event(batch.bytes)
            except FormatError as error:
                raise NewerFormatError(
                    error.reason, path=self._directory, advice=_UPDATE
                ) from error
            if isinstance(event, SegmentBegun) and event.base_id != first_id:
                raise self._damage(log_name(number), batch.offset, PREDECESSOR_MISSING)
            self._register(event)
        elif batch.key not in self._registered():
            return "the entries are of a topic that does not exist"
        self._recovered.tail.append(TailBatch(first_id, batch.key, batch.header, event))
        return ""

    def _registered(self) -> set[bytes]:
        if self._keys is None:
            self._keys = set()
            self._names: dict[bytes, tuple[int, bytes]] = {}
            for topic in self._recovered.checkpoint.topics:
                self._add(topic.topic_id, topic.org, topic.name, len(topic.partitions))
        return self._keys

    def _register(self, event: AnyEvent) -> None:
        self._registered()
        if isinstance(event, TopicMade):
            self._add(event.topic_id, event.org, event.name, event.partitions)
        elif isinstance(event, PartitionsAdded) and event.topic_id in self._names:
            self._add_keys(*self._names[event.topic_id], event.total)

    def _add(self, topic_id: bytes, org: int, name: str, partitions: int) -> None:
        self._names[topic_id] = (org, topic_hash(org, name))
        self._add_keys(*self._names[topic_id], partitions)

    def _add_keys(self, org: int, hashed: bytes, partitions: int) -> None:
        assert self._keys is not None
        self._keys.update(entry_key(org, hashed, number) for number in range(partitions))

    def _end_before(self, view: memoryview, position: int) -> int:
        """Where the batch of the entry before this one ends."""
        if position == 0:
            return 0
        entry = read_entries(view, position)[-1]
        return int(entry["physical_offset"]) + PREFIX_BYTES + int(entry["length"])

    def _settle(self, known: SegmentMeta, end: SegmentMeta) -> None:
        """Cut both files behind the last whole batch, and make what is before it durable.

        What nobody vouched for is written again before it is synced: after a failed sync the
        kernel may show pages that it will never write (docs/decisions/0009).
        """
        places = {
            index_name(end.number): (known.entries * ENTRY_BYTES, end.entries * ENTRY_BYTES),
            log_name(end.number): (known.log_bytes, end.log_bytes),
        }
        for name, (start, stop) in places.items():
            file = self._disk.open(self._directory / name, OpenMode.UPDATE)
            try:
                if file.size() != stop:
                    file.truncate(stop)
                for at in range(start, stop, _PIECE_BYTES):
                    write_all(file, at, [file.read(at, min(_PIECE_BYTES, stop - at))])
                sync_file(file)
            finally:
                file.close()

    def _remove_strays(self) -> None:
        recovered, found = self._recovered, self._found
        indexes = {meta.number for meta in recovered.segments}
        last = {recovered.segments[-1].number} if recovered.segments else set()
        doomed = [index_name(n) for n in found.indexes - indexes - self._referenced]
        doomed += [log_name(n) for n in found.logs - self._referenced - last]
        doomed += found.strays
        for name in doomed:
            self._disk.unlink(self._directory / name)
        if doomed:
            sync_names(self._disk, self._directory)

    def _damage(self, name: str, offset: int, what: str) -> StorageError:
        path = self._directory / name
        return DamageError(what, path=path, offset=offset, advice=_RESTORE)
