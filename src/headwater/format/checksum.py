"""XXH3-64 with seed 0: the one checksum of frames, segments and snapshots. Only module that
imports the library."""

from __future__ import annotations

import xxhash

checksum64 = xxhash.xxh3_64_intdigest
"""XXH3-64 of a buffer, as an unsigned integer."""
