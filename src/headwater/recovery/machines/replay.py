"""Replay: every entry that counts, in order, while the segments are read.

What follows from the beginning on without a gap counts, whatever comes behind it: so it is
delivered when the survey reads it, batch by batch. Only a log that is damaged, or whose numbers
have a gap, has more that counts; that is delivered when the survey is complete and says what, from
segments that are read once more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath
from typing import Final

from headwater.core.errors import DamageError, FormatError
from headwater.disk import Disk, read_all, read_range
from headwater.format.machines.entry import HEADER_BYTES, EntryRun, EntryType, read_run, sequence_in
from headwater.format.machines.names import global_offset, segment_of, within_segment
from headwater.recovery.finding import Action
from headwater.recovery.machines.judge import BadStretch
from headwater.recovery.machines.survey import MachineSurvey, beginning_of
from headwater.recovery.machines.table import STRETCH_TABLE
from headwater.wal.entry_log import EntryPosition

Take = Callable[[EntryType, bytes, int], None]
"""Called with each entry that counts: its kind, its payload and its global offset."""
_ADVICE: Final = "use the version of Headwater that wrote it"


class MachineReplay:
    """The entries of a survey that is under way.

    Where the next entry is at its place and has the next number, it counts: before it was written
    all before it was, and a segment is synced before the next one begins. What is behind anything
    else, and a batch that does not end, is left to the judge.
    """

    def __init__(self, disk: Disk, survey: MachineSurvey, take: Take) -> None:
        """`take` raises FormatError for what it does not understand."""
        self._disk = disk
        self._survey = survey
        self._take = take
        begin, sequence = beginning_of(survey)
        self._delivered = begin
        """Everything before this offset is delivered."""
        self._segment, self._at = segment_of(begin), within_segment(begin)
        """Where the next entry must be, or at the beginning of the next segment."""
        self._expected = sequence
        """And its number. None: what comes next is the judge's."""
        self._held: list[tuple[int, EntryRun]] = []
        """Entries of a batch that did not end yet, by segment."""
        self.entries = 0
        self.newest: int | None = None
        """Where the newest entry is that was delivered."""

    def deliver(self, number: int, run: EntryRun) -> None:
        """The next sound entries, which the survey reads."""
        here = (number, run.offsets[0])
        places = ((self._segment, self._at), (self._segment + 1, 0))
        if here not in places or run.first != self._expected:
            self._expected = None
            return
        self._segment, self._at = number, run.end
        self._expected = run.first + len(run.kinds)
        if not run.whole:
            self._held.append((number, run))
            return
        held, self._held = self._held, [(number, run.behind(run.whole))]
        try:
            for segment, batch in held:
                self._deliver(segment, batch, len(batch.kinds))
            self._deliver(number, run, run.whole)
        except DamageError:  # the survey may find what comes first; else `finish` meets it again
            self._expected = None

    def finish(self) -> None:
        """The survey is complete: deliver what else counts."""
        judgement = self._survey.judgement
        number, contents = 0, b""
        for segment, run in judgement.runs:
            at = max(global_offset(segment, run.offset), self._delivered)
            end = min(global_offset(segment, run.end), judgement.end)
            if at < end and segment != number:
                number, contents = segment, read_all(self._disk, self._survey.path_of(segment))
            while at < end:
                again = read_run(contents, within_segment(at))
                count = bisect_left(again.offsets, within_segment(end))
                if not count:
                    path, offset = self._survey.path_of(segment), within_segment(at)
                    raise DamageError("changed while it was read", path=path, offset=offset)
                self._deliver(segment, again, count)
                at = global_offset(segment, again.end)

    def _deliver(self, number: int, run: EntryRun, count: int) -> None:
        if not count:
            return
        base, take, at = global_offset(number, 0), self._take, 0
        rows = zip(run.kinds, run.payloads, run.offsets, strict=True)
        try:
            for kind, payload, at in islice(rows, count):
                take(kind, payload, base + at)
        except FormatError as error:
            path = self._survey.path_of(number)
            raise DamageError(error.reason, path=path, offset=at, advice=_ADVICE) from error
        self.entries += count
        self.newest = base + at
        end = run.end if count == len(run.offsets) else run.offsets[count]
        self._delivered = base + end


@dataclass(slots=True)
class MachineLogReport:
    """What reading the log gave."""

    position: EntryPosition
    damage: list[BadStretch] = field(default_factory=list)
    """Stretches that were skipped."""
    torn: BadStretch | None = None
    torn_bytes: int = 0
    segments: list[int] = field(default_factory=list)
    first_sequences: dict[int, int] = field(default_factory=dict)
    """Number of the first entry of each segment that has one."""
    entries: int = 0
    """That were read and count."""
    last_offset: int | None = None
    """Of the newest of them."""

    @property
    def damaged_entries(self) -> int:
        return sum(each.entries for each in self.damage)


def log_report(disk: Disk, survey: MachineSurvey, replay: MachineReplay) -> MachineLogReport:
    """As the survey saw it, before anything is repaired."""
    known = {scan.number: scan.first_sequence for scan in survey.scans if scan.begin == 0}
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
        first = known.get(number) or _first_sequence(disk, survey.path_of(number))
        if first is not None:
            report.first_sequences[number] = first
    report.entries, report.last_offset = replay.entries, replay.newest
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
