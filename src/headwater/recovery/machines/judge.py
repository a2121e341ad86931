"""From what each segment holds to what the log is: a verdict for every stretch of bad bytes.

The judge goes from run to run, in order. Where entries do not follow each other, **witnesses** tell
what it is: an entry and CURRENT say how far the log was known to be synced when they were written,
and a segment is synced before the next begins. Bad bytes that begin before a witnessed offset were
acknowledged: damage. Others are an unfinished write that was never acknowledged: a torn tail. So an
acknowledged entry is never cut: it was synced before, and at the latest from the next start on
CURRENT is its witness (I5).

Pure: nothing here reads a disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.format.machines.entry import OVERHEAD_BYTES
from headwater.format.machines.names import global_offset
from headwater.recovery.machines.segment import MachineScan, Run
from headwater.recovery.machines.table import StretchVerdict


@dataclass(frozen=True, slots=True)
class BadStretch:
    verdict: StretchVerdict
    offset: int
    """Global, of the first bad byte."""
    resume: int
    """Global, where sound entries go on, or the log ends."""
    entries: int
    """How many entries are missing, by their numbers; at least this many."""
    reason: str


@dataclass(slots=True)
class LogJudgement:
    """What the log is, from the offset on where the caller reads it."""

    stretches: list[BadStretch] = field(default_factory=list)
    runs: list[tuple[int, Run]] = field(default_factory=list)
    """Segment and run of all that counts, in order, up to `end`."""
    end: int = 0
    """Global: where the next entry goes. Entries at or behind it do not count."""
    next_sequence: int = 1
    witness: int = 0
    open_batch: bool = False
    """A batch did not end, and was cut for it."""

    @property
    def torn(self) -> BadStretch | None:
        last = self.stretches[-1] if self.stretches else None
        return last if last is not None and last.verdict is StretchVerdict.TORN else None


def judge_log(
    scans: Sequence[MachineScan], begin: int, sequence: int | None, current_witness: int
) -> LogJudgement:
    """`sequence` is the number of the entry at `begin`; None when it is not known."""
    return _Judge(scans, begin, sequence, current_witness).run()


class _Judge:
    def __init__(
        self,
        scans: Sequence[MachineScan],
        begin: int,
        sequence: int | None,
        current_witness: int,
    ) -> None:
        self._scans = scans
        self._at = begin
        self._expected = sequence
        self._held: tuple[int, int] | None = None
        """Offset and number of the first entry of a batch that goes on."""
        self._bad: tuple[int, str] | None = None
        """The first of the bad bytes that are behind the last sound entry."""
        self._judgement = LogJudgement(witness=current_witness)
        for scan in scans:
            if scan.entries:
                # A segment is synced before the next one begins.
                border = global_offset(scan.number, 0)
                self._judgement.witness = max(self._judgement.witness, scan.witness, border)

    def run(self) -> LogJudgement:
        judgement = self._judgement
        if self._go_through():
            self._end()
        judgement.end = self._at
        judgement.next_sequence = self._expected or 1
        judgement.runs = [
            (number, run)
            for number, run in judgement.runs
            if global_offset(number, run.offset) < judgement.end
        ]
        return judgement

    def _go_through(self) -> bool:
        """From item to item; False when the log ends before its last segment does."""
        before: MachineScan | None = None
        for scan in self._scans:
            if before is not None:
                self._cross_border(before, scan)
            before = scan
            for item in scan.items:
                offset = global_offset(scan.number, item.offset)
                if isinstance(item, Run):
                    if not self._take(scan.number, offset, item):
                        return False
                elif self._bad is None:
                    if item.newer:
                        self._note(StretchVerdict.NEWER, offset, offset, 0, item.reason)
                        return False
                    self._bad = (offset, item.reason)
        return True

    def _cross_border(self, before: MachineScan, scan: MachineScan) -> None:
        if scan.number != before.number + 1:
            self._expected = self._held = None  # its own row reports that one is missing
        begin = global_offset(before.number, 0)
        if not before.items and self._bad is None and self._at <= begin:
            # A segment is made for what is to be written, so each but the last has entries.
            self._bad = (begin, "no entry is in a segment that others follow")
        if self._bad is None:
            self._at = global_offset(scan.number, 0)

    def _take(self, number: int, offset: int, run: Run) -> bool:
        expected = run.first if self._expected is None else self._expected
        if run.first < expected:
            if self._bad is None:
                self._bad = (offset, "an entry that was here before")
            return True
        witness = self._judgement.witness
        if self._bad is None and run.first > expected:
            missing = run.first - expected
            reason = f"{missing} entries are missing before this one"
            if witness < offset:
                self._cut(offset, reason)
                return False
            self._note(StretchVerdict.MISSING, offset, offset, missing, reason)
            self._held = None
        elif self._bad is not None:
            bad, reason = self._bad
            if witness <= bad or offset > witness:
                return self._lose_the_end()
            self._note(StretchVerdict.DAMAGED, bad, offset, max(run.first - expected, 1), reason)
            self._bad = self._held = None
        self._judgement.runs.append((number, run))
        self._at = global_offset(number, run.end)
        self._expected = run.first + run.entries
        if run.open_at is None:
            self._held = None
        elif self._held is None or run.ends_batch:
            self._held = (global_offset(number, run.open_at), run.open_sequence)
        return True

    def _end(self) -> None:
        """Behind the last segment: a witness of more than is there decides."""
        if self._bad is None and self._judgement.witness > self._at:
            self._bad = (self._at, "entries that were synced are gone")
        if self._bad is not None:
            self._lose_the_end()
        elif self._held is not None:
            self._judgement.open_batch = True
            self._cut(self._at, "a batch does not end")

    def _lose_the_end(self) -> bool:
        """Bad bytes, and nothing behind them that was promised. Always False: the log ends."""
        assert self._bad is not None
        bad, reason = self._bad
        witness = self._judgement.witness
        if witness <= bad:
            self._cut(bad, reason)
            return False
        # All up to the witness is lost; what is behind it was never promised.
        self._note(StretchVerdict.LOST_END, bad, witness, 1, reason)
        self._held = None
        self._expected = (self._expected or 1) + max((witness - bad) // OVERHEAD_BYTES, 1)
        self._cut(witness, reason)
        return False

    def _cut(self, offset: int, reason: str) -> None:
        """What is behind an offset was never acknowledged; nor was the batch that it broke off."""
        if self._held is not None:
            offset, self._expected = self._held
        self._at = offset
        if any(global_offset(scan.number, scan.used) > offset for scan in self._scans if scan.used):
            self._note(StretchVerdict.TORN, offset, offset, 0, reason)

    def _note(
        self, verdict: StretchVerdict, offset: int, resume: int, entries: int, reason: str
    ) -> None:
        self._judgement.stretches.append(BadStretch(verdict, offset, resume, entries, reason))
