"""Replay: every entry that counts, in order, after the survey said which do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath

from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk
from headwater.format.machines.entry import HEADER_BYTES, MachineEntry, decode_entry, sequence_in
from headwater.format.machines.names import global_offset, segment_of, within_segment
from headwater.recovery.finding import Action
from headwater.recovery.machines.judge import BadStretch
from headwater.recovery.machines.survey import MachineSurvey
from headwater.recovery.machines.table import STRETCH_TABLE
from headwater.store.pair import read_all, read_range
from headwater.wal.entry_log import EntryPosition

Deliver = Callable[[int, MachineEntry], None]
"""Called with each entry and its global offset."""


def replay_machines(
    disk: Disk, survey: MachineSurvey, deliver: Deliver, progress: Callable[[float], None]
) -> int | None:
    """Deliver what counts, one segment in memory at a time; returns the newest entry's offset."""
    judgement = survey.judgement
    number, contents, newest = 0, b"", None
    for done, (segment, run) in enumerate(judgement.runs):
        if segment != number:
            progress(done / len(judgement.runs))
            number, contents = segment, read_all(disk, survey.path_of(segment))
        at, end = run.offset, len(contents)
        while at < run.end and (log_offset := global_offset(segment, at)) < judgement.end:
            try:
                entry = decode_entry(contents, at, end)
            except FormatError as error:
                path = survey.path_of(segment)
                what = f"changed while it was read: {error.reason}"
                raise DamageError(what, path=path, offset=within_segment(log_offset)) from error
            deliver(log_offset, entry)
            newest = log_offset
            at += entry.size
    return newest


@dataclass(slots=True)
class MachineLogReport:
    """What reading the log gave."""

    position: EntryPosition
    entries: int = 0
    damage: list[BadStretch] = field(default_factory=list)
    """Stretches that were skipped."""
    torn: BadStretch | None = None
    torn_bytes: int = 0
    segments: list[int] = field(default_factory=list)
    first_sequences: dict[int, int] = field(default_factory=dict)
    """Number of the first entry of each segment that has one."""
    last_offset: int | None = None
    """Of the newest entry that was read."""

    @property
    def damaged_entries(self) -> int:
        return sum(each.entries for each in self.damage)


def log_report(disk: Disk, survey: MachineSurvey) -> MachineLogReport:
    """As the survey saw it, before anything is repaired."""
    judgement = survey.judgement
    segments = survey.unbroken
    report = MachineLogReport(_position(survey), segments=segments, torn=judgement.torn)
    report.damage = [
        each
        for each in judgement.stretches
        if STRETCH_TABLE.decide(each.verdict).action is Action.SKIP
    ]
    if report.torn is not None:
        report.torn_bytes = _used_behind(survey, report.torn.offset)
    for number in segments:
        first = _first_sequence(disk, survey.path_of(number))
        if first is not None:
            report.first_sequences[number] = first
    return report


def _position(survey: MachineSurvey) -> EntryPosition:
    judgement = survey.judgement
    segment, offset = segment_of(judgement.end), within_segment(judgement.end)
    length = next((scan.data_bytes for scan in survey.scans if scan.number == segment), 0)
    if offset > length:  # the segment itself was cut short: go on in a new one
        segment, offset, length = segment + 1, 0, 0
    oldest = min([*survey.unbroken[:1], segment])
    return EntryPosition(segment, offset, length, oldest, judgement.next_sequence)


def _used_behind(survey: MachineSurvey, offset: int) -> int:
    """Bytes that are not the zeros a segment is made of."""
    segment = segment_of(offset)
    behind = 0
    for scan in survey.scans:
        if scan.number == segment:
            behind += max(scan.used - within_segment(offset), 0)
        elif scan.number > segment:
            behind += scan.used
    return behind


def _first_sequence(disk: Disk, path: PurePath) -> int | None:
    return sequence_in(read_range(disk, path, 0, HEADER_BYTES))
