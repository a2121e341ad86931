"""XXH3-64 with seed 0: the one checksum of frames, segments and snapshots. Only module that
imports the library."""

from __future__ import annotations

import xxhash

checksum64 = xxhash.xxh3_64_intdigest
"""XXH3-64 of a buffer, as an unsigned integer."""


class RunningChecksum:
    """The same over bytes that come chunk by chunk."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = xxhash.xxh3_64()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self._state.update(data)

    def value(self) -> int:
        return self._state.intdigest()
