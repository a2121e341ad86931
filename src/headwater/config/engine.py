"""Settings of the embedded engine. Sections belong to the rooms that read them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.config.machines import MachineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.limits import ROUTERS_MAX
from headwater.core.units import MIB


@dataclass(frozen=True, slots=True)
class EngineSettings:
    wal: WalSettings = field(default_factory=WalSettings)
    segments: SegmentSettings = field(default_factory=SegmentSettings)
    machines: MachineSettings = field(default_factory=MachineSettings)
    cold_url: str | None = None
    """A directory, or s3://bucket/prefix; None keeps every segment hot."""
    checkpoint_interval_ms: int = 1_000
    """How often the maintenance thread checks for work."""
    checkpoint_tail_bytes: int = 4 * MIB
    """A topic with this much that is only in the log is checkpointed at the next look."""
    tail_bytes_max: int = 512 * MIB
    """Records that are only in the log and in memory; beyond this, writes are refused."""
    cache_bytes: int = 64 * MIB
    """Newest payloads kept in memory after they are in segments."""
    snapshot_wal_bytes: int = 64 * MIB
    snapshot_interval_ms: int = 60_000
    replay_frames_max: int = 50_000
    """A start that replayed more of the log ends with a checkpoint and a snapshot, so that starts
    do not take longer and longer in a crash loop."""
    topics_max: int = 100_000
    routers_max: int = ROUTERS_MAX
    total_bytes_max: int = 0
    """Live bytes of all topics; at this much, writes are refused. 0 means any."""
    verify_reads: bool = True
    wait_us_min: int = 1_000
    """What writes waited for at least so long is kept for `headwater trace`; 0 keeps nothing."""
    reader_threads: int = 4
    refresh_interval_ms: int = 50
    """A read-only database that waits for records checks the files this often."""
