"""Settings of Kafka's shared log."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.config.wal import WalSettings
from headwater.core.errors import RequestError
from headwater.core.units import GIB, KIB, MIB

SEGMENT_BYTES_MAX = 1 * GIB


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    wal: WalSettings = field(default_factory=WalSettings)
    """Group commit: queue, commit window, syncs. Its file sizes are not used here."""
    segment_bytes: int = SEGMENT_BYTES_MAX
    """A `.log` file is not longer than this."""
    log_ahead_bytes: int = 1 * MIB
    """A `.log` file grows by this much at a time, ahead of what is written."""
    index_ahead_bytes: int = 256 * KIB
    reserve_bytes: int = 64 * KIB
    """Kept in both files for offsets, deletes and the like while the disk is full."""
    cache_bytes: int = 64 * MIB
    """Newest batches kept in memory, for consumers that follow closely."""
    checkpoint_bytes: int = 64 * MIB
    """A checkpoint is written when so much was written since the last one."""
    synced_event_bytes: int = 1 * MIB
    """When so much was synced since the last one, the next group says how far the log is synced:
    damage before that is distinguished from an unfinished write."""
    synced_event_interval_ms: int = 1_000
    """And when so much time went by, if anything was synced since."""
    maintenance_interval_ms: int = 1_000
    retention_interval_ms: int = 10_000
    """How often the maintenance thread checks topics with limits."""
    rewrite_dead_ratio: float = 0.5
    """A segment is rewritten when more than this share of its bytes is dead; 1 never does."""
    seal_dead_bytes: int = 16 * MIB
    """The segment that is written to is ended early when so much of it is dead, and more than the
    ratio: only then can its space be given back."""
    topics_max: int = 100_000
    partitions_max: int = 10_000
    """Partitions of one topic."""
    partitions_total_max: int = 1_000_000
    """Partitions of all topics together: each takes about 320 bytes of memory, used or not."""
    batch_bytes_max: int = 64 * MIB
    """One record batch."""
    producers_max: int = 10_000
    """Producers whose sequences are remembered for a partition; the oldest are forgotten."""
    producer_expiration_ms: int = 86_400_000
    """A producer that writes nothing to a partition for so long is forgotten there, as in Kafka."""

    membership_bytes_max: int = 4 * MIB
    """Members of one group, with their metadata, that outlive a restart."""
    memberships_bytes_max: int = 64 * MIB
    """Those of all groups together: every checkpoint has them."""

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise RequestError("segment_bytes must be between 1 byte and 1 GiB")
        if not 0 < self.rewrite_dead_ratio <= 1:
            raise RequestError("rewrite_dead_ratio must be above 0 and at most 1")
        if self.producer_expiration_ms < 1:
            raise RequestError("producer_expiration_ms must be at least 1")
