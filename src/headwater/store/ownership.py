"""Is this the segment that belongs here? That of another topic or range is refused by name.

What a start reads is cheap: the first frame's checksum, and the first and the last entry. Only
where they do not agree is more read, to tell damage, which is repaired, from files that were
exchanged (I6).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.arrays import numpy
from headwater.core.errors import ForeignFileError, FormatError
from headwater.disk import Disk, OpenMode, opened, read_range
from headwater.format.segment import (
    ENTRY_BYTES,
    MEMORY_FLAGS,
    Entries,
    Identity,
    IndexFlag,
    SegmentFile,
    bad_entries,
    check_shifts,
    checksum_span,
    decode_segment_frame,
    first_checksum,
    identity_of,
    identity_with_salt,
    index_flags,
    parse_topic_directory_name,
    salt_of,
    segment_file_name,
    seqs_of_shift,
    shared_shift,
    shift_of_seqs,
    topic_directory_name,
    topic_of_shift,
    unpack_identity,
)
from headwater.store.pair import whole_entries
from headwater.store.topic_directory import TopicDirectory

ADVICE: Final = "put the right file back, from where it is or from a backup"
TOPICS_CHECKED_MAX: Final = 1_000
"""Other topics that are checked for whether a file is theirs, for the message."""
BEGIN_BYTES: Final = 4


class DataHead(NamedTuple):
    """What a data file says without being read as a whole."""

    size: int
    checksum: int | None
    """As it is written in the first frame; None where no frame begins."""


class Wrong(NamedTuple):
    """A file under the name of another one."""

    path: PurePath
    what: str

    def error(self) -> ForeignFileError:
        return ForeignFileError(self.what, path=self.path, offset=0, advice=ADVICE)


def read_head(disk: Disk, path: PurePath) -> DataHead:
    with opened(disk, path, OpenMode.READ) as file:
        size = file.size()
        span = checksum_span(file.read(0, BEGIN_BYTES))
        if span is None or span[1] > size:
            return DataHead(size, None)
        checksum = file.read(span[0], span[1] - span[0])
        return DataHead(size, int.from_bytes(checksum, "little"))


def pair_identity(
    directory: TopicDirectory, first_seq: int, head: DataHead, entries: Entries
) -> Identity | None:
    """Whose a hot segment is; `entries` are as many as the index has. ForeignFileError when one
    of its files, or both, are those of another segment.

    None for a segment that was written before segments knew.
    """
    own = identity_of(directory.topic_id, head.checksum)
    last = first_seq + len(entries) - 1
    shifts = {*check_shifts(entries[:1], first_seq).tolist()}
    shifts |= {*check_shifts(entries[-1:], last).tolist()}
    if own is not None and own.salt in shifts:
        return own
    if 0 in shifts:
        return None
    shift = shared_shift(entries, first_seq)
    if shift == 0:
        return None
    if shift is None or shift == salt_of(own) or len(entries) < 2:
        return own  # entries are damaged here and there, and the data says what they should be
    data = directory.path_of(first_seq, SegmentFile.DATA)
    seq = sound_first_seq(directory.disk, data)
    if seq is None:
        # The first frame is damaged: the index is the one that can be believed.
        return identity_with_salt(directory.topic_id, shift)
    raise _whose(directory, first_seq, seq, own, shift).error()


def cold_identity(
    directory: TopicDirectory, first_seq: int, entries: Entries, end: Entries
) -> Identity | None:
    """Whose an index at home is; `end` is the entry that ends it. ForeignFileError as above."""
    path = directory.path_of(first_seq, SegmentFile.COLD)
    is_end = len(end) > 0 and int(index_flags(end)[0]) == MEMORY_FLAGS
    claimed = unpack_identity(int(end["ts"][0])) if is_end else None
    after = first_seq + len(entries)
    if is_end and not len(bad_entries(end, after, salt_of(claimed))):
        if claimed is not None and claimed.topic_id != directory.topic_id:
            raise Wrong(path, f"this is the index of {_named(claimed.topic_id)}").error()
        return claimed
    whole = numpy.concatenate((entries, end))
    shift = shared_shift(whole, first_seq)
    if shift is None or len(whole) < 2:
        return claimed
    further = seqs_of_shift(shift, salt_of(claimed))
    if is_end and further and shift == check_shifts(end, after)[0]:
        raise Wrong(path, f"this is the index of the seqs from {first_seq + further} on").error()
    return identity_with_salt(directory.topic_id, shift)


def sound_first_seq(disk: Disk, path: PurePath) -> int | None:
    """The seq of the first frame of a data file; None when the frame is damaged."""
    span = checksum_span(read_range(disk, path, 0, BEGIN_BYTES))
    if span is None:
        return None
    return seq_of_first(read_range(disk, path, 0, span[1] + 1))


def seq_of_first(begin: bytes) -> int | None:
    try:
        return decode_segment_frame(memoryview(begin), 0, len(begin)).seq
    except FormatError:
        return None


def is_older(entries: Entries, first_seq: int, flagged: int | None) -> bool:
    """True when a delete that was in the files once is not in these entries: it never goes."""
    if flagged is None or not first_seq <= flagged < first_seq + len(entries):
        return False
    flags = int(index_flags(entries[flagged - first_seq : flagged - first_seq + 1])[0])
    return not flags & (IndexFlag.DELETED | IndexFlag.DAMAGED)


def older_than(flagged: int | None) -> str:
    return f"this is an older copy: it does not have the delete of seq {flagged}"


def foreign_data(begin: bytes, first_seq: int, identity: Identity | None) -> str | None:
    """What is wrong with data whose first frame is in `begin`; None when it is what the identity
    says, or when the frame is damaged: then the frame is reported."""
    seq = seq_of_first(begin)
    if seq is None:
        return None
    if seq != first_seq:
        return f"this is the data of the seqs from {seq} on, not from {first_seq}"
    if identity is None or identity == identity_of(identity.topic_id, first_checksum(begin)):
        return None
    return f"this is the data of another segment, not of {_named(identity.topic_id)}"


def _whose(
    directory: TopicDirectory, first_seq: int, seq: int, own: Identity | None, shift: int
) -> Wrong:
    """Which of the two files belongs to another segment, and to which."""
    disk = directory.disk
    data = directory.path_of(first_seq, SegmentFile.DATA)
    index = directory.path_of(first_seq, SegmentFile.IDX)
    if seq != first_seq:
        return Wrong(data, f"this is the data of the seqs from {seq} on, not from {first_seq}")
    topics = directory.path.parent
    first = 0 if own is None else own.first
    topic_id = topic_of_shift(shift, first)
    if own is not None and disk.is_directory(topics / topic_directory_name(topic_id)):
        return Wrong(data, f"this and its index are the segment of {_named(topic_id)}")
    for other, place in _others(disk, topics, directory.topic_id):
        theirs = place / segment_file_name(first_seq, SegmentFile.DATA)
        if not disk.exists(theirs):
            continue
        if salt_of(identity_of(other, read_head(disk, theirs).checksum)) == shift:
            return Wrong(index, f"this is the index of {_named(other)}")
        entry = read_range(disk, theirs.with_suffix(f".{SegmentFile.IDX.value}"), 0, ENTRY_BYTES)
        salt = salt_of(identity_of(other, own.first if own is not None else None))
        if salt and check_shifts(whole_entries(entry), first_seq).tolist() == [salt]:
            return Wrong(data, f"this is the data of {_named(other)}")
    for other_seq, files in sorted(directory.segments.items()):
        if other_seq == first_seq or SegmentFile.DATA not in files:
            continue
        theirs = directory.path_of(other_seq, SegmentFile.DATA)
        salt = salt_of(identity_of(directory.topic_id, read_head(disk, theirs).checksum))
        if shift in (
            shift_of_seqs(other_seq - first_seq, salt),
            shift_of_seqs(other_seq - first_seq, 0),
        ):
            return Wrong(index, f"this is the index of the seqs from {other_seq} on")
    what = f"this index and {data.name} were not written for each other, or not for this topic"
    return Wrong(index, what)


def _others(disk: Disk, topics: PurePath, topic_id: int | None) -> Iterator[tuple[int, PurePath]]:
    for name in disk.list_directory(topics)[:TOPICS_CHECKED_MAX]:
        other = parse_topic_directory_name(name)
        if other is not None and other != topic_id:
            yield other, topics / name


def _named(topic_id: int) -> str:
    return f"topic {topic_id} ({topic_directory_name(topic_id)})"
