"""The names of segment files and topic directories, and whose a segment is.

Names are numbers only, so that they sort by what they hold; those given by users never become paths
(I16).

Neither a frame nor an index entry names its topic, so a pair of files under another topic's name
would be sound. But each entry has a check, and the check is a sum: adding a number that is made of
the topic's id and of the checksum in the first frame changes no layout, and binds index and data to
each other and both to the topic. The seqs are in the checks already. A file under another's name
makes every check wrong by one and the same difference, which no damage does, and the difference
names the topic.

Segments that were written before have no salt, and are taken as they are.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

import msgspec

from headwater.core.arrays import numpy
from headwater.format.frame import CHECKSUM_BYTES, LENGTH_BYTES
from headwater.format.segment.frame import (
    CHECK_PRIME,
    SEGMENT_FRAME_LEN_MIN,
    SEQ_WEIGHT,
    Entries,
    check_shifts,
)

SEQ_MAX: Final = 10**16 - 1
"""The largest seq whose segment name still sorts where it belongs."""

_DELETED_SUFFIX: Final = ".deleted"
_SEGMENT: Final = re.compile(r"seg-([0-9]{16})\.([a-z.]+)")
# More than eight digits only for numbers that need them, so that each topic has one name.
_TOPIC: Final = re.compile(r"([0-9A-F]{8}|[1-9A-F][0-9A-F]{8,15})")


class SegmentPart(Enum):
    """The two files of a segment; the value is the suffix of the name."""

    DATA = "data"
    IDX = "idx"


class SegmentFile(Enum):
    """Every file a topic directory can hold of a segment; the value is the suffix of the name."""

    DATA = "data"
    IDX = "idx"
    COLD = "cold"
    """The index of a segment whose frames are in the cold tier: the pointer to it."""
    DROPPED = "dropped"
    """The index of a segment that is being removed."""
    NEW_DATA = "data.new"
    NEW_IDX = "idx.new"
    TEMPORARY_IDX = "idx.tmp"
    TEMPORARY_DATA = "data.tmp"
    TEMPORARY_COLD = "cold.tmp"


_FILES: Final = {kind.value: kind for kind in SegmentFile}


def segment_name(first_seq: int) -> str:
    """The name both files share, without the suffix."""
    if not 0 <= first_seq <= SEQ_MAX:
        raise ValueError(f"no segment can begin at seq {first_seq}")
    return f"seg-{first_seq:016d}"


def segment_file_name(first_seq: int, part: SegmentPart | SegmentFile) -> str:
    return f"{segment_name(first_seq)}.{part.value}"


def parse_segment_file(name: str) -> tuple[int, SegmentFile] | None:
    """The first seq and which file it is, or None when this is no file of a segment."""
    match = _SEGMENT.fullmatch(name)
    kind = _FILES.get(match[2]) if match else None
    return (int(match[1]), kind) if match and kind else None


def parse_segment_name(name: str) -> tuple[int, SegmentPart] | None:
    """As `parse_segment_file`, for the two files of a segment that is at rest."""
    parsed = parse_segment_file(name)
    if parsed is None or parsed[1] not in (SegmentFile.DATA, SegmentFile.IDX):
        return None
    return parsed[0], SegmentPart(parsed[1].value)


def topic_directory_name(topic_id: int) -> str:
    return f"{topic_id:08X}"


def parse_topic_directory_name(name: str) -> int | None:
    return int(name, 16) if _TOPIC.fullmatch(name) else None


def deleted_directory_name(topic_id: int) -> str:
    """What a dropped topic's directory is called until its files are gone."""
    return topic_directory_name(topic_id) + _DELETED_SUFFIX


def parse_deleted_directory_name(name: str) -> int | None:
    if not name.endswith(_DELETED_SUFFIX):
        return None
    return parse_topic_directory_name(name.removesuffix(_DELETED_SUFFIX))


