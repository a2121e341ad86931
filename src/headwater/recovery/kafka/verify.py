"""Kafka's shared log, read and checked against itself: checkpoint, indexes, every batch.

In three steps, so that segments can be checked anywhere: a plan of what there should be, a check
of each segment by itself, and what only all checks together can show. Nothing is changed.

What the checkpoint covers must be as it was, and so must everything in a full segment. Behind
that, in the last segment, the first batch that is not whole ends the log, as it does at a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.arrays import numpy
from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.disk import Disk, File, OpenMode, map_file, opened, read_all
from headwater.format.checksum import checksum64
from headwater.format.kafka.batch import LEADER_EPOCH, BatchHeader
from headwater.format.kafka.checkpoint import KafkaCheckpoint, SegmentMeta, encode_checkpoint
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    Entries,
    count_entries,
    entry_key,
    find_runs,
    group_by_key,
    holes_in,
    read_entries,
    topic_hash,
)
from headwater.format.kafka.events import (
    INTERNAL_KEY,
    PREDECESSOR_MISSING,
    PartitionsAdded,
    SegmentBegun,
    Synced,
    TopicMadeEvent,
    decode_event,
)
from headwater.format.kafka.names import index_name, log_name
from headwater.recovery.kafka.survey import (
    check_known_entries,
    judge_begun,
    list_names,
    scan_checkpoints,
)
from headwater.recovery.kafka.table import CheckpointVerdict, IndexVerdict, Stray
from headwater.recovery.kafka.walk import SeenTopics, Window, entries_known_synced, walk_batches
from headwater.store.verify import FaultKind, VerifyFault, listed

_WINDOW_BYTES: Final = 8 * MIB


@dataclass(frozen=True, slots=True)
class KafkaSegment:
    """One segment that is to be checked."""

    directory: str
    meta: SegmentMeta
    """As the checkpoint knows it; without entries when it is younger."""
    sealed: bool
    listed: bool
    """The checkpoint knows that it was full."""
    as_of: int
    """Events before this global id are in the checkpoint's state."""


class OffsetChain(NamedTuple):
    """Batches of one partition whose base offsets follow each other."""

    key: bytes
    first_id: int
    base: int | None
    """Offset of its first record; None when all its batches were left out of a rewrite."""
    records: int
    offset: int
    """Where its first batch stands in the log."""


@dataclass(slots=True)
class KafkaSegmentCheck:
    faults: list[VerifyFault] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    data_bytes: int = 0
    """Of batches whose checksums were checked."""
    made: list[tuple[int, TopicMadeEvent | PartitionsAdded]] = field(default_factory=list)
    """Events that the checkpoint's state does not have yet, and where each stands."""
    chains: list[OffsetChain] = field(default_factory=list)
    young_keys: dict[bytes, int] = field(default_factory=dict)
    """Whose batches are younger than that state, and where the first of each stands."""
    entries: int = 0
    begun: int | None = None
    """The global id that an event at its front says it begins with."""
    synced_end: int = 0
    """An event says that the log was synced up to here."""


def check_kafka_segment(disk: Disk, segment: KafkaSegment) -> KafkaSegmentCheck:
    """Every entry and every batch of one segment."""
    check = KafkaSegmentCheck()
    try:
        _SegmentCheck(disk, segment, check).run()
    except FileNotFoundError as error:
        path = PurePath(error.filename or segment.directory)
        check.faults.append(VerifyFault(path, None, "a file is missing", True, FaultKind.MISSING))
    return check


