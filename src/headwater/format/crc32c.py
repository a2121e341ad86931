"""CRC32C (Castagnoli): the checksum of machine entries, RCPX frames and Kafka batches. Only module
that imports the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import google_crc32c

crc32c: Final[Callable[[bytes], int]] = google_crc32c.value
"""CRC32C of a buffer, as an unsigned integer. The function itself: a call around it costs more
than the checksum of a short entry."""
