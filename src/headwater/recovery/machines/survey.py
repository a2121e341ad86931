"""Survey: what is in the directory of the machines. Reads everything, changes nothing.

In steps, so that segments can be scanned anywhere: what names, CURRENT, FED and the snapshots say,
and which segments are to be scanned; then a scan of each by itself; then the survey is whole. The
report is what the table says is done about what was found.

A start does without what compaction kept for the histories of instances, so no damage of theirs
stops anything; verify reports what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, TypeVar

from headwater.core.errors import FormatError
from headwater.disk import Disk, read_all
from headwater.disk.posix import LOCK_NAME
from headwater.format.machines.current import (
    MachineCurrent,
    decode_fed,
    decode_machine_current,
)
from headwater.format.machines.history import HistoryFile
from headwater.format.machines.names import (
    FED_NAME,
    HISTORY_DIRECTORY,
    INDEX_NAME,
    SNAPSHOTS_DIRECTORY,
    WEBHOOKS_DIRECTORY,
    global_offset,
    parse_history_name,
    parse_segment_name,
    segment_name,
    segment_of,
    within_segment,
)
from headwater.format.machines.snapshot import SnapshotHeading
from headwater.format.names import (
    CURRENT_NAME,
    PREPARED_NAME,
    QUARANTINE_DIRECTORY,
    WAL_DIRECTORY,
)
from headwater.recovery.directory import StoreNames, sort_names
from headwater.recovery.finding import Finding, StoreReport
from headwater.recovery.machines.judge import BadStretch, LogJudgement, judge_log
from headwater.recovery.machines.segment import (
    Deliver,
    MachineScan,
    MachineSegment,
    scan_machine_segment,
)
from headwater.recovery.machines.snapshot import (
    SnapshotScan,
    SnapshotsScan,
    scan_machine_snapshots,
)
from headwater.recovery.machines.table import (
    CURRENT_TABLE,
    FED_TABLE,
    INDEX_TABLE,
    ODDITY_TABLE,
    SNAPSHOT_TABLE,
    STRETCH_TABLE,
    MachineOddity,
    SmallFile,
    SnapshotStanding,
)
from headwater.store.verify import FaultKind, VerifyFault


def history_faults(disk: Disk, directory: PurePath) -> list[VerifyFault]:
    """Every file of the directory, entry by entry."""
    faults: list[VerifyFault] = []
    names = disk.list_directory(directory) if disk.is_directory(directory) else []
    there = sort_names(directory, names, parse_history_name, lambda _: False)
    for name, segment in there.known.items():
        faults += _faults_of(disk, directory / name, segment)
    for oddity, paths, kind in (
        (MachineOddity.LEFTOVER, there.leftovers, FaultKind.UNFINISHED),
        (MachineOddity.FOREIGN_NAME, there.foreign, FaultKind.NAME),
    ):
        faults += [VerifyFault(path, None, oddity.value, False, kind) for path in paths]
    return faults


def _faults_of(disk: Disk, path: PurePath, segment: int) -> list[VerifyFault]:
    try:
        contents = read_all(disk, path)
    except FileNotFoundError:
        return []  # compaction removed it meanwhile
    try:
        kept = HistoryFile(lambda at, length: contents[at : at + length], len(contents), segment)
        for _ in kept.entries():
            continue
    except FormatError as error:
        what = f"{error.reason}; histories that reach back to here end here"
        return [VerifyFault(path, error.offset, what, True, FaultKind.ENTRY)]
    return []


FIRST_SEGMENT: Final = 1
T = TypeVar("T")
_OURS: Final = frozenset(
    {
        WAL_DIRECTORY,
        SNAPSHOTS_DIRECTORY,
        HISTORY_DIRECTORY,
        WEBHOOKS_DIRECTORY,
        FED_NAME,
        LOCK_NAME,
        QUARANTINE_DIRECTORY,
    }
)
_OURS_IN_LOG: Final = frozenset({CURRENT_NAME, PREPARED_NAME, QUARANTINE_DIRECTORY, LOCK_NAME})


@dataclass(slots=True)
class MachineSurvey:
    directory: PurePath
    numbers: list[int] = field(default_factory=list)
    """Of the segments that are there."""
    missing: list[int] = field(default_factory=list)
    """Of those that must be there, and are not."""
    older_missing: list[int] = field(default_factory=list)
    """The same, of those that only the snapshot before, or a history, goes back to."""
    current: MachineCurrent | None = None
    current_state: SmallFile = SmallFile.ABSENT
    fed_state: SmallFile = SmallFile.ABSENT
    snapshots: SnapshotsScan = field(default_factory=lambda: SnapshotsScan(PurePath()))
    chosen: SnapshotScan | None = None
    """The snapshot a start begins with; None when the log has everything, or nothing has."""
    leftovers: list[PurePath] = field(default_factory=list)
    foreign: list[PurePath] = field(default_factory=list)
    """Unknown names, where they do no harm."""
    foreign_in_log: list[PurePath] = field(default_factory=list)
    faults: list[VerifyFault] = field(default_factory=list)
    """Of what a start does not read, and refuses nothing: the histories beside the log."""
    segments: list[MachineSegment] = field(default_factory=list)
    """Those to be scanned."""
    scans: Sequence[MachineScan] = ()
    judgement: LogJudgement = field(default_factory=LogJudgement)
    """Of what was scanned."""

    @property
    def log(self) -> PurePath:
        return self.directory / WAL_DIRECTORY

    @property
    def heading(self) -> SnapshotHeading | None:
        return None if self.chosen is None else self.chosen.heading

    @property
    def is_complete(self) -> bool:
        """The log reaches back to its very first entry, or there is nothing at all."""
        return not self.numbers or self.numbers[0] == FIRST_SEGMENT

    @property
    def has_no_beginning(self) -> bool:
        """Entries are there, and nothing says what was before them."""
        return self.chosen is None and not self.is_complete

    @property
    def unbroken(self) -> list[int]:
        """The segments from which on none is missing. What is before a hole was compacted away,
        and its removal was cut off."""
        kept: list[int] = []
        for number in reversed(self.numbers):
            if kept and number != kept[-1] - 1:
                break
            kept.append(number)
        return kept[::-1]

    @property
    def current_witness(self) -> int:
        current = self.current
        return 0 if current is None else global_offset(current.active, current.durable)

    def path_of(self, segment: int) -> PurePath:
        return self.log / segment_name(segment)


def begin_survey(disk: Disk, directory: PurePath, *, whole: bool = True) -> MachineSurvey:
    """What the names, CURRENT, FED and the snapshots say. FileNotFoundError: survey again.

    `whole`: every segment is to be scanned, and deeply; else those that a start reads.
    """
    survey = MachineSurvey(directory)
    if not disk.is_directory(directory):
        return survey
    beside: StoreNames[str] = sort_names(
        directory, disk.list_directory(directory), lambda _: None, _OURS.__contains__
    )
    names = disk.list_directory(survey.log) if disk.is_directory(survey.log) else []
    in_log = sort_names(survey.log, names, parse_segment_name, _OURS_IN_LOG.__contains__)
    survey.numbers = sorted(in_log.known.values())
    survey.leftovers = [*beside.leftovers, *in_log.leftovers]
    survey.foreign, survey.foreign_in_log = beside.foreign, in_log.foreign
    survey.current_state, survey.current = _small(
        disk, survey.log / CURRENT_NAME, decode_machine_current
    )
    survey.fed_state, _ = _small(disk, directory / FED_NAME, decode_fed)
    if whole:
        survey.faults += history_faults(disk, directory / HISTORY_DIRECTORY)
    survey.snapshots = scan_machine_snapshots(disk, directory / SNAPSHOTS_DIRECTORY)
    usable = survey.snapshots.whole()
    survey.chosen = usable[0] if usable else None
    survey.missing = _missing(survey)
    survey.older_missing = _older_missing(survey)
    survey.segments = _segments(survey, whole)
    return survey


def complete_survey(survey: MachineSurvey, scans: Sequence[MachineScan]) -> MachineSurvey:
    """Every segment was scanned: what do they come to?"""
    survey.scans = scans
    begin, sequence = beginning_of(survey)
    survey.judgement = judge_log(scans, begin, sequence, survey.current_witness)
    return survey


def survey_machines(disk: Disk, directory: PurePath, *, whole: bool = True) -> MachineSurvey:
    return scan_survey(disk, begin_survey(disk, directory, whole=whole))


def scan_survey(
    disk: Disk,
    survey: MachineSurvey,
    progress: Callable[[float], None] = lambda _: None,
    deliver: Deliver = lambda _number, _run: None,
) -> MachineSurvey:
    """Every segment is read, once. What entries knew as synced matters only where bytes are bad:
    where the scans left it out, they are done again for it."""
    complete_survey(survey, _scan(disk, survey.segments, progress, deliver))
    if survey.judgement.stretches and not all(each.witnesses for each in survey.segments):
        survey.segments = [replace(each, witnesses=True) for each in survey.segments]
        scan_survey(disk, survey)
    return survey


def _scan(
    disk: Disk,
    segments: Sequence[MachineSegment],
    progress: Callable[[float], None],
    deliver: Deliver,
) -> list[MachineScan]:
    scans = []
    for segment in segments:
        scans.append(scan_machine_segment(disk, segment, deliver))
        progress(len(scans) / len(segments))
    return scans


def beginning_of(survey: MachineSurvey) -> tuple[int, int | None]:
    """Where the scans begin, and the number of the entry there, where that is known."""
    heading = survey.heading
    if not survey.segments:
        start = global_offset(FIRST_SEGMENT, 0)
        return (start, 1) if heading is None else (heading.wal_offset, heading.sequence)
    first = survey.segments[0]
    begin = global_offset(first.number, first.begin)
    if heading is not None and heading.wal_offset == begin:
        return begin, heading.sequence
    return begin, 1 if begin == global_offset(FIRST_SEGMENT, 0) else None


def _small(disk: Disk, path: PurePath, decode: Callable[[bytes], T]) -> tuple[SmallFile, T | None]:
    if not disk.exists(path):
        return SmallFile.ABSENT, None
    try:
        return SmallFile.SOUND, decode(read_all(disk, path))
    except FormatError:
        return SmallFile.DAMAGED, None


def _missing(survey: MachineSurvey) -> list[int]:
    """Every segment from the first needed to the last known must be there."""
    there = set(survey.numbers)
    heading, current = survey.heading, survey.current
    needed = FIRST_SEGMENT if heading is None else segment_of(heading.wal_offset)
    if heading is None and not survey.is_complete:
        needed = survey.numbers[0]  # that the beginning is missing has a row of its own
    last = max([*there, 0 if current is None else current.active])
    if heading is not None:
        last = max(last, needed)
    return [
        number
        for number in range(needed, last + 1)
        if number not in there and not (number == last and _may_be_unmade(survey, number))
    ]


def _older_missing(survey: MachineSurvey) -> list[int]:
    """CURRENT names the oldest segment before any that is older goes."""
    if survey.current is None or survey.heading is None:
        return []
    there, needed = set(survey.numbers), segment_of(survey.heading.wal_offset)
    return [n for n in range(survey.current.oldest, needed) if n not in there]


def _may_be_unmade(survey: MachineSurvey, number: int) -> bool:
    """CURRENT may name a first segment that the disk had no room for. Any later one was made
    before CURRENT named it."""
    current = survey.current
    named = current is not None and current.active == number and current.durable == 0
    return named and number == FIRST_SEGMENT


def _segments(survey: MachineSurvey, whole: bool) -> list[MachineSegment]:
    if whole:
        offsets = [each.wal_offset for each in survey.snapshots.whole()]
        return [
            MachineSegment(
                str(survey.path_of(n)),
                n,
                wanted=tuple(within_segment(at) for at in offsets if segment_of(at) == n),
            )
            for n in survey.numbers
        ]
    heading = survey.heading
    first = FIRST_SEGMENT if heading is None else segment_of(heading.wal_offset)
    return [
        MachineSegment(
            str(survey.path_of(n)),
            n,
            within_segment(heading.wal_offset) if heading and n == first else 0,
            deep=False,
            witnesses=False,
        )
        for n in survey.numbers
        if n >= first
    ]


def report_on_machines(survey: MachineSurvey) -> StoreReport:
    """A snapshot's damage comes first: it explains the rest."""
    findings = [*_about_snapshots(survey), *_about_small_files(survey), *_about_names(survey)]
    for stretch in survey.judgement.stretches:
        findings += _about_stretch(survey, stretch)
    return StoreReport(findings)


