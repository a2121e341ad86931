"""Settings of the write-ahead log. Every default is the safe one."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.core.units import KIB, MIB


@dataclass(frozen=True, slots=True)
class WalSettings:
    shards: int = 1
    """Independent logs; a topic lives in exactly one of them. Each has files, a thread and syncs of
    its own, so a write costs more with more of them. See
    docs/decisions/0038-one-log-thread-without-the-interpreter.md."""
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
    """How long a group may wait for writers who are known to come soon, at least..."""
    commit_window_us_max: int = 10_000
    """...and at most, on a slow disk or under pressure."""
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
