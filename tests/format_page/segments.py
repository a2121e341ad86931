"""The chapter about topic segments, for the page about the bytes on disk."""

from __future__ import annotations

from typing import Final

from headwater.format.layout import Layout
from headwater.format.segment import (
    ENTRY_BYTES,
    INDEX_ENTRY,
    SEGMENT_FRAME,
    SEGMENT_FRAME_BYTES_MIN,
    IndexFlag,
    SegmentFile,
    segment_file_name,
    topic_directory_name,
)
from headwater.format.segment.frame import CHECK_PRIME
from headwater.format.segment.identity import FIRST_WEIGHT, TOPIC_WEIGHT


def _names() -> str:
    directory = f"topics/{topic_directory_name(10)}/"
    rows = [
        (SegmentFile.DATA, "the frames of the records, in seq order"),
        (SegmentFile.IDX, f"{ENTRY_BYTES} bytes for each of them"),
        (SegmentFile.COLD, "the index of a segment whose frames are in the cold tier"),
        (SegmentFile.NEW_DATA, "made by a rewrite, before the swap"),
        (SegmentFile.NEW_IDX, "the same; alone it means that the swap has begun"),
        (SegmentFile.DROPPED, "the index of a segment that is being removed"),
    ]
    lines = [f"  {segment_file_name(1, kind):<31} {meaning}" for kind, meaning in rows]
    return "\n".join(
        (
            "A topic's directory is named by its number, in hexadecimal. A segment is two files",
            "with the number of its first seq in the name, and holds one gapless range of seqs.",
            "",
            "```",
            directory,
            *lines,
            "```",
            "",
            "The newest segment is appended to; the others are sealed. In a sealed one only the",
            "state byte of a frame and the flags and check of an entry ever change, when a record",
            "is deleted. The cold tier has the `.data` and `.idx` of a moved segment under the",
            "same names.",
        )
    )


_FRAMES: Final = f"""
A segment frame is a WAL frame without type and topic, and a state byte behind it. The smallest is
{SEGMENT_FRAME_BYTES_MIN} bytes. A record that was dead when it was written, or that was dead when
its segment was rewritten, is such a smallest frame: its seq and time, flags 0, state 0xD5.
"""


def _entries() -> str:
    flags = ", ".join(f"{int(flag):#04x} `{(flag.name or '').lower()}`" for flag in IndexFlag)
    return f"""
The entry of a seq is at (seq - first seq) x {ENTRY_BYTES}. Index flags: {flags}. `in_wal` and
`damaged` are used in memory only; together they mark the end of a `.cold` file, whose last entry
stands for the seq after the last record and has the length of the data as its offset.

The check is a weighted sum of the entry's fields and its seq, modulo {CHECK_PRIME:,}. Every change
of a single bit changes it. A bad entry is read again from the frame it should point to.

A salt is added to the sum: (topic id x {TOPIC_WEIGHT:,} + first x {FIRST_WEIGHT:,}) modulo the same
prime, or 1 where that is 0; `first` is the `xxh3` of the file's first frame modulo the prime. So an
index belongs to one topic and to one data file. The end of a `.cold` file has topic id x 2^24 +
`first` in its `ts`. Segments of earlier versions have no salt, and 0 there.
"""


SEGMENT_PARTS: Final[tuple[str | Layout, ...]] = (
    _names(),
    _FRAMES,
    SEGMENT_FRAME,
    _entries(),
    INDEX_ENTRY,
)