class _SegmentCheck:
    def __init__(self, disk: Disk, segment: KafkaSegment, check: KafkaSegmentCheck) -> None:
        self._disk = disk
        self._segment = segment
        self._result = check
        self._index = PurePath(segment.directory) / index_name(segment.meta.number)
        self._meta = segment.meta
        self._at_index: list[tuple[int, str]] = []
        self._at_log: list[tuple[int, str]] = []
        self._misplaced: list[tuple[int, str]] = []
        self._ends_in_hole = False
        self._synced: int | None = None
        """Entries that an event behind the first bad batch says were synced."""
        self._chains: dict[bytes, OffsetChain] = {}
        self._dead: dict[bytes, tuple[int, int]] = {}
        """First id and number of the records of each partition left out before its first batch."""

    @property
    def _log(self) -> PurePath:
        return PurePath(self._segment.directory) / log_name(self._meta.log_number)

    def _fault(
        self, path: PurePath, offset: int, what: str, bad: bool, kind: FaultKind = FaultKind.INDEX
    ) -> None:
        self._result.faults.append(VerifyFault(path, offset, what, bad, kind))

    def run(self) -> None:
        entries = self._entries()
        if entries is None:
            return
        check, live = self._result, entries["length"] > 0
        check.entries = len(entries)
        if live.any() or not self._segment.sealed:
            with opened(self._disk, self._log, OpenMode.READ) as file:
                self._batches(file, entries)
        else:  # all its records are dead, and the log may have gone already
            self._skip_all(entries)
        check.faults += listed(self._index, self._at_index, FaultKind.INDEX)
        holes = numpy.flatnonzero(holes_in(entries))
        problems = [(at * ENTRY_BYTES, "a record that a repair gave up") for at in holes.tolist()]
        check.faults += listed(self._index, problems, FaultKind.INDEX, bad=False)
        check.faults += listed(self._log, self._at_log, FaultKind.BATCH)
        check.faults += listed(self._log, self._misplaced, FaultKind.BATCH, bad=False)
        check.chains += self._chains.values()
        for key, (first_id, count) in self._dead.items():
            if key not in self._chains:
                check.chains.append(OffsetChain(key, first_id, None, count, -1))

    def _entries(self) -> Entries | None:
        """The entries that count, compared with the checkpoint. None when they are not known."""
        segment, meta = self._segment, self._meta
        # A file that is written to may be cut, and a map of it would end the process.
        read = map_file if segment.listed else read_all
        view = memoryview(read(self._disk, self._index))
        known = check_known_entries(meta, view)
        self._meta = known.meta
        if known.verdict is not IndexVerdict.SOUND:
            self._fault(self._index, known.offset, known.what, True)
        if known.verdict is IndexVerdict.SHORT:
            return read_entries(view, len(view) // ENTRY_BYTES)
        count = meta.entries if segment.listed else max(count_entries(view), meta.entries)
        if segment.sealed and len(view) != count * ENTRY_BYTES:
            what = "bytes behind the last entry of a full segment"
            self._fault(self._index, count * ENTRY_BYTES, what, True, FaultKind.BEYOND)
        return read_entries(view, count)

    def _batches(self, file: File, entries: Entries) -> None:
        segment, meta, check = self._segment, self._meta, self._result
        window = Window(file, _WINDOW_BYTES)
        young = max(segment.as_of - meta.base_id, 0) if segment.meta.entries else 0
        rewritten, end = meta.log_number != meta.number, 0
        for batch in walk_batches(meta.log_number, entries, window, 0, rewritten=rewritten):
            if batch.is_dead:
                self._skip(batch.key, batch.at, batch.records)
                self._ends_in_hole = True
                continue
            self._ends_in_hole = False
            # A log that merely ends does so where its entries stop to follow each other.
            offset = end if batch.misplaced else batch.offset
            if batch.problem and self._is_end(batch.at, entries, window, offset, batch.problem):
                return
            if batch.misplaced:
                self._at_index.append((batch.at * ENTRY_BYTES, batch.misplaced))
                if batch.end == batch.offset:  # it leads to another log
                    continue
            end = batch.end
            check.batches += 1
            check.records += batch.records
            check.data_bytes += batch.end - batch.offset
            if batch.header is None or batch.broken:
                self._at_log.append((batch.offset, batch.broken))
                continue
            self._check_offset(batch.key, batch.header, batch.at, batch.offset)
            if batch.at >= young:
                self._note_young(batch.key, batch.bytes, batch.offset, entries)
        self._end(file, end, window)

    def _is_end(self, at: int, entries: Entries, window: Window, offset: int, problem: str) -> bool:
        """True when the log merely ends here: nothing says that what follows was synced."""
        if self._segment.sealed or at < self._meta.entries:
            return False
        if self._synced is None:
            number = self._meta.number
            self._synced = entries_known_synced(number, entries, at, window)
        if at < self._synced:
            return False
        what = f"{problem}; a start cuts {len(entries) - at} entries here"
        self._fault(self._log, offset, what, False, FaultKind.BEYOND)
        return True

    def _skip_all(self, entries: Entries) -> None:
        runs = find_runs(entries)
        for key, members in group_by_key(runs):
            self._skip(key, int(runs.starts[members[0]]), int(runs.counts[members].sum()))

    def _skip(self, key: bytes, at: int, count: int) -> None:
        chain = self._chains.get(key)
        if chain is None:
            first_id, before = self._dead.get(key, (self._meta.base_id + at, 0))
            self._dead[key] = first_id, before + count
        else:
            self._chains[key] = chain._replace(records=chain.records + count)

    def _check_offset(self, key: bytes, header: BatchHeader, at: int, offset: int) -> None:
        """Base offset and epoch stand before what the CRC covers; readers are told the right ones.

        An offset of 0 begins a topic of the same name anew; whether one did, all looks tell.
        """
        base, chain = header.base_offset, self._chains.get(key)
        known = 0 if key == INTERNAL_KEY else base
        if chain is not None and chain.base is not None:
            known = chain.base + chain.records
        restarts = base == 0 != known
        if (base != known and not restarts) or header.leader_epoch != LEADER_EPOCH:
            self._misplaced.append((offset, misplaced(base, known)))
        if key == INTERNAL_KEY:
            return
        if chain is not None and not restarts:
            self._chains[key] = chain._replace(records=chain.records + header.record_count)
            return
        if chain is not None:
            self._result.chains.append(chain)
        first_id, dead = self._meta.base_id + at, 0
        if chain is None and base:
            first_id, dead = self._dead.get(key, (first_id, 0))
        self._chains[key] = OffsetChain(
            key, first_id, base - dead, dead + header.record_count, offset
        )

    def _note_young(self, key: bytes, batch: memoryview, offset: int, entries: Entries) -> None:
        self._result.young_keys.setdefault(key, offset)
        if key != INTERNAL_KEY:
            return
        try:
            event = decode_event(batch)
        except FormatError as error:
            self._at_log.append((offset, error.reason))
            return
        if isinstance(event, SegmentBegun):
            self._result.begun = event.base_id
        elif isinstance(event, TopicMadeEvent | PartitionsAdded):
            self._result.made.append((offset, event))
        elif isinstance(event, Synced) and event.entries < len(entries):
            self._result.synced_end = int(entries["physical_offset"][event.entries])
        if isinstance(event, TopicMadeEvent):
            hashed = topic_hash(event.org, event.name)
            for number in range(event.partitions):
                key = entry_key(event.org, hashed, number)
                if key in self._chains:
                    self._result.chains.append(self._chains[key])
                self._chains[key] = OffsetChain(key, 0, 0, 0, offset)

    def _end(self, file: File, end: int, window: Window) -> None:
        """Where the log ends, and that only zeros written ahead are behind it."""
        size, meta, sealed = file.size(), self._meta, self._segment.sealed
        if self._at_index or self._at_log:
            return  # told already, and the end hangs on it
        if self._segment.listed and self._ends_in_hole:
            end = max(end, meta.log_bytes)
        if self._segment.listed and end != meta.log_bytes:
            what = f"the batches end at {end}, and the checkpoint says {meta.log_bytes}"
            self._fault(self._log, end, what, True, FaultKind.BATCH)
        elif sealed and size != end:
            what = f"the log has {size} bytes and should have {end}"
            self._fault(self._log, min(size, end), what, True, FaultKind.BATCH)
        elif not sealed:
            for at in range(end, size, _WINDOW_BYTES):
                chunk = window[at : min(at + _WINDOW_BYTES, size)]
                if checked := bytes(chunk).rstrip(b"\0"):
                    what = "bytes behind the last batch; a start cuts them"
                    kind = FaultKind.BEYOND
                    self._fault(self._log, at + len(checked) - 1, what, False, kind)
                    return


def misplaced(base: int, known: int) -> str:
    """The index says where such a batch really is: no reader goes by its base offset alone."""
    return f"the batch says offset {base} and is at {known}, as readers are told"


_LEFT: Final = "nothing leads to this file; left by work that was interrupted or goes on"


@dataclass(slots=True)
class KafkaPlan:
    directory: PurePath
    faults: list[VerifyFault] = field(default_factory=list)
    checkpoint: KafkaCheckpoint | None = None
    segments: list[KafkaSegment] = field(default_factory=list)


def plan_kafka(disk: Disk, directory: PurePath) -> KafkaPlan:
    """What the names and the checkpoint say. FileNotFoundError: plan again."""
    plan = KafkaPlan(directory)
    if not disk.is_directory(directory):
        return plan
    names = list_names(disk, directory)
    for name in (*names.rewrites, *names.temporaries):
        plan.faults.append(VerifyFault(directory / name, None, _LEFT, False, FaultKind.UNFINISHED))
    for name in names.foreign:
        what = "not a name this software gives"
        plan.faults.append(VerifyFault(directory / name, None, what, False, FaultKind.NAME))
    checkpoint = _checkpoint(disk, bool(names.indexes), plan)
    if checkpoint is None:
        return plan
    known = checkpoint.segments
    young = names.later(checkpoint)
    later = [n for n in young if count_entries(read_all(disk, directory / index_name(n)))]
    root, as_of = str(directory), checkpoint.as_of
    for at, meta in enumerate(known, 1):
        listed_full = at < len(known)
        plan.segments.append(
            KafkaSegment(root, meta, listed_full or bool(later), listed_full, as_of)
        )
    for at, number in enumerate(later, 1):
        # Where its ids begin does not matter: all of it is younger than the checkpoint.
        fresh = SegmentMeta(number, as_of, 0, 0, checksum64(b""), number)
        plan.segments.append(KafkaSegment(root, fresh, at < len(later), False, as_of))
    begun = {n for n in young[-1:] if n in names.logs and _only_begun(disk, directory, n)}
    emptied = {
        n
        for n in young
        if n not in {*later, *begun} and judge_begun(disk, directory, n) is Stray.EMPTIED
    }
    for number in sorted(emptied):
        path = directory / index_name(number)
        plan.faults.append(VerifyFault(path, 0, Stray.EMPTIED.value, True, FaultKind.INDEX))
    known_well = begun | emptied
    plan.faults += _left_over(plan, names.logs - known_well, names.indexes - known_well)
    return plan


def _only_begun(disk: Disk, directory: PurePath, number: int) -> bool:
    """A segment that waits for its first batch: every new log has one, and each roll makes one."""
    names = (index_name(number), log_name(number))
    return not any(read_all(disk, directory / name).strip(b"\x00") for name in names)


def _checkpoint(disk: Disk, needed: bool, plan: KafkaPlan) -> KafkaCheckpoint | None:
    """What a start goes on from; both files are compared with it."""
    checkpoints = scan_checkpoints(disk, plan.directory)
    plan.checkpoint = checkpoints.chosen.checkpoint
    for scan in checkpoints:
        if scan.verdict is CheckpointVerdict.ABSENT:
            what = "missing: without it, where the segments begin is not known"
            if plan.checkpoint is not None:
                what = "missing; the other one is whole, and the next checkpoint writes both"
            if needed:
                bad = scan is checkpoints.first
                plan.faults.append(VerifyFault(scan.path, None, what, bad, FaultKind.MISSING))
        elif scan.checkpoint is None:
            fault = VerifyFault(scan.path, scan.offset or 0, scan.what, True, FaultKind.CHECKPOINT)
            plan.faults.append(fault)
        elif encode_checkpoint(scan.checkpoint) != scan.contents:
            what = "bytes that mean nothing are not those that were written"
            plan.faults.append(VerifyFault(scan.path, None, what, False, FaultKind.CHECKPOINT))
    return plan.checkpoint


def _left_over(plan: KafkaPlan, logs: set[int], indexes: set[int]) -> Iterator[VerifyFault]:
    metas = [segment.meta for segment in plan.segments]
    led_to = {meta.log_number for meta in metas}
    led_to |= {meta.rewrite.log_number for meta in metas if meta.rewrite is not None}
    names = [index_name(n) for n in sorted(indexes - {meta.number for meta in metas} - led_to)]
    names += [log_name(n) for n in sorted(logs - led_to)]
    for name in names:
        yield VerifyFault(plan.directory / name, None, _LEFT, False, FaultKind.UNFINISHED)


def join_kafka(plan: KafkaPlan, checks: Sequence[KafkaSegmentCheck]) -> list[VerifyFault]:
    """All faults: those of the plan, those of each segment, and batches of no topic."""
    faults = [*plan.faults, *(fault for check in checks for fault in check.faults)]
    if plan.checkpoint is None:
        return faults
    topics = SeenTopics(plan.checkpoint)
    for segment, check in zip(plan.segments, checks, strict=True):
        path = plan.directory / log_name(segment.meta.log_number)
        strange = list(_strangers(topics, check))
        problems = [(at, "a batch of a topic that does not exist") for at in strange]
        bad = segment.sealed or any(at < check.synced_end for at, _ in problems)
        faults += listed(path, problems, FaultKind.BATCH, bad=bad)
    if all(not check.faults for check in checks):
        faults += _missing(plan, checks)
        faults += _misplaced_chains(plan, checks)
    return faults


def _strangers(topics: SeenTopics, check: KafkaSegmentCheck) -> Iterator[int]:
    """Where the first batch of each topic stands that does not exist by then."""
    events = sorted(check.made, key=lambda each: each[0])
    for key, at in sorted(check.young_keys.items(), key=lambda each: each[1]):
        while events and events[0][0] < at:
            topics.take_in(events.pop(0)[1], 0)
        if key != INTERNAL_KEY and not topics.owns(key):
            yield at
    for _, event in events:
        topics.take_in(event, 0)


def _missing(plan: KafkaPlan, checks: Sequence[KafkaSegmentCheck]) -> Iterator[VerifyFault]:
    """Younger segments begin where the one before them ends."""
    assert plan.checkpoint is not None
    known, end = plan.checkpoint.segments, 0
    for at, check in enumerate(checks):
        base_id = known[at].base_id if at < len(known) else end
        if check.begun not in (None, base_id):
            path = plan.directory / log_name(plan.segments[at].meta.number)
            yield VerifyFault(path, 0, PREDECESSOR_MISSING, True, FaultKind.MISSING)
            return
        end = base_id + check.entries


def _misplaced_chains(
    plan: KafkaPlan, checks: Sequence[KafkaSegmentCheck]
) -> Iterator[VerifyFault]:
    """Base offsets go on from segment to segment, for topics that the checkpoint knows.

    From the log start on: of dead records segments in between may be gone, so that they cannot
    be counted, and readers are not told where they were.
    """
    assert plan.checkpoint is not None
    remade = {
        topic_hash(event.org, event.name)
        for check in checks
        for _, event in check.made
        if isinstance(event, TopicMadeEvent)
    }
    made: dict[bytes, int] = {}
    starts: dict[bytes, int] = {}
    following: dict[bytes, int] = {}
    for topic in plan.checkpoint.topics:
        hashed = topic_hash(topic.org, topic.name)
        for number, partition in enumerate(() if hashed in remade else topic.partitions):
            key = entry_key(topic.org, hashed, number)
            made[key], following[key] = topic.made_id, partition.dropped
            starts[key] = partition.log_start
    for segment, check in zip(plan.segments, checks, strict=True):
        problems = []
        for chain in sorted(check.chains, key=lambda each: each.offset):
            if chain.key not in made or chain.first_id <= made[chain.key]:
                continue
            known = following[chain.key]
            is_live = known + chain.records > starts[chain.key]
            if is_live and chain.base is not None and chain.base != known:
                problems.append((chain.offset, misplaced(chain.base, known)))
            following[chain.key] = known + chain.records
        path = plan.directory / log_name(segment.meta.log_number)
        yield from listed(path, problems, FaultKind.BATCH, bad=False)
