"""Survey: what is in the directory of Kafka's log. Reads what a start needs, changes nothing.

What the checkpoint knows as synced is compared with its checksums; of a full log only the length is
checked. While a rewrite is under way the checkpoint knows two checksums of an index: then the
checksum tells whether the index was swapped, and which log the entries lead to. What came later is
walked batch by batch, up to the first batch that is not whole. Each file gets one verdict; the
report is what the table says is done about each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, NamedTuple

import msgspec

from headwater.core.arrays import numpy
from headwater.core.errors import FormatError, NewerFormatError
from headwater.disk import Disk, OpenMode, file_bytes, map_file, opened, read_whole
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
    Entries,
    count_entries,
    holes_in,
    read_entries,
)
from headwater.format.kafka.events import AnyEvent
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    COPY_NAME,
    REWRITE_SUFFIX,
    SPARE_NAME,
    KafkaFile,
    index_name,
    log_name,
    parse_name,
)
from headwater.format.names import QUARANTINE_DIRECTORY
from headwater.recovery.directory import sort_names
from headwater.recovery.finding import Action, Finding, StoreReport
from headwater.recovery.kafka.table import (
    CHECKPOINT_TABLE,
    COPY_TABLE,
    INDEX_TABLE,
    LOG_TABLE,
    STRAY_TABLE,
    CheckpointVerdict,
    CopyVerdict,
    IndexVerdict,
    LogVerdict,
    SegmentPosition,
    Stray,
)
from headwater.recovery.kafka.walk import (
    BatchVerdict,
    SeenTopics,
    WalkedBatch,
    Window,
    entries_known_synced,
    says_it_was_synced,
    synced_and_bad,
    walk_batches,
)
from headwater.recovery.repair import has_bytes

_CHANGED: Final = IndexVerdict.CHANGED.value


class KnownEntries(NamedTuple):
    """What became of the entries that the checkpoint knows."""

    meta: SegmentMeta
    """As it is now: behind the swap of a rewrite, if that was done."""
    checksum: int
    verdict: IndexVerdict
    offset: int = 0
    what: str = ""


def check_known_entries(meta: SegmentMeta, view: memoryview) -> KnownEntries:
    """`view` is the index, as long as it is."""
    size, rewrite = meta.entries * ENTRY_BYTES, meta.rewrite
    checksum = checksum64(view[:size])
    if len(view) < size:
        what = f"the index ends before byte {size}"
        return KnownEntries(meta, checksum, IndexVerdict.SHORT, len(view), what)
    if rewrite is not None and checksum == rewrite.checksum:
        return KnownEntries(rewritten(meta), checksum, IndexVerdict.SOUND)
    if checksum != meta.checksum:
        return KnownEntries(meta, checksum, IndexVerdict.CHANGED, 0, _CHANGED)
    return KnownEntries(meta, checksum, IndexVerdict.SOUND)


_CHECKPOINT_BYTES_MAX: Final = 2**31
_KNOWN_NAMES: Final = {CHECKPOINT_NAME, COPY_NAME, SPARE_NAME, QUARANTINE_DIRECTORY}
_OF_EVENTS: Final = {
    BatchVerdict.NEWER: LogVerdict.NEWER,
    BatchVerdict.UNFOLLOWED: LogVerdict.UNFOLLOWED,
}
Progress = Callable[[float], None]


# -- names


@dataclass(slots=True)
class KafkaFileNames:
    """Which files there are."""

    logs: set[int] = field(default_factory=set)
    indexes: set[int] = field(default_factory=set)
    rewrites: list[str] = field(default_factory=list)
    temporaries: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def later(self, checkpoint: KafkaCheckpoint) -> list[int]:
        """Indexes that are younger than the checkpoint."""
        known = checkpoint.segments
        last_known = known[-1].number if known else -1
        return sorted(number for number in self.indexes if number > last_known)


def list_names(disk: Disk, directory: PurePath) -> KafkaFileNames:
    names = KafkaFileNames()
    every = disk.list_directory(directory) if disk.is_directory(directory) else []
    there = sort_names(directory, every, parse_name, _is_own)
    for number, kind in there.known.values():
        (names.logs if kind is KafkaFile.LOG else names.indexes).add(number)
    names.rewrites = [name for name in every if name.endswith(REWRITE_SUFFIX)]
    names.temporaries = [path.name for path in there.leftovers]
    names.foreign = [path.name for path in there.foreign]
    return names


def _is_own(name: str) -> bool:
    return name in _KNOWN_NAMES or name.endswith(REWRITE_SUFFIX)


# -- checkpoints


class CheckpointScan(NamedTuple):
    """One of the two checkpoint files."""

    path: PurePath
    verdict: CheckpointVerdict
    contents: bytes = b""
    checkpoint: KafkaCheckpoint | None = None
    offset: int | None = None
    what: str = ""


class Checkpoints(NamedTuple):
    first: CheckpointScan
    second: CheckpointScan

    @property
    def copy(self) -> CopyVerdict:
        second = self.second.verdict
        if second is not CheckpointVerdict.SOUND:
            return CopyVerdict[second.name]
        return (
            CopyVerdict.SAME if self.first.contents == self.second.contents else CopyVerdict.OTHER
        )

    @property
    def chosen(self) -> CheckpointScan:
        """What to go on from: the checkpoint, and its copy only where that is damaged or gone."""
        if self.first.verdict in (CheckpointVerdict.SOUND, CheckpointVerdict.NEWER):
            return self.first
        return self.second


def scan_checkpoints(disk: Disk, directory: PurePath) -> Checkpoints:
    first = _checkpoint(disk, directory / CHECKPOINT_NAME, None)
    return Checkpoints(first, _checkpoint(disk, directory / COPY_NAME, first))


def _checkpoint(disk: Disk, path: PurePath, same: CheckpointScan | None) -> CheckpointScan:
    """`same`: one that was read already; a large one takes a while to unpack."""
    if not disk.exists(path):
        what = "the checkpoint is missing"
        return CheckpointScan(path, CheckpointVerdict.ABSENT, what=what)
    contents = read_whole(disk, path, _CHECKPOINT_BYTES_MAX)
    if same is not None and contents == same.contents and same.checkpoint is not None:
        return same._replace(path=path)
    try:
        checkpoint = decode_checkpoint(contents)
    except FormatError as error:
        verdict = CheckpointVerdict.DAMAGED
        return CheckpointScan(path, verdict, contents, None, error.offset, error.reason)
    except NewerFormatError as error:
        return CheckpointScan(path, CheckpointVerdict.NEWER, contents, None, None, error.what)
    return CheckpointScan(path, CheckpointVerdict.SOUND, contents, checkpoint)


# -- segments


class TailBatch(NamedTuple):
    """A batch that is younger than the checkpoint's state."""

    first_id: int
    key: bytes
    header: BatchHeader
    event: AnyEvent | None


