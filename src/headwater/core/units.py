"""Sizes and times by name, so that no bare power of two stands in the code."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

US_PER_MS: Final = 1_000
US_PER_S: Final = 1_000_000
MS_PER_S: Final = 1_000