_PRIME: Final = CHECK_PRIME
TOPIC_WEIGHT: Final = 0x71374491 % _PRIME
FIRST_WEIGHT: Final = 0x3956C25B % _PRIME
_FIRST_BITS: Final = 24
TOPICS_MAX: Final = 1 << (64 - _FIRST_BITS)
"""Ids from here on do not fit beside the other half; their segments have no identity."""


class Identity(msgspec.Struct, frozen=True):
    topic_id: int
    first: int
    """What is left of the first frame's checksum: it binds an index to its data."""

    @property
    def salt(self) -> int:
        """0 is for segments without an identity, so it is given to none that has one."""
        return (self.topic_id * TOPIC_WEIGHT + self.first * FIRST_WEIGHT) % _PRIME or 1

    def pack(self) -> int:
        """Both in a u64, for the end of a `.cold` file; never 0."""
        return self.topic_id << _FIRST_BITS | self.first


def unpack_identity(packed: int) -> Identity | None:
    if not packed:
        return None
    return Identity(packed >> _FIRST_BITS, packed & ((1 << _FIRST_BITS) - 1))


def salt_of(identity: Identity | None) -> int:
    return 0 if identity is None else identity.salt


def identity_of(topic_id: int | None, checksum: int | None) -> Identity | None:
    """Of a segment of this topic, whose first frame has this checksum."""
    if topic_id is None or checksum is None or not 0 < topic_id < TOPICS_MAX:
        return None
    return Identity(topic_id, checksum % _PRIME)


def checksum_span(begin: bytes | memoryview) -> tuple[int, int] | None:
    """Where in a data file the first frame's checksum lies, read from the file's first bytes."""
    length = int.from_bytes(begin[:LENGTH_BYTES], "little")
    if len(begin) < LENGTH_BYTES or length < SEGMENT_FRAME_LEN_MIN:
        return None
    end = LENGTH_BYTES + length
    return end - CHECKSUM_BYTES, end


def first_checksum(buffer: bytes | bytearray | memoryview) -> int | None:
    """The checksum that is written in the first frame; None when there cannot be one."""
    span = checksum_span(memoryview(buffer)[:LENGTH_BYTES])
    if span is None or span[1] > len(buffer):
        return None
    return int.from_bytes(buffer[slice(*span)], "little")


def shared_shift(entries: Entries, first_seq: int) -> int | None:
    """The one difference by which most checks are off, 0 for none; None when there is no such one.

    Damage hits single entries. What is off everywhere by the same was written for another segment.
    """
    shifts = check_shifts(entries, first_seq)
    if not len(shifts):
        return None
    values, counts = numpy.unique(shifts, return_counts=True)
    most = int(counts.argmax())
    if counts[most] * 2 <= len(shifts) and len(shifts) > 1:
        return None
    return int(values[most])


def topic_of_shift(salt: int, first: int) -> int:
    """The id, below 2^24, of the topic whose index with this salt belongs to data with `first`.

    A number without meaning when index and data do not belong together.
    """
    return (salt - first * FIRST_WEIGHT) * pow(TOPIC_WEIGHT, -1, _PRIME) % _PRIME


def seqs_of_shift(shift: int, salt: int) -> int:
    """How many seqs further the segment is that entries with this shift were written for; negative
    when it is before."""
    further = (shift - salt) * pow(SEQ_WEIGHT, -1, _PRIME) % _PRIME
    return further - _PRIME if further * 2 > _PRIME else further


def shift_of_seqs(seqs: int, salt: int) -> int:
    """The shift of entries with this salt that were written for a segment so many seqs further."""
    return (salt + seqs * SEQ_WEIGHT) % _PRIME


def identity_with_salt(topic_id: int | None, salt: int) -> Identity | None:
    """The identity that an index with this salt has, if it is one of this topic."""
    if not salt or topic_id is None or not 0 < topic_id < TOPICS_MAX:
        return None
    rest = salt - topic_id * TOPIC_WEIGHT
    return Identity(topic_id, rest * pow(FIRST_WEIGHT, -1, _PRIME) % _PRIME)
