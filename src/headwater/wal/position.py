"""Where a log stands: what recovery hands to the writer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenFile:
    """The file to go on in."""

    number: int
    file_bytes: int
    offset: int
    """End of the last whole group; everything before it is synced."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    next_frame: int
    """Number the next frame will have, counted over the whole life of the shard, from 1."""
    chain: int
    """What the next mark must carry as `chain`."""
    log_id: int
    run: int
    oldest: int | None
    """Number of the oldest file that is still needed; None for a new log."""
    open_file: OpenFile | None
    """None: begin a new file."""