@dataclass
class SegmentScan:
    """One segment, scanned as far as it makes sense."""

    checkpointed: SegmentMeta
    """As the checkpoint knows it; without entries when it is younger."""
    position: SegmentPosition
    meta: SegmentMeta
    """Up to its last whole batch, and behind the swap of a rewrite."""
    counted: int = 0
    """Entries in the index, also those behind the last whole batch."""
    index: IndexVerdict = IndexVerdict.SOUND
    index_offset: int = 0
    index_what: str = ""
    log: LogVerdict = LogVerdict.SOUND
    log_offset: int = 0
    log_what: str = ""
    checksum: RunningChecksum = field(default_factory=RunningChecksum)
    """Over the entries up to its last whole batch."""

    @property
    def refused(self) -> bool:
        index = INDEX_TABLE.decide(self.index, self.position)
        log = LOG_TABLE.decide(self.log, self.position)
        return index.action.refuses or log.action.refuses


@dataclass
class KafkaSurvey:
    directory: PurePath
    names: KafkaFileNames
    checkpoints: Checkpoints
    has_entries: bool = False
    checkpoint: KafkaCheckpoint | None = None
    """What is gone on from. None: nothing yet, or none that can be read."""
    segments: list[SegmentScan] = field(default_factory=list)
    """In the order of global ids. Of those the checkpoint does not know, only up to the first that
    is refused: where the next begins hangs on it."""
    tail: list[TailBatch] = field(default_factory=list)
    strays: list[tuple[str, Stray]] = field(default_factory=list)

    @property
    def next_number(self) -> int:
        """No file has it, and the checkpoint does not know it."""
        names = self.names
        return max([-1, *names.logs, *names.indexes, *known_numbers(self.checkpoint)]) + 1


def known_numbers(checkpoint: KafkaCheckpoint | None) -> Iterator[int]:
    """Every number that was taken before this checkpoint, as far as it tells."""
    for meta in () if checkpoint is None else checkpoint.segments:
        yield from (meta.number, meta.log_number)
        if meta.rewrite is not None:
            yield meta.rewrite.log_number


