"""Many entries of the machines' log at once: those that are sound and follow each other by number.

For those who read whole segments. `headwater.native.machine_entries` is the compiled twin.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.format.machines.entry import EntryType, decode_entry
from headwater.native import compiled

RUN_ENTRIES_MAX: Final = 4_096
"""In one run: what their payloads take in memory beside the segment is bounded."""
_KINDS: Final = tuple(EntryType)
_native: Final = compiled("machine_entries")


class EntryRun(NamedTuple):
    first: int
    """Number of the first one."""
    whole: int
    """So many of them, from the first on, are in batches that end among them."""
    end: int
    """Behind the last one."""
    kinds: list[EntryType]
    offsets: list[int]
    """Where each begins."""
    payloads: list[bytes]

    def behind(self, count: int) -> EntryRun:
        """Without the first ones."""
        kinds, offsets, payloads = self.kinds[count:], self.offsets[count:], self.payloads[count:]
        whole = max(self.whole - count, 0)
        return EntryRun(self.first + count, whole, self.end, kinds, offsets, payloads)


def read_run(buffer: bytes, at: int, limit: int = RUN_ENTRIES_MAX) -> EntryRun:
    """Entries from `at` on, so many at most; without any where no sound entry begins."""
    if _native is not None:
        run = _native.read_run(buffer, at, limit, _KINDS)
        if run is not None:
            return EntryRun(*run)
    return _read_run(buffer, at, limit)


def _read_run(buffer: bytes, at: int, limit: int) -> EntryRun:
    first = whole = 0
    kinds: list[EntryType] = []
    offsets: list[int] = []
    payloads: list[bytes] = []
    end = len(buffer)
    while len(kinds) < limit:
        try:
            entry = decode_entry(buffer, at, end)
        except FormatError:
            break
        if not kinds:
            first = entry.sequence
        elif entry.sequence != first + len(kinds):
            break
        kinds.append(entry.kind)
        offsets.append(at)
        payloads.append(entry.payload)
        if not entry.more:
            whole = len(kinds)
        at += entry.size
    return EntryRun(first, whole, at, kinds, offsets, payloads)
