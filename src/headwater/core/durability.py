"""What an acknowledgement promises, by class, weakest first.

The names say what is risked: `EPHEMERAL` records never leave the process, `MEMORY` records are
written without any promise, `DISK` survives a killed process but not a power loss, `FSYNC`
survives both.
"""

from enum import Enum


class Durability(Enum):
    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"

    # There is one of each. The hash that enum has is computed in Python, for every write.
    __hash__ = object.__hash__

    @property
    def waits_for_sync(self) -> bool:
        """True when an ack must wait until the bytes are on stable storage."""
        return self is Durability.FSYNC

    @property
    def is_logged(self) -> bool:
        """True when records of this class are written to the log at all."""
        return self is not Durability.EPHEMERAL
