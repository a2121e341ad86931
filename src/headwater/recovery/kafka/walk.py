"""The batches of Kafka's shared log one after the other, each compared with its index entries.

A start, `verify` and a reader beside an owner walk the same way. An unfinished write and
damage look the same to a walk; events behind a bad batch may know that it was synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from headwater.core.arrays import numpy
from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.disk import File
from headwater.format.kafka.batch import BatchHeader, read_sound
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    HOLE_SEGMENT,
    KEY_AT,
    PREFIX_BYTES,
    Entries,
    find_runs,
    keys_of,
)
from headwater.format.kafka.events import INTERNAL_KEY, Synced, decode_event, encode_event
from headwater.format.kafka.names import index_name

_LONGEST: Final = len(encode_event(Synced(2**63), 0))
_NOTHING: Final = memoryview(b"")


class ReadableLog(Protocol):
    """The bytes of a `.log` file: mapped, or read on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> memoryview: ...


class Window:
    """A log that is read in large steps, not mapped: its owner may cut the zeros at its end at
    any time."""

    def __init__(self, file: File, step: int = MIB) -> None:
        self._file = file
        self._size = file.size()
        self._step = step
        self._at = 0
        self._bytes = _NOTHING

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop, _ = part.indices(self._size)
        if start < self._at or stop > self._at + len(self._bytes):
            wanted = max(stop - start, self._step)
            self._at, self._bytes = start, memoryview(self._file.read(start, wanted))
        return self._bytes[start - self._at : stop - self._at]


class WalkedBatch(NamedTuple):
    at: int
    """Position of its first entry."""
    records: int
    key: bytes
    offset: int
    end: int
    header: BatchHeader | None
    bytes: memoryview
    misplaced: str
    """What is wrong with where its entries lead."""
    broken: str
    """What is wrong with it where it stands."""

    @property
    def problem(self) -> str:
        return self.misplaced or self.broken

    @property
    def is_dead(self) -> bool:
        """Left out of a rewrite, or given up by a repair."""
        return self.header is None and not self.problem


def walk_batches(
    number: int,
    entries: Entries,
    log: ReadableLog,
    offset: int,
    *,
    rewritten: bool = False,
    behind_hole: bool = False,
) -> Iterator[WalkedBatch]:
    """The batches these entries point at, each with what is wrong with it.

    Behind one that is misplaced it goes on where its entries lead, if that is in this log; behind
    a hole, the bytes of the batch that was given up may come first.
    """
    runs = find_runs(entries)
    keys = keys_of(runs.entries)
    starts, counts = runs.starts.tolist(), runs.counts.tolist()
    for run, (at, count) in enumerate(zip(starts, counts, strict=True)):
        entry, key = runs.entries[run], keys[run].tobytes()
        length, start = int(entry["length"]), int(entry["physical_offset"])
        is_hole = not length and int(entry["segment_id"]) == HOLE_SEGMENT
        if is_hole or (not length and rewritten):
            behind_hole = behind_hole or is_hole
            yield WalkedBatch(at, count, key, offset, offset, None, _NOTHING, "", "")
            continue
        misplaced, is_here = "", int(entry["segment_id"]) == number
        if not is_here or start < offset or (start > offset and not behind_hole):
            misplaced = f"the entries do not follow those before them, which end at {offset}"
        if not is_here:
            yield WalkedBatch(at, count, key, offset, offset, None, _NOTHING, misplaced, "")
            continue
        header, batch, broken = _sound_at(log, start, length, count)
        end = start + PREFIX_BYTES + length
        yield WalkedBatch(at, count, key, start, end, header, batch, misplaced, broken)
        offset, behind_hole = end, False


def _sound_at(
    log: ReadableLog, offset: int, length: int, count: int
) -> tuple[BatchHeader | None, memoryview, str]:
    """The batch behind its length, and what is wrong with it."""
    begin = offset + PREFIX_BYTES
    stored = log[offset : begin + length]
    if len(stored) < PREFIX_BYTES + length or _length_of(stored) != length:
        return None, _NOTHING, "the length before the batch is not that of its entries"
    batch = stored[PREFIX_BYTES:]
    try:
        header = read_sound(batch)
    except FormatError as error:
        return None, batch, error.reason
    if header.record_count != count:
        return header, batch, f"{count} entries for {header.record_count} records"
    return header, batch, ""


def _length_of(stored: memoryview) -> int:
    return int.from_bytes(stored[:PREFIX_BYTES], "little")


def entries_known_synced(number: int, entries: Entries, after: int, log: ReadableLog) -> int:
    """How many entries of this index were synced, by the last event behind entry `after`.

    0 when no event says. Only sound events are believed, and none says anything of what follows it.
    Such an event may have survived a crash that took what was written just before it; what it
    names was on stable storage when it was written, so no crash took that.
    """
    behind = numpy.ascontiguousarray(entries[after:])
    raw = behind.view(numpy.uint8).reshape(len(behind), behind.dtype.itemsize)
    ours = (raw[:, KEY_AT:] == numpy.frombuffer(INTERNAL_KEY, numpy.uint8)).all(axis=1)
    ours &= (behind["segment_id"] == number) & (behind["length"] <= _LONGEST)
    for at in numpy.flatnonzero(ours)[::-1].tolist():
        offset, length = int(behind["physical_offset"][at]), int(behind["length"][at])
        event = _synced_at(log, offset, length)
        if event is not None and event.entries <= after + at:
            return event.entries
    return 0


def says_it_was_synced(log: ReadableLog) -> bool:
    """Whether a sound event in a log whose index has no entries says that some were synced."""
    offset = 0
    while offset + PREFIX_BYTES <= len(log):
        length = _length_of(log[offset : offset + PREFIX_BYTES])
        if not length:
            return False
        if length <= _LONGEST:
            event = _synced_at(log, offset, length)
            if event is not None and event.entries:
                return True
        offset += PREFIX_BYTES + length
    return False


def synced_and_bad(reason: str, number: int, at: int) -> str:
    """What is wrong, and with which entries: either file may be the damaged one."""
    where = f"its entries are at byte {at * ENTRY_BYTES} of {index_name(number)}"
    return f"{reason}; {where}; an event behind it says that it was synced"


def _synced_at(log: ReadableLog, offset: int, length: int) -> Synced | None:
    header, batch, problem = _sound_at(log, offset, length, 1)
    if header is None or problem:
        return None
    try:
        event = decode_event(batch)
    except FormatError:
        return None
    return event if isinstance(event, Synced) else None
