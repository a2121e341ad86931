# cython: boundscheck=False, wraparound=False, cdivision=True
"""Segments and frames as columns: entries checked, frames held against them, parts cut out.

The twins are in `headwater.format.segment.entry`, `headwater.format.segment.verify` and
`headwater.wire.frame_rows`, which say what the bytes mean. Nothing here trusts a length: what a
frame says of itself is held against the buffer before a byte of it is touched.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headwater.native.xxh3 cimport XXH3_64bits


cdef extern from "Python.h":
    int PyObject_GetBuffer(object, Py_buffer *, int) except -1
    void PyBuffer_Release(Py_buffer *)
    int PyBUF_SIMPLE


cdef packed struct Entry:
    uint32_t offset
    uint32_t length
    uint64_t ts
    uint32_t flags_check


cdef packed struct SegmentHead:
    uint32_t frame_len
    uint8_t flags
    uint64_t seq
    uint64_t ts
    uint16_t node_len
    uint16_t tag_len
    uint32_t data_len


cdef packed struct Lengths:
    # The end of the fixed part, alike in segments and in the log.
    uint64_t seq
    uint64_t ts
    uint16_t node_len
    uint16_t tag_len
    uint32_t data_len


cdef enum:
    LENGTH_BYTES = 4
    CHECKSUM_BYTES = 8
    STATE_BYTES = 1
    FRAME_BYTES_MIN = 38
    META_LENGTH_BYTES = 4
    RECORD_FLAGS = 0x0F
    HAS_TAG = 0x01
    HAS_NODE = 0x02
    HAS_META = 0x08
    DELETED_FLAG = 0x80
    LIVE = 0x00
    DELETED = 0xD5
    # Of FrameFault.
    OUTSIDE = 1
    WRONG_LENGTH = 2
    WRONG_SEQ = 3
    WRONG_TS = 4
    WRONG_FLAGS = 5
    WRONG_CHECKSUM = 6
    WRONG_STATE = 7
    DELETED_IN_DATA = 8
    NOT_DELETED = 9
    # Parts of a frame.
    NODE = 0
    TAG = 1
    DATA = 2
    META = 3
    # What a frame can be that has no such part.
    NO_ROOM = -1
    BAD_META = -2

cdef uint64_t PRIME = 16777213
cdef uint64_t LOW = 0xFFFFFFFF


def entry_checks(entries, uint64_t first_seq, uint32_t[::1] checks):
    """The check value each entry should have, into `checks`."""
    cdef Py_ssize_t count = checks.shape[0]
    cdef Py_ssize_t row
    cdef Py_buffer view
    cdef const Entry *entry
    cdef uint64_t seq, total
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        if view.len != count * <Py_ssize_t>sizeof(Entry):
            raise ValueError("entries and checks are equally many")
        entry = <const Entry *>view.buf
        with nogil:
            for row in range(count):
                seq = first_seq + <uint64_t>row
                total = entry[row].offset * <uint64_t>0x9E3779
                total += entry[row].length * <uint64_t>0x6A09E7
                total += (entry[row].ts & LOW) * <uint64_t>0xBB67AF
                total += (entry[row].ts >> 32) * <uint64_t>0x3C6EF3
                total += (entry[row].flags_check & 0xFF) * <uint64_t>0xA54FF5
                total += (seq & LOW) * <uint64_t>0x510E53
                total += (seq >> 32) * <uint64_t>0x9B0569
                total += <uint64_t>0x1F83D9
                checks[row] = <uint32_t>(total % PRIME)
    finally:
        PyBuffer_Release(&view)


def frame_faults(
    buffer, entries, uint64_t first_seq, int64_t base, bint checksums, uint8_t[::1] faults
):
    """The fault of each entry's frame, into `faults`; how many are not sound."""
    cdef Py_ssize_t count = faults.shape[0]
    cdef Py_ssize_t row, found = 0
    cdef Py_buffer view, listed
    cdef const char *data
    cdef const Entry *entry
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(entries, &listed, PyBUF_SIMPLE)
        try:
            if listed.len != count * <Py_ssize_t>sizeof(Entry):
                raise ValueError("entries and faults are equally many")
            data = <const char *>view.buf
            entry = <const Entry *>listed.buf
            with nogil:
                for row in range(count):
                    faults[row] = _fault(
                        data, view.len, &entry[row], first_seq + <uint64_t>row, base, checksums
                    )
                    found += faults[row] != 0
        finally:
            PyBuffer_Release(&listed)
    finally:
        PyBuffer_Release(&view)
    return found


