"""Repairs of the machines' files: what a start does by itself, and what an operator agrees to.

A start cuts what was never acknowledged, writes again what no witness covers, keeps a copy of
every stretch it skips, and moves aside a snapshot that another one stands in for. What it refuses,
`plan_machine_repairs` can make readable again at the price of what is lost already: of a snapshot
that nothing stands in for, the blocks that are sound; in place of a segment that is gone, an empty
one, so that what was in it counts as damage like any other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Final

import msgspec

from headwater.core.errors import FormatError, RequestError
from headwater.disk import Disk, OpenMode, replace_file, sync_file, write_all
from headwater.disk.whole_files import sync_names
from headwater.format.machines.names import (
    INDEX_NAME,
    global_offset,
    parse_snapshot_file_name,
    segment_name,
    segment_of,
    snapshot_file_name,
    within_segment,
)
from headwater.format.machines.snapshot import (
    BlockEncoder,
    BlockKind,
    LostBlocks,
    PackedBlock,
    SnapshotHeading,
    SnapshotIndex,
    encode_index,
    encode_start,
    sound_blocks,
    unpack_block,
)
from headwater.format.names import QUARANTINE_DIRECTORY
from headwater.recovery.finding import Action
from headwater.recovery.machines.judge import StretchVerdict
from headwater.recovery.machines.report import findings_of, standing_of
from headwater.recovery.machines.segment import Run
from headwater.recovery.machines.snapshot import (
    IndexState,
    SnapshotScan,
    SnapshotVerdict,
    block_rows,
)
from headwater.recovery.machines.survey import MachineSurvey, survey_machines
from headwater.recovery.machines.table import decide_snapshot
from headwater.recovery.repair import RepairPlan, RepairStep, StepKind
from headwater.recovery.wal_recovery import quarantine
from headwater.store.pair import read_all
from headwater.wal.dialect import NO_ROOM

MISSING_SEGMENTS_MAX: Final = 10_000
_NO_TIME: Final = "1970-01-01T00:00:00Z"
_WRITTEN_AGAIN: Final = (IndexState.DAMAGED, IndexState.LOST)
_SKIPPED: Final = (StretchVerdict.DAMAGED, StretchVerdict.LOST_END)


# -- by a start, where nothing was refused


def repair_machines(disk: Disk, survey: MachineSurvey) -> None:
    """After this CURRENT may say that everything up to the end is synced. Can be repeated."""
    _keep_skipped(disk, survey)
    _cut_torn_tail(disk, survey)
    _write_unwitnessed_again(disk, survey)
    _repair_snapshots(disk, survey)


def _keep_skipped(disk: Disk, survey: MachineSurvey) -> None:
    """The bytes stay where they are; a copy shows later what they were."""
    for stretch in survey.judgement.stretches:
        if stretch.verdict not in _SKIPPED:
            continue
        for segment in range(segment_of(stretch.offset), segment_of(stretch.resume) + 1):
            if segment not in survey.numbers:
                continue
            contents = read_all(disk, survey.path_of(segment))
            begin = within_segment(stretch.offset) if segment == segment_of(stretch.offset) else 0
            end = len(contents)
            if segment == segment_of(stretch.resume):
                end = within_segment(stretch.resume)
            _keep_copy(disk, survey, segment, begin, contents[begin:end], "damaged")


def _keep_copy(
    disk: Disk, survey: MachineSurvey, segment: int, offset: int, contents: bytes, kind: str
) -> None:
    bad = contents.rstrip(b"\0")
    if not bad:
        return
    with contextlib.suppress(OSError):  # a courtesy that a full disk may refuse
        quarantine(disk, survey.path_of(segment), f"{segment_name(segment)}.{offset}.{kind}", bad)


def _cut_torn_tail(disk: Disk, survey: MachineSurvey) -> None:
    """Quarantine first, then the segments behind it, then zeros."""
    torn = survey.judgement.torn
    if torn is None:
        return
    segment, offset = segment_of(torn.offset), within_segment(torn.offset)
    for later in [number for number in survey.numbers if number > segment]:
        _keep_copy(disk, survey, later, 0, read_all(disk, survey.path_of(later)), "torn")
        disk.unlink(survey.path_of(later))
    if segment in survey.numbers:
        tail = read_all(disk, survey.path_of(segment))[offset:]
        _keep_copy(disk, survey, segment, offset, tail, "torn")
        _write(disk, survey.path_of(segment), offset, bytes(len(tail.rstrip(b"\0"))))
    sync_names(disk, survey.log)
    survey.numbers = [number for number in survey.numbers if number <= segment]


def _write_unwitnessed_again(disk: Disk, survey: MachineSurvey) -> None:
    """Bytes that a failed sync left in memory only look sound until the power goes; written and
    synced once more they are."""
    end = survey.judgement.end
    segment = segment_of(end)
    start = max(survey.current_witness, global_offset(segment, 0))
    at = within_segment(start) if segment_of(start) == segment else 0
    if segment in survey.numbers and at < within_segment(end):
        tail = read_all(disk, survey.path_of(segment))[at : within_segment(end)]
        _write(disk, survey.path_of(segment), at, tail)


def _write(disk: Disk, path: PurePath, at: int, contents: bytes) -> None:
    file = disk.open(path, OpenMode.UPDATE)
    try:
        if contents:
            write_all(file, at, [contents])
        sync_file(file)
    finally:
        file.close()


def _repair_snapshots(disk: Disk, survey: MachineSurvey) -> None:
    """The index first: it never names what is not there."""
    snapshots, standing = survey.snapshots, standing_of(survey)
    aside = [
        each.path
        for each in snapshots.snapshots
        if decide_snapshot(each.verdict, standing).action is Action.QUARANTINE
    ]
    gone = any(each.verdict is SnapshotVerdict.MISSING for each in snapshots.snapshots)
    if not (aside or gone or snapshots.index in _WRITTEN_AGAIN):
        return
    kept = [each.heading for each in reversed(snapshots.whole()) if each.heading is not None]
    try:
        write_index(disk, snapshots.directory, kept)
        for path in aside:
            move_to_quarantine(disk, path)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise  # without room it stays as it is, and the next start finds the same


def write_index(disk: Disk, directory: PurePath, kept: Sequence[SnapshotHeading]) -> None:
    """The newest is last."""
    replace_file(disk, directory / INDEX_NAME, encode_index(SnapshotIndex(tuple(kept))))


def move_to_quarantine(disk: Disk, path: PurePath) -> None:
    if not disk.exists(path):
        return  # done before a crash
    directory = path.parent / QUARANTINE_DIRECTORY
    if not disk.is_directory(directory):
        disk.make_directory(directory)
        sync_names(disk, path.parent)
    target, number = directory / path.name, 0
    while disk.exists(target):
        number += 1
        target = directory / f"{path.name}.{number}"
    disk.rename(path, target)
    sync_names(disk, directory)
    sync_names(disk, path.parent)


# -- by an operator's consent


@dataclass(frozen=True, slots=True)
class Salvage:
    """What a snapshot is made of that nothing stands in for."""

    path: PurePath
    """Of the damaged one; of the directory when there is none."""
    heading: SnapshotHeading
    rows: tuple[tuple[BlockKind, list[Any]], ...]
    lost: int | None
    """Instances; None: their number is not known."""
    what: str


@dataclass(frozen=True, slots=True)
class MachineRepairPlan(RepairPlan):
    store: ClassVar[str] = "machines"

    def carry_out(self, disk: Disk) -> None:
        """Looks again, so that a crash in the middle leaves less to do and not something else."""
        survey = survey_machines(disk, self.directory)
        for path in survey.foreign_in_log:
            move_to_quarantine(disk, path)
        if survey.has_no_beginning:
            _rewrite_snapshot(disk, survey)
            survey = survey_machines(disk, self.directory)
        for number in survey.missing[:MISSING_SEGMENTS_MAX]:
            replace_file(disk, survey.path_of(number), b"")


def plan_machine_repairs(disk: Disk, directory: PurePath) -> list[RepairPlan]:
    """Raises when a newer version wrote the files."""
    survey = survey_machines(disk, directory)
    refusals = [finding for finding in findings_of(survey) if finding.action.refuses]
    for finding in refusals:
        if finding.action is Action.REFUSE_NEWER:
            raise finding.as_error()
    steps = list(_repair_steps(disk, survey)) if refusals else []
    return [MachineRepairPlan(directory, tuple(steps))] if steps else []


def _repair_steps(disk: Disk, survey: MachineSurvey) -> Iterator[RepairStep]:
    for path in survey.foreign_in_log:
        yield RepairStep(StepKind.QUARANTINE, path, "not a file of this log")
    if survey.has_no_beginning:
        salvage = _salvage(disk, survey)
        yield RepairStep(
            StepKind.REWRITE, salvage.path, salvage.what, lost=salvage.lost, unit="instance"
        )
    if len(survey.missing) > MISSING_SEGMENTS_MAX:
        raise RequestError(
            f"{len(survey.missing)} segments of {survey.log} are missing; restore a backup"
        )
    for number in survey.missing:
        what = "an empty segment in its place; what it held is lost"
        lost = _lost_in(survey, number)
        path = survey.path_of(number)
        yield RepairStep(StepKind.REWRITE, path, what, lost=lost, unit="entry")


def _lost_in(survey: MachineSurvey, number: int) -> int | None:
    """How many entries, where the numbers of those around it tell."""
    before = [s for s in survey.scans if s.number == number - 1]
    after = [s for s in survey.scans if s.number == number + 1]
    if not (before and after) or after[0].first_sequence is None:
        return None
    runs = [item for item in before[0].items if isinstance(item, Run)]
    return after[0].first_sequence - (runs[-1].first + runs[-1].entries) if runs else None


def _salvage(disk: Disk, survey: MachineSurvey) -> Salvage:
    """Of the damaged snapshot that knows most, if the log goes on where it ends; else nothing."""
    damaged = [
        each for each in survey.snapshots.snapshots if each.verdict is SnapshotVerdict.DAMAGED
    ]
    for scan in sorted(damaged, key=lambda each: each.wal_offset, reverse=True):
        salvage = _readable(disk, scan)
        if salvage is not None and segment_of(salvage.heading.wal_offset) in survey.numbers:
            return salvage
    first = survey.numbers[0]
    sequence = next((s.first_sequence for s in survey.scans if s.number == first), None) or 1
    heading = SnapshotHeading(
        _NO_TIME, global_offset(first, 0), 0, (), sequence, "", global_offset(first, 0), 1
    )
    what = "an empty snapshot before the first entry that is left; all that was before is lost"
    return Salvage(survey.snapshots.directory, heading, (), None, what)


def _readable(disk: Disk, scan: SnapshotScan) -> Salvage | None:
    """Every block that is sound; None when not even the heading is to be had."""
    heading, lost_blocks = scan.heading, 0
    rows: list[tuple[BlockKind, list[Any]]] = []
    ids: list[str] = []
    gaps: list[str] = []
    is_gap = False
    for block in sound_blocks(read_all(disk, scan.path)):
        plain = None if isinstance(block, LostBlocks) else _unpacked(block)
        if isinstance(block, LostBlocks) or plain is None:
            lost_blocks += 1
            is_gap = True
            continue
        if block.kind is BlockKind.HEADING:
            heading = block_rows(SnapshotHeading, plain)
        elif block.kind is not BlockKind.END:
            block_of_rows = block_rows(list[Any], plain)
            rows.append((block.kind, block_of_rows))
            if block.kind is BlockKind.INSTANCES:
                if is_gap:
                    gaps.append(_between(ids, block_of_rows[0][0]))
                ids += [row[0] for row in block_of_rows]
                is_gap = False
        if is_gap and block.kind > BlockKind.INSTANCES:
            gaps.append(_between(ids, None))
            is_gap = False
    if heading is None:
        return None
    lost = max(heading.instance_count - len(ids), 0)
    where = f"; instances {', '.join(gaps)} may be gone" if gaps and lost else ""
    what = f"what can be read of {scan.path.name}; {lost_blocks} stretch(es) of it cannot{where}"
    heading = msgspec.structs.replace(
        heading,
        instance_count=len(ids),
        damaged_entries=heading.damaged_entries + max(lost, 1),
    )
    return Salvage(scan.path, heading, tuple(rows), lost, what)


def _between(ids: Sequence[str], following: str | None) -> str:
    """Instances lie in the order of their ids, so a gap tells which may have been in it."""
    after = f"after {ids[-1]!r}" if ids else "from the first"
    return after if following is None else f"{after} up to {following!r}"


def _unpacked(block: PackedBlock) -> bytes | None:
    try:
        return unpack_block(block)
    except FormatError:
        return None


def _rewrite_snapshot(disk: Disk, survey: MachineSurvey) -> None:
    """The new one first, then what is damaged aside, then the index. At every point in between
    a survey finds the same, or the new one whole."""
    directory = survey.snapshots.directory
    salvage = _salvage(disk, survey)
    if not disk.is_directory(directory):
        disk.make_directory(directory)
        sync_names(disk, directory.parent)
    heading = msgspec.structs.replace(salvage.heading, file=_free_name(disk, salvage, directory))
    encoder = BlockEncoder()
    blocks = [encode_start(), encoder.encode(BlockKind.HEADING, heading)]
    blocks += [encoder.encode(kind, rows) for kind, rows in salvage.rows]
    blocks.append(encoder.encode(BlockKind.END, heading.instance_count))
    replace_file(disk, directory / heading.file, b"".join(blocks))
    for each in survey.snapshots.snapshots:
        if each.verdict is SnapshotVerdict.DAMAGED:
            move_to_quarantine(disk, each.path)
    write_index(disk, directory, [heading])


def _free_name(disk: Disk, salvage: Salvage, directory: PurePath) -> str:
    seconds, number = parse_snapshot_file_name(salvage.path.name) or (0, 0)
    taken = set(disk.list_directory(directory))
    while (name := snapshot_file_name(seconds, number)) in taken:
        number += 1
    return name
