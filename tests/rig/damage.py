"""Damage to the files of topics, made on purpose: one bit, a cut, a missing file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headwater.format.names import TOPICS_DIRECTORY
from headwater.format.segment import (
    ENTRY_BYTES,
    SegmentFile,
    parse_segment_file,
    segment_file_name,
    topic_directory_name,
)
from headwater.store.pair import whole_entries


def topic_path(data: Path, topic_id: int) -> Path:
    return data / TOPICS_DIRECTORY / topic_directory_name(topic_id)


def segment_path(
    data: Path, topic_id: int, first_seq: int, kind: SegmentFile = SegmentFile.DATA
) -> Path:
    return topic_path(data, topic_id) / segment_file_name(first_seq, kind)


def first_seqs(data: Path, topic_id: int) -> list[int]:
    """The first seqs of the hot segments of a topic."""
    found = (parse_segment_file(path.name) for path in topic_path(data, topic_id).iterdir())
    return sorted(each[0] for each in found if each and each[1] is SegmentFile.IDX)


def flip_bit(path: Path, offset: int, bit: int = 0) -> None:
    """In place, so that whoever has the file mapped sees it as well."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 1 << bit,)))


def frame_place(data: Path, topic_id: int, seq: int) -> tuple[Path, int, int]:
    """The file a record is in, where its frame begins, and how long it is."""
    first = max(each for each in first_seqs(data, topic_id) if each <= seq)
    entries = whole_entries(segment_path(data, topic_id, first, SegmentFile.IDX).read_bytes())
    entry = entries[seq - first]
    return segment_path(data, topic_id, first), int(entry["offset"]), int(entry["len"])


def damage_records(data: Path, topic_id: int, seqs: Iterable[int], at: float = 0.5) -> None:
    """Flip a bit in the frame of each: `at` 0 is its first byte, 0.5 is its middle."""
    for seq in seqs:
        path, offset, size = frame_place(data, topic_id, seq)
        flip_bit(path, offset + int(size * at))


def damage_entries(data: Path, topic_id: int, seqs: Iterable[int]) -> None:
    """Flip a bit in the index entry of each."""
    for seq in seqs:
        first = max(each for each in first_seqs(data, topic_id) if each <= seq)
        path = segment_path(data, topic_id, first, SegmentFile.IDX)
        flip_bit(path, (seq - first) * ENTRY_BYTES + 4)
