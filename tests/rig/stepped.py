"""The parts of an engine without threads, which are part of the public test kit."""

from headwater.testing.stepped import (
    SteppedForwarder,
    SteppedKeeper,
    SteppedOwner,
    SteppedShard,
    SteppedWal,
)

__all__ = ["SteppedForwarder", "SteppedKeeper", "SteppedOwner", "SteppedShard", "SteppedWal"]
