"""The local index of a cold segment: the only file that knows which of its records were deleted.

The frames in the cold store are not flipped when a record is deleted, so a damaged entry cannot be
read again from them: that might bring a deleted record back (I8). It is settled from two sides
instead: the index in the cold store knows everything but later deletes, and what is left of the
local entry says which of the two it was. Where it does not, the entry is DAMAGED and not served.

Without the data beside it, nothing says where the index should end. So it ends with one entry
more, for the seq after the last: its offset is the length of the data, its flags are no record's.
Where a record has its time, the end has whose segment it is; 0 for one that does not know.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

import msgspec

from headwater.core.arrays import NDArray, numpy
from headwater.disk import Disk, file_bytes, read_range
from headwater.format.segment import (
    ENTRY_BYTES,
    INDEX_ENTRY,
    MEMORY_FLAGS,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    Identity,
    IndexFlag,
    bad_entries,
    index_flags,
    salt_of,
    seal_checks,
    unpack_identity,
)
from headwater.store.checked_reads import RecordDamage
from headwater.store.pair import whole_entries
from headwater.store.segment import Segment

_CHECK_SHIFT: Final = 8
_END_FLAGS: Final = MEMORY_FLAGS


def cold_index_bytes(
    entries: Entries, first_seq: int, data_bytes: int, identity: Identity | None
) -> bytes:
    """What a `.cold` file holds: the entries, and the end."""
    packed = 0 if identity is None else identity.pack()
    end = numpy.array(
        [(data_bytes, SEGMENT_FRAME_BYTES_MIN, packed, _END_FLAGS)], INDEX_ENTRY.dtype
    )
    seal_checks(end, first_seq + len(entries), salt_of(identity))
    return entries.tobytes() + end.tobytes()


class ColdEnd(msgspec.Struct, frozen=True):
    """What the last entry of a `.cold` file says."""

    data_bytes: int
    identity: Identity | None


def cold_end(last: Entries, seq: int) -> ColdEnd | None:
    """The end, if this last entry of a `.cold` file is one that was written for this seq."""
    if not len(last) or int(index_flags(last)[0]) != _END_FLAGS:
        return None
    identity = unpack_identity(int(last["ts"][0]))
    if len(bad_entries(last, seq, salt_of(identity))):
        return None
    return ColdEnd(int(last["offset"][0]), identity)


def cold_bytes(disk: Disk, path: PurePath) -> int:
    """How much data the `.cold` file at `path` leads to, roughly: nothing in it is checked."""
    try:
        size = file_bytes(disk, path)
        last = whole_entries(read_range(disk, path, max(size - ENTRY_BYTES, 0), ENTRY_BYTES))
    except OSError:
        return 0
    return int(last["offset"][-1]) if len(last) else 0


def repair_cold_entries(
    local: Entries, stored: Entries, first_seq: int, path: PurePath, salt: int
) -> tuple[Entries, list[RecordDamage]]:
    """The local entries with the bad ones settled; `stored` is the index in the cold store."""
    live = stored.copy()
    deleted = stored.copy()
    deleted["flags_check"] |= numpy.uint32(IndexFlag.DELETED)
    seal_checks(deleted, first_seq, salt)
    unsound = set(bad_entries(stored, first_seq, salt).tolist())
    findings: list[RecordDamage] = []
    for row in bad_entries(local, first_seq, salt).tolist():
        was = None
        if row not in unsound:
            was = _which(local[row], live[row], deleted[row])
        if was is not None:
            local[row] = was
        else:
            fields = live[row] if row not in unsound else None
            local[row] = _damaged(fields)
        reason = "the index entry is damaged" + ("" if was is not None else ", and not clear")
        findings.append(
            RecordDamage(path, row * ENTRY_BYTES, first_seq + row, reason, was is not None)
        )
    return local, findings


def _which(local: numpy.void, live: numpy.void, deleted: numpy.void) -> numpy.void | None:
    """The one option whose check is there, or whose everything but the check is there."""
    options = [live] if live.tobytes() == deleted.tobytes() else [live, deleted]
    by_check = [each for each in options if _check(each) == _check(local)]
    if len(by_check) == 1:
        return by_check[0]
    by_fields = [each for each in options if each.tobytes()[:17] == local.tobytes()[:17]]
    return by_fields[0] if len(by_fields) == 1 else None


def _check(entry: numpy.void) -> int:
    return int(entry["flags_check"] >> _CHECK_SHIFT)


def _damaged(fields: numpy.void | None) -> tuple[int, int, int, int]:
    if fields is None:
        return 0, SEGMENT_FRAME_BYTES_MIN, 0, int(IndexFlag.DAMAGED)
    return int(fields["offset"]), int(fields["len"]), int(fields["ts"]), int(IndexFlag.DAMAGED)


def flagged_copy(whole: Entries, segment: Segment, seqs: NDArray[numpy.int64]) -> Entries:
    """The entries of a whole segment with these seqs deleted; damaged ones stay as they are."""
    first_seq, salt = segment.first_seq, segment.salt
    rows = numpy.setdiff1d(seqs - first_seq, bad_entries(whole, first_seq, salt))
    flagged = whole.copy()
    flagged["flags_check"] |= numpy.uint32(IndexFlag.DELETED)
    seal_checks(flagged, first_seq, salt)
    changed = whole.copy()
    changed[rows] = flagged[rows]
    return changed
