"""One segment of the machines' log, from entry to entry, by itself. The only reader of segments.

It says where entries follow each other without a gap, and where bytes are none. What that means,
damage or a torn tail, only all segments and CURRENT together can show: see `judge`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from headwater.core.errors import FormatError, InvariantError
from headwater.disk import Disk, read_all
from headwater.format.machines.bodies import (
    Body,
    decode_payload,
    witness_of,
)
from headwater.format.machines.entry import (
    MAGIC_BYTES,
    EntryRun,
    EntryType,
    decode_entry,
    is_newer,
    read_run,
)
from headwater.format.machines.names import global_offset
from headwater.recovery.history.machines import InstanceChains, empties
from headwater.recovery.repair import used_bytes
from headwater.store.verify import FaultKind, VerifyFault, listed

Deliver = Callable[[int, EntryRun], None]
"""Called with the segment's number and sound entries of it that follow each other. Those that
were here before are left out."""
NEWER_ENTRY: Final = "an entry of a kind this version does not know"
HERE_BEFORE: Final = "an entry that was here before"


@dataclass(frozen=True, slots=True)
class MachineSegment:
    """One segment that is to be scanned."""

    path: str
    number: int
    begin: int = 0
    """Where in it to begin: what is before is in a snapshot."""
    wanted: tuple[int, ...] = ()
    """Offsets in it, the numbers of whose entries the caller wants to know."""
    deep: bool = True
    """Check bodies too: whether what they say of offsets is so."""
    witnesses: bool = True
    """Note what entries knew as synced. Only needed where something is in doubt."""


@dataclass(frozen=True, slots=True)
class Run:
    """Entries that follow each other, by offset and by number."""

    offset: int
    end: int
    first: int
    """Number of the first one."""
    entries: int
    ends_batch: bool
    """A batch ends in it."""
    open_at: int | None
    """Where a batch begins that does not end in it."""
    open_sequence: int


@dataclass(frozen=True, slots=True)
class UnreadableBytes:
    """Bytes that are no entry. Whether that is damage or a torn tail, a witness tells."""

    offset: int
    reason: str
    newer: bool = False
    """A sound header of a kind this software does not know."""


@dataclass(slots=True)
class MachineScan:
    path: str
    number: int
    begin: int = 0
    """Where in it the scan began."""
    items: list[Run | UnreadableBytes] = field(default_factory=list)
    """In the order of their offsets."""
    faults: list[VerifyFault] = field(default_factory=list)
    """What only a deep scan sees: sound entries that say what is not so."""
    entries: int = 0
    data_bytes: int = 0
    """Length of the file."""
    used: int = 0
    """Behind the last byte that is no zero."""
    end: int = 0
    """Behind the last entry."""
    witness: int = 0
    """What its entries knew to be synced, as global offset."""
    open_batch: int | None = None
    """Where a batch begins that does not end in this segment."""
    first_sequence: int | None = None
    flushes: list[tuple[int, int]] = field(default_factory=list)
    """Where, as global offset, and when everything was removed on request."""
    wanted: dict[int, int | None] = field(default_factory=dict)
    """Number of the entry at each wanted offset; None when no entry begins there."""


def scan_machine_segment(
    disk: Disk, segment: MachineSegment, deliver: Deliver = lambda _number, _run: None
) -> MachineScan:
    """Header and payload of every entry, their order, and the zeros behind them. `deliver` gets
    the sound entries, while they are in memory."""
    scan = MachineScan(
        segment.path, segment.number, segment.begin, wanted=dict.fromkeys(segment.wanted)
    )
    path = PurePath(segment.path)
    try:
        contents = read_all(disk, path)
    except FileNotFoundError:
        what = "went away while it was read"
        scan.faults.append(VerifyFault(path, None, what, True, FaultKind.CHANGED))
        return scan
    _EntryScan(contents, segment, scan, deliver).run()
    return scan


class _EntryScan:
    def __init__(
        self, contents: bytes, segment: MachineSegment, scan: MachineScan, deliver: Deliver
    ) -> None:
        self._contents = contents
        self._segment = segment
        self._scan = scan
        self._deliver = deliver
        self._chains = InstanceChains()
        self._wrong: list[tuple[int, str]] = []
        self._begun: tuple[int, int] | None = None
        """Offset and number of the first entry of the run that goes on."""
        self._next = 0
        """The number an entry must have at least; 0: any."""
        self._ends_batch = False
        self._open: tuple[int, int] | None = None

    def run(self) -> None:
        scan, contents = self._scan, self._contents
        scan.data_bytes = len(contents)
        scan.used = used_bytes(contents)
        at, end = self._segment.begin, len(contents)
        while at < end:
            run = read_run(contents, at)
            if run.kinds:
                self._take(run)
                at = run.end
            elif contents.startswith(MAGIC_BYTES, at) or at < scan.used:
                at = self._pass_over(at)
            else:
                break
        self._end_run(at)
        if self._open is not None:
            scan.open_batch = self._open[0]
        scan.faults += listed(PurePath(scan.path), self._wrong, FaultKind.ENTRY)

    def _pass_over(self, at: int) -> int:
        """Note bad bytes, and find the next sound entry, or the end."""
        contents = self._contents
        self._end_run(at)
        self._scan.items.append(_what_is_wrong(contents, at))
        self._chains.interrupt()
        offset = contents.find(MAGIC_BYTES, at + 1)
        while offset >= 0 and not read_run(contents, offset, 1).kinds:
            offset = contents.find(MAGIC_BYTES, offset + 1)
        return offset if offset >= 0 else len(contents)

    def _end_run(self, at: int) -> None:
        if self._begun is None:
            return
        offset, first = self._begun
        opened = self._open
        run = Run(
            offset,
            at,
            first,
            self._next - first,
            self._ends_batch,
            None if opened is None else opened[0],
            0 if opened is None else opened[1],
        )
        self._scan.items.append(run)
        self._begun = None

    def _take(self, run: EntryRun) -> None:
        scan = self._scan
        if run.first < self._next:
            if self._begun is not None or not _is_stale(scan.items):
                self._end_run(run.offsets[0])
                scan.items.append(UnreadableBytes(run.offsets[0], HERE_BEFORE))
                self._chains.interrupt()
            run = run.behind(self._next - run.first)
            if not run.kinds:
                return
        if self._begun is not None and run.first != self._next:
            self._end_run(run.offsets[0])
            self._chains.interrupt()
        if self._begun is None:
            self._begun = (run.offsets[0], run.first)
            self._ends_batch, self._open = False, None
        self._next = run.first + len(run.kinds)
        if scan.first_sequence is None:
            scan.first_sequence = run.first
        for at in scan.wanted.keys() & set(run.offsets):
            scan.wanted[at] = run.first + run.offsets.index(at)
        scan.entries += len(run.kinds)
        scan.end = run.end
        if run.whole:
            self._ends_batch, self._open = True, None
        if self._open is None and run.whole < len(run.kinds):
            self._open = (run.offsets[run.whole], run.first + run.whole)
        if self._segment.witnesses:
            for at, kind, payload in zip(run.offsets, run.kinds, run.payloads, strict=True):
                self._note_witness(at, kind, payload)
        self._deliver(scan.number, run)

    def _note_witness(self, at: int, kind: EntryType, payload: bytes) -> None:
        scan = self._scan
        here = global_offset(scan.number, at)
        synced = 0
        if self._segment.deep:
            try:
                body = decode_payload(kind, payload)
            except FormatError as error:
                self._wrong.append((at, error.reason))
            else:
                synced = body.synced
                self._check_body(at, here, body)
        else:
            synced = witness_of(payload)
        # An entry cannot witness itself, nor what comes after it.
        scan.witness = max(scan.witness, min(synced, here))

    def _check_body(self, at: int, here: int, body: Body) -> None:
        """What an entry says of offsets: none is ahead of it, and none is left out."""
        if body.synced > here:
            self._wrong.append((at, f"knows {body.synced} as synced, which is behind it"))
        if empties(body):
            self._scan.flushes.append((here, body.at))
        wrong = self._chains.take(body, here)
        if wrong:
            self._wrong.append((at, wrong))


def _what_is_wrong(contents: bytes, at: int) -> UnreadableBytes:
    """Of bytes where no sound entry begins."""
    if not contents.startswith(MAGIC_BYTES, at):
        return UnreadableBytes(at, "no entry begins here")
    end = len(contents)
    if is_newer(contents, at, end):
        return UnreadableBytes(at, NEWER_ENTRY, newer=True)
    try:
        decode_entry(contents, at, end)
    except FormatError as error:
        return UnreadableBytes(at, error.reason)
    raise InvariantError(f"an entry at {at} is sound, and was read as if it were not")


def _is_stale(items: list[Run | UnreadableBytes]) -> bool:
    """The bytes before were of the kind that was here before, and were reported."""
    last = items[-1] if items else None
    return isinstance(last, UnreadableBytes) and last.reason == HERE_BEFORE
