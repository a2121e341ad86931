"""A segment in the cold tier, compared with the index that points at it.

The frames there are not touched when a record is deleted, so what is deleted here and live there
is as it should be. Everything else must agree: lengths, offsets, times, flags, every checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from headwater.core.arrays import numpy
from headwater.core.errors import DamageError
from headwater.disk import Disk
from headwater.format.segment import (
    ENTRY_BYTES,
    Entries,
    IndexFlag,
    SegmentFile,
    SegmentPart,
    bad_entries,
    index_flags,
    salt_of,
    segment_file_name,
    shared_shift,
)
from headwater.store.cold_index import cold_end
from headwater.store.ownership import foreign_data
from headwater.store.pair import read_all, whole_entries
from headwater.store.segment_stores import SegmentStore
from headwater.store.verify import FaultKind, TopicSegmentCheck, VerifyFault, frame_findings, listed

FOREIGN_INDEX: Final = "this is the index of another segment"
_DELETED: Final = int(IndexFlag.DELETED)


def verify_cold_segment(
    disk: Disk, path: PurePath, first_seq: int, store: SegmentStore, store_path: PurePath
) -> TopicSegmentCheck:
    """`path` is the topic's directory, `store_path` what a report calls the store.

    A store that refuses or does not answer is an error of its own: that is no damage.
    """
    local = whole_entries(read_all(disk, path / segment_file_name(first_seq, SegmentFile.COLD)))
    check = TopicSegmentCheck()
    try:
        check.faults += _compare(local, first_seq, store, store_path, check)
    except DamageError as error:
        where = store_path / segment_file_name(first_seq, SegmentPart.DATA)
        where = where if error.path is None else PurePath(error.path)
        check.faults.append(VerifyFault(where, error.offset, error.what, True, FaultKind.COLD))
    return check


def _compare(
    local: Entries,
    first_seq: int,
    store: SegmentStore,
    store_path: PurePath,
    check: TopicSegmentCheck,
) -> Iterator[VerifyFault]:
    end = cold_end(local[-1:], first_seq + len(local) - 1)
    local = local[:-1]
    salt = salt_of(None if end is None else end.identity)
    paths = {part: store_path / segment_file_name(first_seq, part) for part in SegmentPart}
    there = {part: store.len(first_seq, part) for part in SegmentPart}
    if end is not None:
        wanted = {SegmentPart.IDX: len(local) * ENTRY_BYTES, SegmentPart.DATA: end.data_bytes}
        for part in SegmentPart:
            if there[part] != wanted[part]:
                what = f"has {there[part]} bytes; the index that points here says {wanted[part]}"
                yield VerifyFault(
                    paths[part], min(there[part], wanted[part]), what, True, FaultKind.COLD
                )
    count = there[SegmentPart.IDX] // ENTRY_BYTES
    stored = whole_entries(store.read_range(first_seq, SegmentPart.IDX, 0, count * ENTRY_BYTES))
    sound = numpy.ones(len(stored), numpy.bool_)
    wrong = bad_entries(stored, first_seq, salt)
    sound[wrong] = False
    damaged = [(position * ENTRY_BYTES, "the entry is damaged") for position in wrong.tolist()]
    if len(stored) > 1 and end is not None and shared_shift(stored, first_seq) not in (None, salt):
        yield VerifyFault(paths[SegmentPart.IDX], 0, FOREIGN_INDEX, True, FaultKind.FOREIGN)
    else:
        yield from listed(paths[SegmentPart.IDX], damaged, FaultKind.COLD)
    yield from _different(local, stored, sound, first_seq, salt, paths[SegmentPart.IDX])
    data = store.read_range(first_seq, SegmentPart.DATA, 0, there[SegmentPart.DATA])
    check.data_bytes = len(data)
    foreign = foreign_data(data, first_seq, None if end is None else end.identity)
    if foreign is not None:
        yield VerifyFault(paths[SegmentPart.DATA], 0, foreign, True, FaultKind.FOREIGN)
        return
    yield from frame_findings(
        paths[SegmentPart.DATA], memoryview(data), stored, sound, first_seq, FaultKind.COLD
    )


def _different(
    local: Entries,
    stored: Entries,
    sound: numpy.typing.NDArray[numpy.bool_],
    first_seq: int,
    salt: int,
    path: PurePath,
) -> Iterator[VerifyFault]:
    """Two sound entries of one seq that do not say the same, but for a later delete."""
    count = min(len(local), len(stored))
    mine, theirs = local[:count], stored[:count]
    readable = sound[:count].copy()
    readable[bad_entries(mine, first_seq, salt)] = False
    unlike = numpy.zeros(count, numpy.bool_)
    for name in ("offset", "len", "ts"):
        unlike |= mine[name] != theirs[name]
    unlike |= (index_flags(mine) | _DELETED) != (index_flags(theirs) | _DELETED)
    unlike |= (index_flags(theirs) & _DELETED) > (index_flags(mine) & _DELETED)
    problems = [
        (row * ENTRY_BYTES, f"seq {first_seq + row}: not what the index that points here says")
        for row in numpy.flatnonzero(unlike & readable).tolist()
    ]
    yield from listed(path, problems, FaultKind.COLD)