def standing_of(survey: MachineSurvey) -> SnapshotStanding:
    """Of every snapshot that is not the one a start begins with."""
    return (
        SnapshotStanding.NEEDED
        if survey.has_no_beginning or survey.missing
        else SnapshotStanding.SPARE
    )


def _about_snapshots(survey: MachineSurvey) -> Iterator[Finding]:
    snapshots, standing = survey.snapshots, standing_of(survey)
    for scan in snapshots.snapshots:
        what = scan.reason or f"{scan.verdict.value}: {MachineOddity.LEFTOVER.value}"
        row = SNAPSHOT_TABLE.decide(scan.verdict, standing)
        yield from row.findings(scan.path, what, scan.offset)
    what = f"index.json {snapshots.index.value}"
    if snapshots.index_reason:
        what += f": {snapshots.index_reason}"
    row = INDEX_TABLE.decide(snapshots.index)
    yield from row.findings(snapshots.directory / INDEX_NAME, what)


def _about_small_files(survey: MachineSurvey) -> Iterator[Finding]:
    for path, table, state in (
        (survey.log / CURRENT_NAME, CURRENT_TABLE, survey.current_state),
        (survey.directory / FED_NAME, FED_TABLE, survey.fed_state),
    ):
        yield from table.decide(state).findings(path, f"{path.name} {state.value}")


def _about_names(survey: MachineSurvey) -> Iterator[Finding]:
    yield from ODDITY_TABLE.oddities(
        (
            (MachineOddity.LEFTOVER, survey.leftovers),
            (MachineOddity.FOREIGN_NAME, survey.foreign),
            (MachineOddity.FOREIGN_IN_LOG, survey.foreign_in_log),
            (MachineOddity.SEGMENT_MISSING, map(survey.path_of, survey.missing)),
            (MachineOddity.OLDER_MISSING, map(survey.path_of, survey.older_missing)),
        )
    )
    if survey.has_no_beginning:
        oddity, path = MachineOddity.NO_BEGINNING, survey.path_of(survey.numbers[0])
        yield from ODDITY_TABLE.decide(oddity).findings(path, oddity.value, 0)


def _about_stretch(survey: MachineSurvey, stretch: BadStretch) -> Iterator[Finding]:
    path, row = survey.path_of(segment_of(stretch.offset)), STRETCH_TABLE.decide(stretch.verdict)
    return row.findings(path, stretch.reason, within_segment(stretch.offset))