cdef uint8_t _fault(
    const char *data,
    int64_t length,
    const Entry *entry,
    uint64_t seq,
    int64_t base,
    bint checksums,
) noexcept nogil:
    cdef int64_t offset = <int64_t>entry.offset - base
    cdef int64_t size = entry.length
    cdef SegmentHead head
    cdef uint64_t checksum
    cdef uint8_t state, fault = 0
    cdef bint is_dead = (entry.flags_check & DELETED_FLAG) != 0
    if offset < 0 or size < FRAME_BYTES_MIN or offset + size > length:
        return OUTSIDE
    data += offset
    memcpy(&head, data, sizeof(SegmentHead))
    if <int64_t>head.frame_len != size - LENGTH_BYTES - STATE_BYTES:
        return WRONG_LENGTH
    if <int64_t>head.data_len + head.node_len + head.tag_len != size - FRAME_BYTES_MIN:
        return WRONG_LENGTH
    if head.seq != seq:
        return WRONG_SEQ
    if head.ts != entry.ts:
        return WRONG_TS
    if head.flags != (entry.flags_check & RECORD_FLAGS):
        return WRONG_FLAGS
    state = <uint8_t>data[size - STATE_BYTES]
    if state != LIVE and state != DELETED:
        fault = WRONG_STATE
    elif is_dead and state == LIVE:
        fault = NOT_DELETED
    elif not is_dead and state == DELETED:
        fault = DELETED_IN_DATA
    if checksums:
        size -= STATE_BYTES + CHECKSUM_BYTES
        memcpy(&checksum, data + size, CHECKSUM_BYTES)
        if XXH3_64bits(data + LENGTH_BYTES, size - LENGTH_BYTES) != checksum:
            return WRONG_CHECKSUM
    return fault


def numbers(buffer, const int64_t[::1] offsets, Py_ssize_t head_bytes, int64_t[::1] seqs,
            int64_t[::1] times):
    """The seqs and the times of the frames that begin at these offsets."""
    cdef Py_ssize_t count = offsets.shape[0]
    cdef Py_ssize_t row, bad = -1
    cdef Py_buffer view
    cdef Lengths end
    if seqs.shape[0] != count or times.shape[0] != count:
        raise ValueError("offsets, seqs and times are equally long")
    if head_bytes < <Py_ssize_t>sizeof(Lengths):
        raise ValueError("a head is longer")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            for row in range(count):
                if offsets[row] < 0 or offsets[row] > view.len - head_bytes:
                    bad = row
                    break
                memcpy(&end, <const char *>view.buf + offsets[row] + head_bytes - sizeof(Lengths),
                       sizeof(Lengths))
                seqs[row] = <int64_t>end.seq
                times[row] = <int64_t>end.ts
        if bad >= 0:
            raise ValueError(f"no frame at {offsets[bad]} in {view.len} bytes")
    finally:
        PyBuffer_Release(&view)


