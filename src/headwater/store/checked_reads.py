"""Reads that check the checksums: what is damaged is reported and left out, the rest is served.

A bad sealed frame is reported, never served and never silently dropped (I6).
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.format.segment import (
    FAULT_MEANING,
    Entries,
    FrameFault,
    IndexFlag,
    frame_faults,
    index_flags,
)
from headwater.store.segment import SegmentSlice

_NOT_SERVED: Final = int(IndexFlag.DELETED | IndexFlag.DAMAGED)


class RecordDamage(msgspec.Struct, frozen=True):
    """One damaged record, or several in a row: enough for an operator to find them."""

    path: PurePath
    offset: int
    seq: int
    reason: str
    repaired: bool = False
    """True when the damage was in an index and could be read again from the data."""
    last_seq: int | None = None
    """The last of several seqs that one damage concerns; None where it is one record."""

    @property
    def end_seq(self) -> int:
        return self.seq if self.last_seq is None else self.last_seq

    def __str__(self) -> str:
        done = " (repaired)" if self.repaired else ""
        which = (
            f"seq {self.seq}" if self.last_seq is None else f"seqs {self.seq} to {self.last_seq}"
        )
        return f"{which}: {self.reason} in {self.path} at byte {self.offset}{done}"


def good_positions(
    stored: SegmentSlice, entries: Entries, first_seq: int
) -> tuple[NDArray[numpy.bool_], list[RecordDamage]]:
    """Which of these entries may be served, and a finding for each that is damaged.

    Dead records are not checked. A live entry whose frame says deleted is left out without a
    finding: the record was deleted after these entries were copied, or a crash came between
    the two flags and the log finishes the delete (I8).
    """
    flags = index_flags(entries)
    good: NDArray[numpy.bool_] = (flags & _NOT_SERVED) == 0
    faults = frame_faults(stored.buffer, entries, first_seq, stored.base)
    if not faults.any():
        return good, []
    bad = numpy.flatnonzero(good & (faults != FrameFault.NONE))
    good[bad] = False
    findings = [
        RecordDamage(
            stored.path,
            int(entries["offset"][position]),
            first_seq + position,
            FAULT_MEANING[FrameFault(int(faults[position]))],
        )
        for position in bad.tolist()
        if faults[position] != FrameFault.DELETED
    ]
    return good, findings
