"""Settings of topic segments: when one is sealed, what stays hot, what is rewritten."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.core.errors import RequestError
from headwater.core.units import GIB, MIB


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    segment_max_events: int = 10_000
    """A segment is sealed when it has this many records,"""
    segment_max_bytes: int = 64 * MIB
    """or this many bytes of frames,"""
    segment_max_age_ms: int = 3_600_000
    """or this age, busy or not; 0 leaves the age out."""
    hot_retain_segments: int = 4
    """So many of the newest sealed segments stay hot when there is a cold tier."""
    hot_retain_bytes: int = 0
    """At most so many bytes of sealed segments stay hot; 0 leaves the bytes out."""
    rewrite_dead_ratio: float = 0.5
    """A sealed segment is rewritten when this share of its bytes is dead; 0 never does."""

    def __post_init__(self) -> None:
        if self.segment_max_events < 1:
            raise RequestError("segment_max_events must be 1 or more")
        if not 1 <= self.segment_max_bytes <= 2 * GIB:
            raise RequestError("segment_max_bytes must be between 1 byte and 2 GiB")
        if min(self.segment_max_age_ms, self.hot_retain_segments, self.hot_retain_bytes) < 0:
            raise RequestError("an age or a bound of the hot tier cannot be below 0")
        if not 0 <= self.rewrite_dead_ratio <= 1:
            raise RequestError("rewrite_dead_ratio must be between 0 and 1")
