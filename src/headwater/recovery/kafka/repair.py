"""Repair: what a start does about what the survey saw, when the table refuses nothing.

A torn tail goes to quarantine before it is cut; a checkpoint is written again from its copy; what
the table proves to be a leftover goes, and what it cannot prove is moved to quarantine. Doing it
once, twice or after another crash in the middle gives the same files (I4, I5).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from headwater.disk import (
    Disk,
    OpenMode,
    file_bytes,
    opened,
    read_range,
    replace_file,
    sync_file,
    sync_names,
)
from headwater.format.checksum import RunningChecksum
from headwater.format.kafka.checkpoint import KafkaCheckpoint, SegmentMeta
from headwater.format.kafka.entry import ENTRY_BYTES
from headwater.format.kafka.names import index_name, log_name
from headwater.recovery.finding import Action
from headwater.recovery.kafka.survey import (
    KafkaReport,
    KafkaSurvey,
    Progress,
    SegmentScan,
    TailBatch,
    report_on_kafka,
    survey_kafka,
)
from headwater.recovery.kafka.table import (
    INDEX_TABLE,
    LOG_TABLE,
    STRAY_TABLE,
    CopyVerdict,
    SegmentPosition,
)
from headwater.recovery.repair import keep_copy, keep_stretch, move_to_quarantine, write_again


class TailCut(NamedTuple):
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
    cut: TailCut | None = None
    report: KafkaReport = field(default_factory=KafkaReport)


def recover_kafka(
    disk: Disk, directory: PurePath, progress: Progress | None = None
) -> RecoveredKafka | None:
    """What the directory holds, repaired. None when there is nothing yet."""
    survey = survey_kafka(disk, directory, progress or (lambda _: None))
    report = report_on_kafka(survey)
    report.raise_if_refused()
    if survey.checkpoint is None:
        return None
    _repair(disk, survey)
    recovered = RecoveredKafka(survey.checkpoint, report=report)
    recovered.next_number = survey.next_number
    recovered.tail = survey.tail
    recovered.segments = [segment.meta for segment in survey.segments]
    if survey.segments:
        last = survey.segments[-1]
        recovered.checksum = last.checksum
        lost = last.counted - last.meta.entries
        if lost:
            path = directory / log_name(last.meta.number)
            recovered.cut = TailCut(path, last.log_offset, lost, last.log_what)
    return recovered


def _repair(disk: Disk, survey: KafkaSurvey) -> None:
    _repair_checkpoints(disk, survey)
    if survey.segments:
        _end_last_segment(disk, survey.directory, survey.segments[-1])
    _clear(disk, survey)


def _repair_checkpoints(disk: Disk, survey: KafkaSurvey) -> None:
    """Both are the same before anything goes that only one of them knows."""
    checkpoints, chosen = survey.checkpoints, survey.checkpoints.chosen
    other = checkpoints.first if chosen is checkpoints.second else checkpoints.second
    if checkpoints.copy is CopyVerdict.SAME:
        return
    if other.contents and other.checkpoint is None:
        with contextlib.suppress(OSError):
            keep_copy(disk, other.path, f"{other.path.name}.damaged", other.contents)
    replace_file(disk, other.path, chosen.contents)


def _end_last_segment(disk: Disk, directory: PurePath, last: SegmentScan) -> None:
    """Cut both files behind the last whole batch, and make what is before it durable.

    What the checkpoint does not cover is written again before it is synced (`recovery.repair`).
    """
    known, end = last.checkpointed, last.meta
    cuts = Action.CUT in (
        INDEX_TABLE.decide(last.index, SegmentPosition.LAST).action,
        LOG_TABLE.decide(last.log, SegmentPosition.LAST).action,
    )
    stretches = {
        index_name(end.number): (known.entries * ENTRY_BYTES, end.entries * ENTRY_BYTES),
        log_name(end.number): (known.log_bytes, end.log_bytes),
    }
    if cuts:  # of both files, before either is cut
        for name, (_, stop) in stretches.items():
            _keep_torn(disk, directory / name, stop)
    for name, (start, stop) in stretches.items():
        with opened(disk, directory / name, OpenMode.UPDATE) as file:
            if file.size() != stop:
                file.truncate(stop)
            write_again(file, start, stop)
            sync_file(file)


def _keep_torn(disk: Disk, path: PurePath, end: int) -> None:
    with contextlib.suppress(OSError):
        tail = read_range(disk, path, end, max(file_bytes(disk, path) - end, 0))
        keep_stretch(disk, path, end, tail, "torn")


def _clear(disk: Disk, survey: KafkaSurvey) -> None:
    """What nothing leads to. First what is kept is durable, then leftovers go."""
    directory, changed = survey.directory, False
    for name, stray in survey.strays:
        action = STRAY_TABLE.decide(stray).action
        if action is Action.QUARANTINE:
            move_to_quarantine(disk, directory / name)
        elif action is Action.REMOVE:
            with contextlib.suppress(FileNotFoundError):  # a checkpoint was written over it
                disk.unlink(directory / name)
            changed = True
    if changed:
        sync_names(disk, directory)
