"""An instance as it is at one moment. Never changed: every event makes a new one.

So a reference to one is a consistent view, and a snapshot is a list of them. The context stays
JSON bytes until a reader parses it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.model.machines.values import object_of


class Instance(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """In snapshots it is a list in this order, so new fields go last and have a default."""

    id: str
    machine: str
    version: int
    state: str
    ctx: bytes
    created_at: int
    """Milliseconds since 1970, as is `updated_at`."""
    updated_at: int
    last_wal_offset: int
    last_event_id: str | None = None
    expires_at: int = 0
    """When it deletes itself; 0 for never."""
    doubtful: bool = False
    """Entries about it were lost to damage, or may have been: its state may not be the last."""

    @property
    def context(self) -> dict[str, Any]:
        return object_of(self.ctx)
