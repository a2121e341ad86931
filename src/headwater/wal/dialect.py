"""What the group-commit loop needs from a kind of log file, and where recovery lets a log go on.

Topics, machines and Kafka each bring one; the loop is written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from headwater.wal.ticket import Ticket


class OpenFile(msgspec.Struct, frozen=True):
    """The file to go on in."""

    number: int
    file_bytes: int
    offset: int
    """End of the last whole group; everything before it is synced."""


class LogPosition(msgspec.Struct, frozen=True):
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


class GroupLog(Protocol):
    """A set of files that takes groups in order. Failures arrive as OSError."""

    @property
    def name(self) -> str:
        """For messages: which log this is."""

    def write_group(self, tickets: Sequence[Ticket], *, essential: bool) -> int:
        """Write the tickets' bodies as one group and return the bytes written.

        Raises OSError with ENOSPC or EDQUOT, having changed nothing that a reader can see, when
        there is no room. `essential` groups may use the reserve.
        """

    def sync(self) -> None:
        """All groups written so far are on stable storage on return."""

    def witness(self, *, clean_stop: bool) -> None:
        """Record durably that everything written so far is synced."""

    def make_room(self) -> None:
        """Try to get space for the next group; OSError when there still is none."""

    def close(self) -> None: ...
