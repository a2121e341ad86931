"""Settings of the write-ahead log. Every default is the safe one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from headwater.core.units import KIB, MIB


def default_shards() -> int:
    """One per core, eight at most: more writers than cores only wait for each other."""
    return min(os.cpu_count() or 1, 8)


@dataclass(frozen=True, slots=True)
class WalSettings:
    shards: int = 1
    """Independent logs; a topic lives in exactly one of them."""
    file_bytes: int = 64 * MIB
    """Length a file is made with. A larger group gets a larger file."""
    reserve_bytes: int = 1 * MIB
    """Kept for deletes, acks and floors in the active file while the disk is full."""
    queue_submissions_max: int = 4096
    """Submissions waiting for a shard; one more is refused."""
    queue_bytes_max: int = 256 * MIB
    """Their frames, in bytes. A first submission is taken whatever its size."""
    group_bytes_max: int = 8 * MIB
    group_frames_max: int = 65_536
    commit_window_us_min: int = 500
    commit_window_us_max: int = 10_000
    commit_window_us_per_writer: int = 40
    """So much longer for each writer that is expected: about what it takes to read a write, check
    it and hand it over."""
    disk_sync_interval_us: int = 100_000
    """How long the disk class may stay un-synced."""
    idle_mark_after_us: int = 1_000_000
    """Quiet time after which a mark is written that witnesses everything before it."""
    full_retry_interval_us: int = 1_000_000
    """How often a full disk is tried again."""
    head_ahead: int = 256
    """Seqs reserved ahead for classes whose acks do not wait for a sync."""
    copies_ahead: int = 1_024
    """Seqs of a router's destination that are reserved ahead of its copies, with 16 bytes."""
    switch_interval_us: int | None = 200
    """Longest wait for the interpreter after a sync; None leaves Python's own 5 ms."""
    zero_chunk_bytes: int = 256 * KIB
    """Zeros are written ahead in chunks of this size."""