def survey_kafka(
    disk: Disk, directory: PurePath, progress: Progress = lambda _: None
) -> KafkaSurvey:
    names = list_names(disk, directory)
    survey = KafkaSurvey(directory, names, scan_checkpoints(disk, directory))
    chosen = survey.checkpoints.chosen
    if chosen.checkpoint is None:
        survey.has_entries = bool(names.indexes or names.logs)
        return survey
    survey.checkpoint = chosen.checkpoint
    survey.has_entries = True
    _Surveyor(disk, survey, chosen.checkpoint).run(progress)
    return survey


def assume_checkpoint(disk: Disk, directory: PurePath, checkpoint: KafkaCheckpoint) -> KafkaSurvey:
    """What a start would see with this checkpoint."""
    path = directory / CHECKPOINT_NAME
    scan = CheckpointScan(path, CheckpointVerdict.SOUND, b"", checkpoint)
    names = list_names(disk, directory)
    survey = KafkaSurvey(directory, names, Checkpoints(scan, scan), True, checkpoint)
    _Surveyor(disk, survey, checkpoint).run(lambda _: None)
    return survey


class _Surveyor:
    def __init__(self, disk: Disk, survey: KafkaSurvey, checkpoint: KafkaCheckpoint) -> None:
        self._disk = disk
        self._directory = survey.directory
        self._survey = survey
        self._checkpoint = checkpoint
        self._topics = SeenTopics(checkpoint)
        self._referenced: set[int] = set()

    def run(self, progress: Progress) -> None:
        survey, known = self._survey, self._checkpoint.segments
        young = survey.names.later(self._checkpoint)
        later = [n for n in young if count_entries(self._view(index_name(n)))]
        total = max(len(known) + len(later), 1)
        for at, meta in enumerate(known, 1):
            progress((at - 1) / total)
            position = SegmentPosition.LAST
            if at < len(known):
                position = SegmentPosition.LISTED
            elif later:
                position = SegmentPosition.FOLLOWED
            self._segment(meta, position)
        for at, number in enumerate(later, 1):
            progress((at + len(known) - 1) / total)
            if survey.segments and survey.segments[-1].refused:
                break
            base = survey.segments[-1].meta if survey.segments else None
            base_id = 0 if base is None else base.base_id + base.entries
            fresh = SegmentMeta(number, base_id, 0, 0, checksum64(b""), number)
            self._segment(
                fresh, SegmentPosition.FOLLOWED if at < len(later) else SegmentPosition.LAST
            )
        survey.strays = list(self._strays({meta.number for meta in known} | set(later)))

    def _view(self, name: str) -> memoryview:
        return map_file(self._disk, self._directory / name)

    def _segment(self, checkpointed: SegmentMeta, position: SegmentPosition) -> None:
        scan = SegmentScan(checkpointed, position, checkpointed)
        self._survey.segments.append(scan)
        try:
            view = self._view(index_name(checkpointed.number))
        except FileNotFoundError:
            scan.index, scan.index_what = IndexVerdict.MISSING, "a file is missing"
            return
        self._index(scan, view)
        if scan.index not in (IndexVerdict.SOUND, IndexVerdict.BEYOND):
            return
        self._log(scan, view)
        scan.checksum.update(view[: scan.meta.entries * ENTRY_BYTES])
        scan.meta = msgspec.structs.replace(scan.meta, checksum=scan.checksum.value())

    # -- the index

    def _index(self, scan: SegmentScan, view: memoryview) -> None:
        meta = scan.checkpointed
        known = check_known_entries(meta, view)
        if known.verdict is not IndexVerdict.SOUND:
            scan.index, scan.index_offset, scan.index_what = known[2:]
            return
        meta = msgspec.structs.replace(known.meta, rewrite=None)
        count = meta.entries
        if scan.position is not SegmentPosition.LISTED:
            count = max(count_entries(view), count)
        scan.counted, scan.meta = count, msgspec.structs.replace(meta, entries=count)
        end = count * ENTRY_BYTES
        full = scan.position is not SegmentPosition.LAST
        if full and len(view) != end:
            scan.index, scan.index_offset = IndexVerdict.BEYOND, end
            scan.index_what = "the index of a full segment has a hole"
        elif not full and bytes(view[end:]).rstrip(b"\0"):
            scan.index, scan.index_offset = IndexVerdict.BEYOND, end
            scan.index_what = "the beginning of an entry"

    # -- the log

    def _log(self, scan: SegmentScan, view: memoryview) -> None:
        entries = read_entries(view, scan.counted)
        known = entries[: scan.checkpointed.entries]
        self._referenced.update(numpy.unique(known["segment_id"][known["length"] > 0]).tolist())
        is_young = self._checkpoint.as_of < scan.meta.base_id + scan.counted
        if scan.position is not SegmentPosition.LISTED:
            self._referenced.add(scan.meta.number)
        elif scan.meta.log_number not in self._referenced and not is_young:
            scan.log = LogVerdict.NEEDLESS  # it went already or goes now
            return
        try:
            if scan.position is not SegmentPosition.LISTED or is_young:
                self._walk(scan, view)
            if scan.log is LogVerdict.SOUND:
                self._length(scan)
        except FileNotFoundError:
            scan.log, scan.log_what = LogVerdict.MISSING, "a file is missing"

    def _length(self, scan: SegmentScan) -> None:
        """By its length alone: its bytes are checked when they are read."""
        meta = scan.meta
        path, end = self._directory / log_name(meta.log_number), meta.log_bytes
        size = file_bytes(self._disk, path)
        what = f"the log has {size} bytes and should have {end}"
        if size < end:
            scan.log, scan.log_offset, scan.log_what = LogVerdict.SHORT, size, what
        elif size > end and scan.position is not SegmentPosition.LAST:
            scan.log, scan.log_offset, scan.log_what = LogVerdict.LONG, end, what
        elif size > end:
            scan.log, scan.log_offset = LogVerdict.AHEAD, end
            with opened(self._disk, path, OpenMode.READ) as file:
                if has_bytes(file, end):
                    scan.log, scan.log_what = LogVerdict.BEYOND, "bytes without an entry"

    def _walk(self, scan: SegmentScan, view: memoryview) -> None:
        """Check what the checkpoint does not cover, and take in what is new since then.

        Afterwards the sight's segment ends with its last whole batch.
        """
        meta, checkpointed, count = scan.meta, scan.checkpointed, scan.counted
        start = min(max(self._checkpoint.as_of - meta.base_id, 0), checkpointed.entries)
        log = self._view(log_name(meta.number)) if count > start else memoryview(b"")
        entries = read_entries(view, count)
        offset = meta.log_bytes if start == checkpointed.entries else _end_before(entries, start)
        behind_hole = bool(start and holes_in(entries[start - 1 : start])[0])
        at = start
        for batch in walk_batches(
            meta.number, entries[start:], log, offset, behind_hole=behind_hole
        ):
            if batch.is_dead:
                at += batch.records
                continue
            problem = batch.problem or self._note(scan, meta.base_id + at, batch)
            if problem:
                scan.log_offset, scan.log_what = offset, problem
                if scan.log is LogVerdict.SOUND:
                    scan.log = LogVerdict.TORN
                    if at < checkpointed.entries:
                        scan.log = LogVerdict.DAMAGED
                    elif at < entries_known_synced(meta.number, entries, at, log):
                        scan.log = LogVerdict.DAMAGED
                        scan.log_what = synced_and_bad(problem, meta.number, at)
                scan.meta = msgspec.structs.replace(meta, entries=at, log_bytes=offset)
                return
            at += batch.records
            offset = batch.end
        end = max(offset, meta.log_bytes)
        scan.meta = msgspec.structs.replace(meta, entries=at, log_bytes=end)

    def _note(self, scan: SegmentScan, first_id: int, batch: WalkedBatch) -> str:
        """Keep a sound batch for the state. Returns why it cannot be ours, if it cannot."""
        assert batch.header is not None
        taken = self._topics.take_batch(first_id, batch.key, batch.bytes)
        if taken.verdict is BatchVerdict.OURS:
            self._survey.tail.append(TailBatch(first_id, batch.key, batch.header, taken.event))
        scan.log = _OF_EVENTS.get(taken.verdict, scan.log)
        return taken.problem

    # -- what nothing leads to

    def _strays(self, numbers: set[int]) -> Iterator[tuple[str, Stray]]:
        names, segments = self._survey.names, self._survey.segments
        known = max(known_numbers(self._checkpoint), default=-1)
        numbers = numbers | self._referenced
        logs = self._referenced | {each.meta.number for each in segments[-1:]}
        if any(each.refused for each in segments):  # not all of them were looked into
            logs |= numbers | {each.meta.log_number for each in segments}
            numbers = numbers | logs
        rewrites = {name: _number_of(name) for name in names.rewrites}
        made_for = self._logs_of([name for name, of in rewrites.items() if of in numbers])
        yield from ((name, Stray.TEMPORARY) for name in names.temporaries)
        yield from ((name, Stray.FOREIGN_NAME) for name in names.foreign)
        for name, number in rewrites.items():
            is_log = number is not None and name == log_name(number) + REWRITE_SUFFIX
            if is_log or number in numbers or (number is not None and number <= known):
                yield name, Stray.REWRITE
            else:
                yield name, Stray.FOREIGN_NAME if number is None else Stray.UNFINISHED
        for number in sorted(names.indexes - numbers):
            yield index_name(number), self._judge(number, known, made_for)
        for number in sorted(names.logs - logs):
            yield log_name(number), self._judge(number, known, made_for)

    def _judge(self, number: int, known: int, made_for: set[int]) -> Stray:
        """Numbers are taken in order, and a checkpoint lists every segment there is by then."""
        if number <= known or number in made_for:
            return Stray.LET_GO
        return judge_begun(self._disk, self._directory, number)

    def _logs_of(self, rewrites: list[str]) -> set[int]:
        """The logs that were made for these indexes, which never took their places."""
        logs: set[int] = set()
        for name in rewrites:
            view = self._view(name)
            entries = read_entries(view, len(view) // ENTRY_BYTES)
            logs.update(numpy.unique(entries["segment_id"][entries["length"] > 0]).tolist())
        return logs


def _number_of(name: str) -> int | None:
    parsed = parse_name(name.removesuffix(REWRITE_SUFFIX))
    return None if parsed is None else parsed[0]


def _end_before(entries: Entries, position: int) -> int:
    """Where the last batch of the entries before this one ends."""
    stored = numpy.flatnonzero(entries["length"][:position])
    if not len(stored):
        return 0
    entry = entries[stored[-1]]
    return int(entry["physical_offset"]) + PREFIX_BYTES + int(entry["length"])


def judge_begun(disk: Disk, directory: PurePath, number: int) -> Stray:
    """A segment whose index has no entries: what its log says about that."""
    try:
        with opened(disk, directory / log_name(number), OpenMode.READ) as file:
            if not has_bytes(file, 0):
                return Stray.BEGUN
            return Stray.EMPTIED if says_it_was_synced(Window(file)) else Stray.UNFINISHED
    except FileNotFoundError:
        return Stray.BEGUN


@dataclass(slots=True)
class KafkaReport(StoreReport):
    @property
    def repaired(self) -> list[Finding]:
        """What an operator may want to know of: not what every crash leaves and a start tidies."""
        return [
            finding
            for finding in self.findings
            if finding.action in (Action.CUT, Action.QUARANTINE)
            or (finding.action is Action.REWRITE and finding.offset is not None)
        ]


def report_on_kafka(survey: KafkaSurvey) -> KafkaReport:
    findings = [*_about_checkpoints(survey)]
    for segment in survey.segments:
        findings += _about_segment(survey, segment)
    for name, stray in survey.strays:
        row = STRAY_TABLE.decide(stray)
        offset = 0 if row.action.refuses else None
        findings += row.findings(survey.directory / name, stray.value, offset)
    return KafkaReport(findings)


def _about_checkpoints(survey: KafkaSurvey) -> Iterator[Finding]:
    first, second = survey.checkpoints
    copy = survey.checkpoints.copy
    row = CHECKPOINT_TABLE.decide(first.verdict, copy, survey.has_entries)
    if row.action is not Action.KEEP:
        what = first.what
        if row.action.refuses and first.verdict is not CheckpointVerdict.NEWER:
            what += f"; {second.path.name} is {copy.value}"
        yield from row.findings(first.path, what, first.offset)
    elif survey.checkpoint is not None:
        what = second.what or copy.value
        yield from COPY_TABLE.decide(copy).findings(second.path, what, second.offset)


def _about_segment(survey: KafkaSurvey, segment: SegmentScan) -> Iterator[Finding]:
    path = survey.directory / index_name(segment.meta.number)
    row = INDEX_TABLE.decide(segment.index, segment.position)
    yield from row.findings(path, segment.index_what, segment.index_offset)
    path = survey.directory / log_name(segment.meta.log_number)
    row = LOG_TABLE.decide(segment.log, segment.position)
    yield from row.findings(path, segment.log_what, segment.log_offset)
