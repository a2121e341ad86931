"""A segment as the rest of the program knows it, and the questions its numbers answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import NamedTuple

from headwater.core.errors import DamageError, UnavailableError
from headwater.format.segment import Identity, salt_of


class Tier(Enum):
    HOT = "hot"
    COLD = "cold"


class SegmentChangedError(UnavailableError):
    """The files were rewritten or removed since this segment was looked up; look it up again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_ms=0)


class UnreadableSegmentError(DamageError):
    """The file of a segment is missing, or is another segment's: no record of it can be read."""


class SegmentMissingError(SegmentChangedError):
    """There is no file for this segment. If the segment is still the topic's, it was lost."""

    def __init__(self, path: PurePath) -> None:
        super().__init__(f"{path} is no longer there")
        self.path = path


@dataclass(frozen=True, slots=True)
class Segment:
    """One gapless range of seqs in one pair of files."""

    first_seq: int
    count: int
    data_bytes: int
    sealed: bool
    created_ms: int
    """When its first record was written, by the wall clock."""
    tier: Tier = Tier.HOT
    identity: Identity | None = None
    """Whose it is; None for one that was written before segments knew."""

    @property
    def salt(self) -> int:
        """What the checks of its index are salted with."""
        return salt_of(self.identity)

    @property
    def end_seq(self) -> int:
        """The last seq in it."""
        return self.first_seq + self.count - 1

    @property
    def is_cold(self) -> bool:
        return self.tier is Tier.COLD


class SegmentSlice(NamedTuple):
    """Some bytes of a `.data` file: the frame of an entry begins at its offset minus `base`."""

    buffer: memoryview
    base: int
    path: PurePath
