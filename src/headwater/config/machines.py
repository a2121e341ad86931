"""Settings of the state machines: how durable, how large, when compacted, what is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headwater.core.errors import InvalidRequestError
from headwater.core.units import MIB, MS_PER_S


class FsyncKind(Enum):
    EVERY_WRITE = "every_write"
    EVERY_N = "every_n"
    EVERY_MS = "every_ms"
    NEVER = "never"

    @property
    def takes_an_amount(self) -> bool:
        return self in (FsyncKind.EVERY_N, FsyncKind.EVERY_MS)


@dataclass(frozen=True, slots=True)
class FsyncPolicy:
    """When entries reach stable storage. Only `every_write` makes an ack wait for it."""

    kind: FsyncKind = FsyncKind.EVERY_WRITE
    amount: int = 0
    """Writes or milliseconds, for the two kinds that count."""

    @property
    def writes_at_risk(self) -> int | None:
        """So many answered writes may be unsynced; None when writes are not what is counted."""
        return self.amount if self.kind is FsyncKind.EVERY_N else None

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.amount}" if self.kind.takes_an_amount else self.kind.value


def read_fsync_policy(given: object) -> FsyncPolicy:
    """`every_write`, `never`, `{"every_n": N}`, `{"every_ms": N}`; as text also `every_n:N`."""
    if isinstance(given, FsyncPolicy):
        return given
    word, amount = _word_and_amount(given)
    try:
        kind = FsyncKind(word)
    except ValueError:
        raise _not_a_policy(given) from None
    if not kind.takes_an_amount:
        if amount is not None:
            raise _not_a_policy(given)
        return FsyncPolicy(kind)
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 1:
        raise _not_a_policy(given)
    return FsyncPolicy(kind, amount)


def _word_and_amount(given: object) -> tuple[object, Any]:
    if isinstance(given, Mapping) and len(given) == 1:
        ((word, amount),) = given.items()
        return word, amount
    if isinstance(given, str):
        word, colon, digits = given.strip().partition(":")
        if not colon:
            return word, None
        digits = digits.strip()
        return word.strip(), int(digits) if digits.isascii() and digits.isdigit() else False
    return None, None


def _not_a_policy(given: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"fsync policy {given!r}: must be every_write, never, every_n:N or every_ms:N, N from 1"
    )


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    enabled: bool = True
    events_threshold: int = 10_000
    """Entries since the last snapshot."""
    size_threshold_bytes: int = 100 * MIB
    """Bytes of log since the last snapshot."""
    min_interval_ms: int = 60 * MS_PER_S


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """What outlives the log of the entries of living instances."""

    transitions_max: int = 100
    """The newest so many of each instance; 0 keeps none."""
    age_ms: int = 0
    """None older than this; 0 sets no age."""
    bytes_max: int = 1024 * MIB
    """Of all of them; beyond it the oldest go."""


@dataclass(frozen=True, slots=True)
class MachineSettings:
    fsync_policy: FsyncPolicy = field(default_factory=FsyncPolicy)
    wal_segment_bytes: int = 64 * MIB
    entry_header_checksum: bool = True
    """Behind each entry of the log. Without it readers that know of none can follow."""
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    idempotency_window_ms: int = 24 * 3_600 * MS_PER_S
    idempotency_bytes_max: int = 256 * MIB
    """What keys may keep in memory: beyond it the oldest are forgotten before their time."""
    versions_max: int = 0
    """Versions of one machine; 0 means any number."""
    ids_may_be_reused: bool = True
    """May an instance be made again under the id of a deleted one?"""
    transitions_topic: str | None = "machines:transitions"
    """The topic every transition is also written to; None for none."""
    feed_interval_ms: int = 100
    """How often new transitions are taken to their topic."""
    watch_buffer_events: int = 4_096
    """Transitions that wait for a slow watcher before it gets a gap instead."""
    allow_flush_all: bool = False
    keep_interval_ms: int = 200
    """How often the maintenance thread checks expiries and compaction."""
    instance_snapshots_max: int = 1_000
    """Snapshots of single instances; beyond it the oldest files are removed. 0 keeps any number."""
    instance_snapshots_age_ms: int = 30 * 24 * 3_600 * MS_PER_S
    """They are removed at this age. 0 keeps them for ever."""
    reserve_bytes: int = 1 * MIB
    """Kept in the active segment for deletes while the disk is full."""
    queue_submissions_max: int = 8_192
    zero_chunk_bytes: int = 256 * 1024
    idle_mark_after_us: int = 1_000_000
    full_retry_interval_us: int = 1_000_000
    switch_interval_us: int | None = 200