cdef int64_t _place(
    const char *data,
    int64_t length,
    int64_t offset,
    int64_t head_bytes,
    int64_t flags_at,
    int part,
    int64_t *start,
) noexcept nogil:
    """How long a part of a frame is and where it begins; -1 or -2 when the frame is none.

    A part the frame does not have is reported by `start` being -1.
    """
    cdef Lengths end
    cdef uint32_t meta_len = 0
    cdef uint8_t flags
    cdef int64_t at, data_len
    if offset < 0 or offset > length - head_bytes:
        return NO_ROOM
    flags = <uint8_t>data[offset + flags_at]
    memcpy(&end, data + offset + head_bytes - sizeof(Lengths), sizeof(Lengths))
    at = offset + head_bytes
    data_len = end.data_len
    if at + end.node_len + end.tag_len + data_len > length:
        return NO_ROOM
    if part == NODE:
        start[0] = at if flags & HAS_NODE else -1
        return end.node_len if flags & HAS_NODE else 0
    at += end.node_len
    if part == TAG:
        start[0] = at if flags & HAS_TAG else -1
        return end.tag_len if flags & HAS_TAG else 0
    at += end.tag_len
    if flags & HAS_META:
        if data_len < META_LENGTH_BYTES:
            return BAD_META
        data_len -= META_LENGTH_BYTES
        memcpy(&meta_len, data + at + data_len, META_LENGTH_BYTES)
        if meta_len > data_len:
            return BAD_META
        data_len -= meta_len
    if part == DATA:
        start[0] = at
        return data_len
    start[0] = at + data_len if flags & HAS_META else -1
    return meta_len


def measure(
    buffer,
    const int64_t[::1] offsets,
    Py_ssize_t head_bytes,
    Py_ssize_t flags_at,
    int part,
    int32_t[::1] borders,
    uint8_t[::1] valid,
):
    """Where the part of each frame ends in one column, and a bit for each frame that has it.

    Returns how many have it, and the first frame that is none, or -1: (count, row, is its meta).
    """
    cdef Py_ssize_t count = offsets.shape[0]
    cdef Py_ssize_t row, bad = -1, have = 0
    cdef int64_t size = 0, start = 0, total = 0
    cdef Py_buffer view
    if borders.shape[0] != count + 1 or valid.shape[0] * 8 < count:
        raise ValueError("there is a border more than offsets, and a bit for each")
    if head_bytes < <Py_ssize_t>sizeof(Lengths) or not 0 <= flags_at < head_bytes:
        raise ValueError("a head is longer")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            borders[0] = 0
            for row in range(valid.shape[0]):
                valid[row] = 0
            for row in range(count):
                size = _place(<const char *>view.buf, view.len, offsets[row], head_bytes,
                              flags_at, part, &start)
                if size < 0 or total + size > INT32_MAX:
                    bad = row
                    break
                total += size
                borders[row + 1] = <int32_t>total
                if start >= 0:
                    have += 1
                    valid[row >> 3] |= <uint8_t>(1 << (row & 7))
    finally:
        PyBuffer_Release(&view)
    return have, bad, size == BAD_META


def copy(
    buffer,
    const int64_t[::1] offsets,
    Py_ssize_t head_bytes,
    Py_ssize_t flags_at,
    int part,
    const int32_t[::1] borders,
    uint8_t[::1] values,
):
    """The part of each frame to between its borders; true when every byte of it is ASCII."""
    cdef Py_ssize_t count = offsets.shape[0]
    cdef Py_ssize_t row, at, bad = -1
    cdef int64_t size, start = 0
    cdef uint8_t seen = 0
    cdef Py_buffer view
    cdef uint8_t *target
    if borders.shape[0] != count + 1:
        raise ValueError("there is a border more than offsets")
    if head_bytes < <Py_ssize_t>sizeof(Lengths) or not 0 <= flags_at < head_bytes:
        raise ValueError("a head is longer")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            for row in range(count):
                size = _place(<const char *>view.buf, view.len, offsets[row], head_bytes,
                              flags_at, part, &start)
                # Measured before; but a file that is mapped is its owner's, who may write to it.
                if (size < 0 or size != <int64_t>borders[row + 1] - borders[row]
                        or borders[row] < 0 or borders[row + 1] > values.shape[0]):
                    bad = row
                    break
                if size == 0:
                    continue
                target = &values[borders[row]]
                memcpy(target, <const char *>view.buf + start, size)
                for at in range(size):
                    seen |= target[at]
        if bad >= 0:
            raise ValueError(f"the frame at {offsets[bad]} is not what it was")
    finally:
        PyBuffer_Release(&view)
    return seen < 0x80
