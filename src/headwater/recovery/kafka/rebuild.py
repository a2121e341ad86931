"""An index put together again from its log, and from what is left of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import FormatError
from headwater.disk import Disk, read_all
from headwater.format.checksum import checksum64
from headwater.format.kafka.batch import BatchHeader, read_sound
from headwater.format.kafka.checkpoint import (
    KafkaCheckpoint,
    RewriteMeta,
    SegmentMeta,
    rewritten,
)
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    HOLE_SEGMENT,
    PREFIX_BYTES,
    Entries,
    count_entries,
    entry_key,
    find_runs,
    group_by_key,
    holes_in,
    keys_of,
    pack_entries,
    read_entries,
    split_key,
    topic_hash,
)
from headwater.format.kafka.events import (
    INTERNAL_KEY,
    AnyEvent,
    PartitionsAdded,
    TopicMadeEvent,
    decode_event,
)
from headwater.format.kafka.names import index_name, log_name, partition_name
from headwater.recovery.history.kafka import is_own, own_runs
from headwater.recovery.kafka.survey import KafkaSurvey, SegmentScan
from headwater.recovery.kafka.table import IndexVerdict, LogVerdict, SegmentPosition, Stray
from headwater.recovery.kafka.walk import BatchVerdict, SeenTopics

_HASHED_BYTES_MAX: Final = 2**34
"""So much may be hashed to find out which bit of an index is another one."""
_TRIES_MAX: Final = 512
"""So often a segment is walked to find out whose one batch is, where a checksum can tell."""


class RebuildError(Exception):
    """The owner of a record is not known, so that no offset behind it could be trusted."""


@dataclass(slots=True)
class Rebuilt:
    """One segment as it is to be."""

    meta: SegmentMeta
    contents: bytes
    """Of its index."""
    changed: bool = False
    is_proven: bool = False
    offset: int | None = None
    """Where the first change in the index is."""
    log_end: int | None = None
    """Where the log is to end, if that is not where it does."""
    holes: Counter[str] = field(default_factory=Counter)
    """New ones, by partition; the log's own events have no name."""
    lost: list[tuple[str, int, int]] = field(default_factory=list)
    """Partition, first and last offset of each of them."""


class _Batch:
    """A sound batch in the log."""

    __slots__ = ("bytes", "end", "header", "length")

    def __init__(self, batch: memoryview, header: BatchHeader, end: int) -> None:
        self.bytes = batch
        self.length = len(batch)
        self.header = header
        self.end = end


