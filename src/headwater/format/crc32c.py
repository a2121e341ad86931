"""CRC32C (Castagnoli): the checksum of machine entries, RCPX frames and Kafka batches. Only module
that imports the library."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes) -> int:
    """CRC32C of a buffer, as an unsigned integer."""
    value: int = google_crc32c.value(data)
    return value
