"""Names of segment files and topic directories: numbers only, so they sort by what they hold.

Names given by users never become paths (I16).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

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
