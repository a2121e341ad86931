"""Plan: what an operator may agree to when a start refuses the machines.

It makes the files readable again at the price of what is lost already: of a snapshot that nothing
stands in for, the blocks that are sound; in place of a segment that is gone, an empty one, so that
what was in it counts as damage like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Final

import msgspec

from headwater.core.errors import FormatError, RequestError
from headwater.disk import Disk, have_directory, read_all, replace_file
from headwater.format.machines.names import (
    global_offset,
    parse_snapshot_file_name,
    segment_of,
    snapshot_file_name,
)
from headwater.format.machines.snapshot import (
    BlockEncoder,
    BlockKind,
    LostBlocks,
    PackedBlock,
    SnapshotHeading,
    encode_start,
    sound_blocks,
    unpack_block,
)
from headwater.recovery.finding import RepairPlan, RepairStep, StepKind
from headwater.recovery.machines.repair import write_index
from headwater.recovery.machines.segment import Run
from headwater.recovery.machines.snapshot import SnapshotScan, block_rows
from headwater.recovery.machines.survey import MachineSurvey, report_on_machines, survey_machines
from headwater.recovery.machines.table import SnapshotVerdict
from headwater.recovery.repair import move_to_quarantine

MISSING_SEGMENTS_MAX: Final = 10_000
_NO_TIME: Final = "1970-01-01T00:00:00Z"


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
    report = report_on_machines(survey)
    report.raise_if_newer()
    steps = list(_repair_steps(disk, survey)) if report.refusals else []
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
    have_directory(disk, directory)
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
