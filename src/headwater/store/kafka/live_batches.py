"""What of a segment is still alive: which batches, how many bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headwater.core.arrays import NDArray, numpy
from headwater.format.kafka.entry import (
    PREFIX_BYTES,
    Entries,
    Runs,
    find_runs,
    group_by_key,
    holes_in,
)


class LiveBatches(NamedTuple):
    runs: Runs
    live: NDArray[numpy.bool_]
    """Of each run."""
    live_bytes: int
    stored_bytes: int
    """What the log holds, dead or alive."""
    has_holes: bool
    """There are holes that readers may still come upon: they say which offsets are taken."""

    @property
    def is_needed(self) -> bool:
        return self.has_holes or bool(self.live.any())

    @property
    def dead_ratio(self) -> float:
        return 1 - self.live_bytes / self.stored_bytes if self.stored_bytes else 0.0


def keys_in(entries: Entries) -> list[bytes]:
    return [key for key, _ in group_by_key(find_runs(entries))]


def strangers(living: LiveBatches, log_number: int, log_bytes: int) -> bool:
    """Whether an entry that lives leads to another log, or behind the end of this one."""
    entries = living.runs.entries[living.live]
    ends = entries["physical_offset"].astype(numpy.int64) + entries["length"] + PREFIX_BYTES
    return bool((entries["segment_id"] != log_number).any() or (ends > log_bytes).any())


def find_live_batches(
    entries: Entries, base_id: int, first_live: Mapping[bytes, int]
) -> LiveBatches:
    """A batch lives as long as one of its ids does: from the first live one of its key on."""
    runs = find_runs(entries)
    live = numpy.zeros(len(runs.starts), numpy.bool_)
    last_ids = base_id + runs.starts + runs.counts - 1
    for key, members in group_by_key(runs):
        live[members] = last_ids[members] >= first_live[key]
    has_holes = bool((live & holes_in(runs.entries)).any())
    stored = runs.entries["length"] > 0
    live &= stored
    sizes = runs.entries["length"].astype(numpy.int64) + PREFIX_BYTES
    return LiveBatches(runs, live, int(sizes[live].sum()), int(sizes[stored].sum()), has_holes)
