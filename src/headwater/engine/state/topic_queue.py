"""What the engine keeps of a queue beside its records. For the owner only."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.config.topic import TopicSettings
from headwater.model.queue import ClaimWindow, Grant, QueueLeases


@dataclass(slots=True, eq=False)
class ClaimRequest:
    """A worker that wants jobs, and what a pass gave."""

    node: str
    wanted: int
    lease_us: int = 0
    connection: int | None = None
    served: bool = False
    grant: Grant | None = None
    """None when there was nothing to give."""
    left: bool = False
    """The worker is gone: a pass that is under way gives it nothing."""


@dataclass(slots=True)
class TopicQueue:
    leases: QueueLeases = field(default_factory=QueueLeases)
    window: ClaimWindow[ClaimRequest] = field(default_factory=ClaimWindow)
    """Claims that are to be served together."""
    settings: TopicSettings | None = None
    """The settings that the leases follow; a change replaces this object."""
    blocked_reason: str | None = None
    """Why jobs that were delivered too often could not be put away at the last try."""
    passing: bool = False
    """A pass is under way that reads keys from files; the next one waits for it."""