class Rebuilding:
    """All segments in order: where each partition is, is counted along."""

    def __init__(self, disk: Disk, survey: KafkaSurvey, checkpoint: KafkaCheckpoint) -> None:
        self._disk = disk
        self._survey = survey
        self._directory = survey.directory
        self._checkpoint = checkpoint
        self._topics = SeenTopics(checkpoint)
        self._names: dict[bytes, str] = {INTERNAL_KEY: ""}
        self._next: dict[bytes, int] = {}
        self._made: dict[bytes, int] = {}
        for topic in self._topics:
            hashed = topic_hash(topic.org, topic.name)
            for index, partition in enumerate(topic.partitions):
                key = entry_key(topic.org, hashed, index)
                self._names[key] = partition_name(topic.name, index)
                self._next[key], self._made[key] = partition.dropped, topic.made_id

    def run(self) -> Iterator[Rebuilt]:
        checkpoint, scans = (
            self._checkpoint,
            {s.checkpointed.number: s for s in self._survey.segments},
        )
        known = [meta.number for meta in checkpoint.segments]
        emptied = {name for name, stray in self._survey.strays if stray is Stray.EMPTIED}
        later = [
            number
            for number in self._survey.names.later(checkpoint)
            if number in scans
            or index_name(number) in emptied
            or count_entries(self._read(index_name(number)))
        ]
        next_id = 0
        for number in [*known, *later]:
            scan = scans.get(number)
            if scan is None:
                fresh = SegmentMeta(number, next_id, 0, 0, checksum64(b""), number)
                position = SegmentPosition.LAST if number == later[-1] else SegmentPosition.FOLLOWED
                scan = SegmentScan(fresh, position, fresh, log=LogVerdict.DAMAGED)
            done = self._one(scan)
            next_id = done.meta.base_id + len(done.contents) // ENTRY_BYTES
            yield done

    def _read(self, name: str) -> bytes:
        path = self._directory / name
        return read_all(self._disk, path) if self._disk.exists(path) else b""

    # -- one segment

    def _one(self, scan: SegmentScan) -> Rebuilt:
        contents = self._read(index_name(scan.meta.number))
        if not scan.refused:
            rows = read_entries(contents, scan.meta.entries)
            self._count(rows, scan.meta.base_id)
            for batch in self._survey.tail:
                end_id = scan.meta.base_id + len(rows)
                if batch.event is not None and scan.meta.base_id <= batch.first_id < end_id:
                    self._topics.take_in(batch.event, batch.first_id)
                    self._count_from(batch.event)
            return Rebuilt(scan.checkpointed, rows.tobytes())
        log = self._read(log_name(_as_it_is(scan, contents).log_number))
        return _SegmentRebuild(self, scan, contents, log).run()

    def _count(self, rows: Entries, base_id: int) -> None:
        runs = find_runs(rows)
        for key, members in group_by_key(runs):
            if key in self._made:
                own = own_runs(runs, members, base_id, self._made[key])
                self._next[key] += int(runs.counts[own].sum())

    def _count_from(self, event: AnyEvent) -> None:
        """The partitions an event made: their offsets begin behind it."""
        if not isinstance(event, TopicMadeEvent | PartitionsAdded):
            return
        topic = self._topics.by_id(event.topic_id)
        if topic is None:
            return
        hashed = topic_hash(topic.org, topic.name)
        for index in range(len(topic.partitions)):
            key = entry_key(topic.org, hashed, index)
            self._names[key] = partition_name(topic.name, index)
            if isinstance(event, TopicMadeEvent) or key not in self._next:
                self._next[key], self._made[key] = 0, topic.made_id

    # -- asked by a segment

    def owns(self, key: bytes) -> bool:
        return key == INTERNAL_KEY or self._topics.owns(key)

    def next_offset(self, key: bytes) -> int | None:
        return self._next.get(key)

    def at_offset(self, offset: int) -> list[bytes]:
        """Partitions whose next record has this offset."""
        return [key for key, following in self._next.items() if following == offset]

    def keys(self) -> list[bytes]:
        return [*self._next, INTERNAL_KEY]

    def state(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        return dict(self._next), dict(self._made)

    def go_back(self, state: tuple[dict[bytes, int], dict[bytes, int]]) -> None:
        self._next, self._made = dict(state[0]), dict(state[1])

    def name_of(self, key: bytes) -> str:
        known = self._names.get(key)
        if known is not None:
            return known
        return f"partition {split_key(key)[2]} of an unknown topic"

    def advance(self, key: bytes, count: int, first_id: int) -> int | None:
        """These are the next records of that partition. The offset of the first of them."""
        if not is_own(first_id, self._made.get(key, first_id)):
            return None  # of a topic that is gone
        before = self._next[key]
        self._next[key] += count
        return before

    def take_in_event(self, batch: memoryview, first_id: int) -> None:
        """An event that no checkpoint has yet."""
        if first_id < self._checkpoint.as_of:
            return
        taken = self._topics.take_event(first_id, batch)
        if taken.verdict is BatchVerdict.UNFOLLOWED:
            raise RebuildError(taken.problem)
        if taken.event is not None:
            self._count_from(taken.event)


def _as_it_is(scan: SegmentScan, contents: bytes) -> SegmentMeta:
    """Behind the swap of a rewrite, if that is where it is: by its checksum, else by its logs."""
    meta = scan.checkpointed
    if meta.rewrite is None:
        return meta
    size = meta.entries * ENTRY_BYTES
    if checksum64(contents[:size]) == meta.rewrite.checksum:
        return rewritten(meta)
    rows = read_entries(contents, min(len(contents) // ENTRY_BYTES, meta.entries))
    new = numpy.count_nonzero(rows["segment_id"] == meta.rewrite.log_number)
    old = numpy.count_nonzero(rows["segment_id"] == meta.log_number)
    return rewritten(meta) if new > old else meta


class _SegmentRebuild:
    """One that is refused, walked by its log and its entries together."""

    def __init__(
        self, all_of_them: Rebuilding, scan: SegmentScan, contents: bytes, log: bytes
    ) -> None:
        self._all = all_of_them
        self._scan = scan
        self._meta = _as_it_is(scan, contents)
        self._number = self._meta.log_number
        self._log = memoryview(log)
        self._size = len(log)
        self._before = contents
        there = len(contents) // ENTRY_BYTES
        self._rows = read_entries(contents, there)
        if scan.position is not SegmentPosition.LISTED:
            whole = contents[: there * ENTRY_BYTES]
            self._rows = self._rows[: max(count_entries(whole), scan.checkpointed.entries)]
        self._keys = keys_of(self._rows)
        self._times = Counter(key.tobytes() for key in self._keys)
        self.index_is_sound = scan.index in (IndexVerdict.SOUND, IndexVerdict.BEYOND)
        """As far as the checkpoint covers it."""
        self._is_cut = scan.index in (IndexVerdict.SHORT, IndexVerdict.MISSING) or not there
        """Batches may be in the log whose entries are gone."""

    def run(self) -> Rebuilt:
        """Where the checkpoint covers the entries, its checksum decides."""
        begin, queue = self._all.state(), deque[dict[int, bytes]]([{}])
        for _ in range(_TRIES_MAX):
            if not queue:
                break
            forced = queue.popleft()
            self._all.go_back(begin)
            if self._comes_out(forced):
                return self._finish()
            last = max(forced, default=-1)
            for at, keys in sorted(self._choices.items()):
                queue += [{**forced, at: key} for key in keys if at > last]
        repaired = self._bit_by_bit()
        if repaired is not None:
            self._all.go_back(begin)
            again = _SegmentRebuild(self._all, self._scan, repaired, bytes(self._log))
            again.index_is_sound = True
            return again.against(self._before)
        raise RebuildError(self._doubt())

    def against(self, before: bytes) -> Rebuilt:
        """When the index was another one by a bit."""
        self._walk({})
        self._before = before
        return self._finish()

    def _comes_out(self, forced: Mapping[int, bytes]) -> bool:
        try:
            self._walk(forced)
        except RebuildError:
            return False
        return not self._doubts and (self.index_is_sound or self._is_proven)

    def _bit_by_bit(self) -> bytes | None:
        """The index as it was, if one bit of it is another one, and it is short."""
        meta = self._scan.checkpointed
        size = meta.entries * ENTRY_BYTES
        if self._scan.index is not IndexVerdict.CHANGED or 8 * size * size > _HASHED_BYTES_MAX:
            return None
        tried = bytearray(self._before[:size])
        for bit in range(8 * size):
            tried[bit // 8] ^= 1 << bit % 8
            if self._knows(bytes(tried)):
                return bytes(tried) + self._before[size:]
            tried[bit // 8] ^= 1 << bit % 8
        return None

    def _doubt(self) -> str:
        return f"{index_name(self._meta.number)} cannot be put together without a doubt"

    def _walk(self, forced: Mapping[int, bytes]) -> None:
        self._forced = forced
        self._out: list[bytes] = []
        self._whole: list[bytes] = []
        """The same without the holes that are made now."""
        self._at = self._offset = 0
        self._done = Rebuilt(self._meta, b"")
        self._choices: dict[int, list[bytes]] = {}
        """Entries that others could own as well, and who."""
        self._doubts = 0
        wanted, behind_hole = self._scan.checkpointed.entries, False
        is_open = self._scan.position is not SegmentPosition.LISTED
        while self._at < wanted or (is_open and self._goes_on()):
            behind_hole = self._step(behind_hole)
        if not is_open and self._at != wanted:
            raise RebuildError(self._doubt())

    def _goes_on(self) -> bool:
        return self._at < len(self._rows) or (
            self._is_cut and self._sound(self._offset) is not None
        )

    @property
    def _is_proven(self) -> bool:
        size = self._scan.checkpointed.entries * ENTRY_BYTES
        return self._knows(b"".join(self._whole)[:size])

    def _knows(self, entries: bytes) -> bool:
        meta = self._scan.checkpointed
        known = {meta.checksum} | ({meta.rewrite.checksum} if meta.rewrite is not None else set())
        return checksum64(entries) in known

    def _step(self, behind_hole: bool) -> bool:
        """Take in one batch, or make a hole of it. Whether a hole was made."""
        row = self._rows[self._at] if self._at < len(self._rows) else None
        if row is not None and holes_in(self._rows[self._at : self._at + 1])[0]:
            self._keep(self._run_at(self._at))
            return True
        is_dead = row is not None and not row["length"] and self._number != self._meta.number
        if is_dead and self._is_trusted(self._at, 1):
            self._keep(self._run_at(self._at))
            return behind_hole
        offset = self._offset
        if row is not None and row["segment_id"] == self._number and row["length"]:
            jumped = int(row["physical_offset"])
            if jumped > offset and (behind_hole or self._sound(offset) is None):
                batch = self._sound(jumped)
                if batch is not None and batch.length == row["length"]:
                    offset = jumped
        batch = self._sound(offset)
        if batch is not None:
            self._take(batch, offset)
            return False
        if row is None:
            raise RebuildError(f"{index_name(self._meta.number)} and its log end too early")
        self._hole(self._run_at(self._at))
        return True

    def _key(self, at: int) -> bytes:
        return bytes(self._keys[at].tobytes())

    def _is_trusted(self, at: int, count: int) -> bool:
        """Its key is that of a topic there is, or of one that was dropped and has other entries."""
        if self.index_is_sound and at < self._scan.checkpointed.entries:
            return True
        return self._all.owns(self._key(at)) or self._times[self._key(at)] > count

    def _run_at(self, at: int) -> int:
        """How many entries from here on are equal."""
        begin = self._before[at * ENTRY_BYTES : (at + 1) * ENTRY_BYTES]
        end = at + 1
        while end < len(self._rows):
            if self._before[end * ENTRY_BYTES : (end + 1) * ENTRY_BYTES] != begin:
                break
            end += 1
        return end - at

    def _sound(self, offset: int) -> _Batch | None:
        begin = offset + PREFIX_BYTES
        if begin > self._size:
            return None
        length = int.from_bytes(self._log[offset:begin], "little")
        if not length or begin + length > self._size:
            return None
        try:
            header = read_sound(self._log[begin : begin + length])
        except FormatError:
            return None
        if header.record_count <= 0:
            return None
        return _Batch(self._log[begin : begin + length], header, begin + length)

    def _take(self, batch: _Batch, offset: int) -> None:
        count = batch.header.record_count
        left = self._scan.checkpointed.entries - self._at
        if self._scan.position is SegmentPosition.LISTED and count > left:
            raise RebuildError(f"{log_name(self._number)} has more records than its index")
        key = self._owner(batch, offset, count)
        self._add(pack_entries(self._number, offset, batch.length, key, count))
        first_id = self._meta.base_id + self._at
        if key == INTERNAL_KEY:
            self._all.take_in_event(batch.bytes, first_id)
        else:
            self._all.advance(key, count, first_id)
        self._at += count
        self._offset = batch.end

    def _owner(self, batch: _Batch, offset: int, count: int) -> bytes:
        """What the entries say, if the offset that the batch was given does not say otherwise."""
        at = self._at
        if at in self._forced:
            return self._forced[at]
        there = [self._key(each) for each in range(at, min(at + count, len(self._rows)))]
        is_checkpointed = at < self._scan.checkpointed.entries
        if there and is_checkpointed and self.index_is_sound:
            return there[0]
        fitting = self._all.at_offset(batch.header.base_offset)
        fitting += [INTERNAL_KEY] if _is_event(batch) else []
        said = [key for key, _ in Counter(there).most_common()]
        fits = [key for key in said if key in fitting]
        if is_checkpointed:  # the checksum tells whether that was right
            whole = (
                pack_entries(self._number, offset, batch.length, said[0], count) if said else b""
            )
            is_whole = whole == self._before[at * ENTRY_BYTES : (at + count) * ENTRY_BYTES]
            likely = said[:1] if is_whole else fits
            self._choices[at] = [key for key in (*fitting, *self._times) if key not in likely]
            return (likely or fitting or said or self._all.keys())[0]
        if len(fitting) != 1 and not fits:
            self._doubts += 1
            self._choices[at] = fitting
        if fits or fitting:
            return (fits or fitting)[0]
        raise RebuildError(f"the owner of the batch at byte {offset} is not known")

    def _add(self, entries: bytes, whole: bytes | None = None) -> None:
        self._out.append(entries)
        self._whole.append(entries if whole is None else whole)

    def _keep(self, count: int) -> None:
        """Entries that lead to nothing, and say so."""
        begin = self._at * ENTRY_BYTES
        self._add(self._before[begin : begin + count * ENTRY_BYTES])
        self._all.advance(self._key(self._at), count, self._meta.base_id + self._at)
        self._at += count

    def _hole(self, count: int) -> None:
        """The batch of these entries cannot be read: their offsets stay taken."""
        key = self._key(self._at)
        if not self._is_trusted(self._at, count):
            raise RebuildError(f"neither the batch nor the entry at {self._at} can be read")
        row = self._rows[self._at]
        offset, length = int(row["physical_offset"]), int(row["length"])
        begin, end = self._at * ENTRY_BYTES, (self._at + count) * ENTRY_BYTES
        self._add(pack_entries(HOLE_SEGMENT, offset, 0, key, count), self._before[begin:end])
        name = self._all.name_of(key)
        self._done.holes[name] += count
        if key != INTERNAL_KEY:
            first = self._all.advance(key, count, self._meta.base_id + self._at)
            if first is not None:
                self._note_lost(name, first, first + count - 1)
        self._at += count
        if int(row["segment_id"]) == self._number and offset == self._offset:
            self._offset += PREFIX_BYTES + length

    def _note_lost(self, name: str, first: int, last: int) -> None:
        lost = self._done.lost
        for at, (known, begin, end) in enumerate(lost):
            if known == name and end + 1 == first:
                lost[at] = (name, begin, last)
                return
        lost.append((name, first, last))

    # -- what comes of it

    def _finish(self) -> Rebuilt:
        done, meta, wanted = self._done, self._meta, self._scan.checkpointed.entries
        contents, position = b"".join(self._out), self._scan.position
        full = position is not SegmentPosition.LAST
        done.contents = contents
        done.changed = contents != self._before[: len(contents)] or (
            full and len(contents) != len(self._before)
        )
        done.is_proven = bool(wanted) and not done.holes and self._is_proven
        if done.changed:
            done.offset = _first_difference(contents, self._before)
        ends = _ends(read_entries(contents, self._at))
        end = int(ends.max(initial=0))
        if self._size > end and (full or done.holes):
            done.log_end = end
        elif not self._size and position is not SegmentPosition.LISTED:
            done.log_end = 0
        checkpointed_end = int(ends[:wanted].max(initial=0))
        done.meta = _to_become(
            meta,
            checksum64(contents[: wanted * ENTRY_BYTES]),
            end if position is SegmentPosition.LISTED else checkpointed_end,
        )
        return done


def _to_become(meta: SegmentMeta, checksum: int, log_bytes: int) -> SegmentMeta:
    """With this index, or as it is: a checkpoint that says so may be written before the index."""
    if (checksum, log_bytes) == (meta.checksum, meta.log_bytes):
        return msgspec.structs.replace(meta, rewrite=None)
    rewrite = RewriteMeta(checksum, meta.log_number, log_bytes)
    return msgspec.structs.replace(meta, rewrite=rewrite)


def _ends(rows: Entries) -> NDArray[numpy.int64]:
    ends: NDArray[numpy.int64] = rows["physical_offset"].astype(numpy.int64)
    ends += rows["length"]
    ends += PREFIX_BYTES
    ends[rows["length"] == 0] = 0
    return ends


def _is_event(batch: _Batch) -> bool:
    if batch.header.record_count != 1 or batch.header.base_offset:
        return False
    try:
        decode_event(batch.bytes)
    except (FormatError, IndexError):
        return False
    return True


def _first_difference(new: bytes, old: bytes) -> int:
    shorter = min(len(new), len(old))
    a = numpy.frombuffer(new, numpy.uint8, shorter)
    b = numpy.frombuffer(old, numpy.uint8, shorter)
    different = numpy.flatnonzero(a != b)
    return int(different[0]) if len(different) else shorter
