"""CRC32C (Castagnoli): the checksum of machine entries, RCPX frames and Kafka batches. Only module
that imports the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import google_crc32c

from headwater.native import compiled

_native: Final = compiled("batches")

crc32c: Final[Callable[[bytes], int]] = google_crc32c.value
"""CRC32C of a buffer, as an unsigned integer. The function itself: a call around it costs more
than the checksum of a short entry."""


def crc32c_from(buffer: bytes | bytearray | memoryview, start: int) -> int:
    """CRC32C of all from this byte on, without a copy of it where that is compiled."""
    if _native is not None:
        checksum: int | None = _native.crc32c(buffer, start)
        if checksum is not None:
            return checksum
    return crc32c(memoryview(buffer)[start:].tobytes())
