"""Repair: what a start does about what the survey found, when the table refuses nothing.

It cuts what was never acknowledged, writes again what no witness covers, keeps a copy of every
stretch it skips, and moves aside a snapshot that another one stands in for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from headwater.disk import NO_ROOM, Disk, OpenMode, opened, read_all, replace_file, sync_file
from headwater.disk.whole_files import sync_names
from headwater.format.machines.names import (
    INDEX_NAME,
    global_offset,
    segment_of,
    within_segment,
)
from headwater.format.machines.snapshot import (
    SnapshotHeading,
    SnapshotIndex,
    encode_index,
)
from headwater.recovery.finding import Action
from headwater.recovery.machines.survey import MachineSurvey, standing_of
from headwater.recovery.machines.table import (
    SNAPSHOT_TABLE,
    IndexState,
    SnapshotVerdict,
    StretchVerdict,
)
from headwater.recovery.repair import cut_tail, keep_stretch, move_to_quarantine, write_again

_WRITTEN_AGAIN: Final = (IndexState.DAMAGED, IndexState.LOST)
_SKIPPED: Final = (StretchVerdict.DAMAGED, StretchVerdict.LOST_END)


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
            keep_stretch(disk, survey.path_of(segment), begin, contents[begin:end], "damaged")


def _cut_torn_tail(disk: Disk, survey: MachineSurvey) -> None:
    """Quarantine first, then the segments behind it, then zeros."""
    torn = survey.judgement.torn
    if torn is None:
        return
    segment, offset = segment_of(torn.offset), within_segment(torn.offset)
    for later in [number for number in survey.numbers if number > segment]:
        path = survey.path_of(later)
        keep_stretch(disk, path, 0, read_all(disk, path), "torn")
        disk.unlink(path)
    if segment in survey.numbers:
        cut_tail(disk, survey.path_of(segment), offset)
    sync_names(disk, survey.log)
    survey.numbers = [number for number in survey.numbers if number <= segment]


def _write_unwitnessed_again(disk: Disk, survey: MachineSurvey) -> None:
    """All of it that CURRENT does not know as synced."""
    end = survey.judgement.end
    segment = segment_of(end)
    start = max(survey.current_witness, global_offset(segment, 0))
    at = within_segment(start) if segment_of(start) == segment else 0
    if segment in survey.numbers and at < within_segment(end):
        with opened(disk, survey.path_of(segment), OpenMode.UPDATE) as file:
            write_again(file, at, within_segment(end))
            sync_file(file)


def _repair_snapshots(disk: Disk, survey: MachineSurvey) -> None:
    """The index first: it never names what is not there."""
    snapshots, standing = survey.snapshots, standing_of(survey)
    aside = [
        each.path
        for each in snapshots.snapshots
        if SNAPSHOT_TABLE.decide(each.verdict, standing).action is Action.QUARANTINE
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
