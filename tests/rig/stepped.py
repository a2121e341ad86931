"""The parts of an engine without threads, which are part of the public test kit."""

from headwater.testing.torture.fake_stores import (
    SteppedForwarder,
    SteppedMaintenance,
    SteppedOwner,
    SteppedShard,
    SteppedWal,
)

__all__ = ["SteppedForwarder", "SteppedMaintenance", "SteppedOwner", "SteppedShard", "SteppedWal"]
