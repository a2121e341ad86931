"""The bodies of answers that are made for every request, as structs."""

from __future__ import annotations

import msgspec


class Performance(msgspec.Struct):
    """Where the time of a write went, in milliseconds."""

    server_total_ms: float
    wal_append_ms: float
    fsync_ms: float
    throttle_wait_ms: float = 0


class WriteAnswer(msgspec.Struct):
    first_seq: int
    last_seq: int
    seqs: list[int] | msgspec.UnsetType
    """Left out when the request asked for that."""
    head_seq: int
    count: int
    created: bool
    deduped: bool
    performance: Performance
