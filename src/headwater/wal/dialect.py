"""What the group-commit loop needs from a kind of log file. Topics, machines and Kafka each
bring one; the loop is written once."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, Protocol

from headwater.wal.ticket import Ticket

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a full disk says."""


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
