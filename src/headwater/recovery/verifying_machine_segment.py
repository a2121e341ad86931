"""One segment of the machines' log, from entry to entry, by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from headwater.core.errors import FormatError
from headwater.disk import Disk
from headwater.format.machines.bodies import (
    ApplyEvent,
    Body,
    Checkpoint,
    CreateInstance,
    DeleteInstance,
    decode_body,
)
from headwater.format.machines.entry import MAGIC_BYTES, Entry, decode_entry, is_newer
from headwater.format.machines.names import global_offset
from headwater.store.pair import read_all
from headwater.store.verifying import Fault, FaultKind, listed

_NEWER: Final = "an entry of a kind this version does not know; use the version that wrote it"


@dataclass(frozen=True, slots=True)
class MachineSegment:
    """One segment that is to be looked at."""

    path: str
    number: int
    asked: int | None = None
    """An offset in it, the number of whose entry somebody wants to know."""


@dataclass(frozen=True, slots=True)
class BadBytes:
    """Bytes that are no entry. Whether that is damage or a torn tail, a witness tells."""

    offset: int
    reason: str
    always: bool = False
    """No witness is needed: nobody would cut it."""


@dataclass(slots=True)
class MachineLook:
    path: str
    number: int
    faults: list[Fault] = field(default_factory=list)
    bad: list[BadBytes] = field(default_factory=list)
    entries: int = 0
    data_bytes: int = 0
    first_sequence: int | None = None
    first_offset: int = 0
    next_sequence: int | None = None
    end: int = 0
    """Behind the last entry."""
    ends_in_bad_bytes: bool = False
    open_batch: int | None = None
    """Where a batch begins that does not end in this segment."""
    witness: int = 0
    """What its entries knew to be synced, as global offset."""
    flushes: list[tuple[int, int]] = field(default_factory=list)
    """Where, as global offset, and when everything was removed on request."""
    asked_sequence: int | None = None
    """Number of the entry that was asked for; None when no entry begins there."""


def look_at_machine_segment(disk: Disk, segment: MachineSegment) -> MachineLook:
    """Header and payload of every entry, their order, and the zeros behind them."""
    look = MachineLook(segment.path, segment.number)
    path = PurePath(segment.path)
    try:
        _SegmentCheck(read_all(disk, path), segment.asked, look).run()
    except FileNotFoundError:
        what = "went away while it was read"
        look.faults.append(Fault(path, None, what, True, FaultKind.CHANGED))
    return look


class _SegmentCheck:
    def __init__(self, contents: bytes, asked: int | None, look: MachineLook) -> None:
        self._contents = contents
        self._asked = asked
        self._look = look
        self._last: dict[str, int] = {}
        """The newest entry about each instance."""
        self._wrong: list[tuple[int, str]] = []

    def run(self) -> None:
        look, contents = self._look, self._contents
        look.data_bytes = len(contents)
        at, end = 0, len(contents)
        while at < end:
            if not contents.startswith(MAGIC_BYTES, at):
                if contents.count(0, at) == end - at:
                    break
                at = self._pass_over(at, "no entry begins here")
                continue
            try:
                entry = decode_entry(contents, at, end)
            except FormatError as error:
                newer = is_newer(contents, at, end)
                at = self._pass_over(at, _NEWER if newer else error.reason, always=newer)
                continue
            self._take(at, entry)
            at += entry.size
        look.faults += listed(PurePath(look.path), self._wrong, FaultKind.ENTRY)

    def _pass_over(self, at: int, reason: str, *, always: bool = False) -> int:
        """Note bad bytes, and find the next sound entry, or the end."""
        look, contents = self._look, self._contents
        look.bad.append(BadBytes(at, reason, always))
        self._last.clear()  # an entry about any instance may be among them
        end = len(contents)
        place = contents.find(MAGIC_BYTES, at + 1)
        while place >= 0:
            try:
                decode_entry(contents, place, end)
            except FormatError:
                place = contents.find(MAGIC_BYTES, place + 1)
                continue
            return place
        look.ends_in_bad_bytes = True
        return end

    def _take(self, at: int, entry: Entry) -> None:
        look = self._look
        expected = look.next_sequence
        if expected is None:
            look.first_sequence, look.first_offset = entry.sequence, at
        elif entry.sequence < expected:
            look.bad.append(BadBytes(at, f"entry {entry.sequence} was here before"))
        elif entry.sequence > expected and not self._explained(at):
            missing = entry.sequence - expected
            look.bad.append(BadBytes(at, f"{missing} entries are missing before this one"))
        look.next_sequence = entry.sequence + 1
        if at == self._asked:
            look.asked_sequence = entry.sequence
        look.entries += 1
        look.end = at + entry.size
        if not entry.more:
            look.open_batch = None
        elif look.open_batch is None:
            look.open_batch = at
        try:
            self._look_into(at, decode_body(entry))
        except FormatError as error:
            self._wrong.append((at, error.reason))

    def _explained(self, at: int) -> bool:
        """Bad bytes stand directly before this entry."""
        return bool(self._look.bad) and self._look.bad[-1].offset >= self._look.end < at

    def _look_into(self, at: int, body: Body) -> None:
        """What an entry says of places: none is ahead of it, and none is left out."""
        here = global_offset(self._look.number, at)
        if body.synced > here:
            self._wrong.append((at, f"knows {body.synced} as synced, which is behind it"))
        self._look.witness = max(self._look.witness, min(body.synced, here))
        if isinstance(body, Checkpoint) and body.flushed:
            self._last.clear()
            self._look.flushes.append((here, body.at))
        elif isinstance(body, CreateInstance):
            self._last[body.instance_id] = here
        elif isinstance(body, ApplyEvent | DeleteInstance):
            known = self._last.get(body.instance_id, body.previous)
            if body.previous != known or known >= here:
                what = f"the entry before about the same instance is at {known}"
                self._wrong.append((at, f"{what}, and it says {body.previous}"))
            self._last[body.instance_id] = here
