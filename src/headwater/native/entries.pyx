# cython: boundscheck=False, wraparound=False, cdivision=True
"""Index entries of 20 bytes: which to read, where their frames lie, and whether those are sound.

The twins are in `headwater.format.segment.frame`, `headwater.model.selection`,
`headwater.store.pair` and `headwater.format.segment.verify`, which say what is meant. All loops run
without the interpreter. Frames are taken for hostile: every length is compared with the buffer
before anything is read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headwater.native.layouts cimport Entry
from headwater.native.xxh3 cimport XXH3_64bits


cdef packed struct SegmentHead:
    uint32_t frame_len
    uint8_t flags
    uint64_t seq
    uint64_t ts
    uint16_t node_len
    uint16_t tag_len
    uint32_t data_len


cdef enum:
    FLAGS_MASK = 0xFF
    RECORD_FLAGS = 0x0F
    DAMAGED_FLAG = 0x40
    DELETED_FLAG = 0x80
    LIVE_STATE = 0x00
    DELETED_STATE = 0xD5
    LENGTH_BYTES = 4
    CHECKSUM_BYTES = 8
    STATE_BYTES = 1
    FRAME_BYTES_MIN = 38

    NONE = 0
    OUTSIDE = 1
    LENGTH = 2
    SEQ = 3
    TS = 4
    FLAGS = 5
    CHECKSUM = 6
    STATE = 7
    DELETED = 8
    NOT_DELETED = 9


cdef uint64_t PRIME = 16777213
cdef uint64_t LOW = 0xFFFFFFFF


def pick_live(
    entries,
    int64_t first_seq,
    int64_t bytes_max,
    uint32_t dead,
    int64_t overhead,
    int64_t[::1] seqs,
):
    """Live seqs into `seqs`, as many as fit in there and into so many bytes, but at least one.

    Gives how many, and the last seq that was read. `entries` are those from `first_seq` on.
    """
    cdef Py_buffer view
    cdef const Entry *slots
    cdef Py_ssize_t count, row
    cdef Py_ssize_t picked = 0
    cdef Py_ssize_t most = seqs.shape[0]
    cdef int64_t payload = 0
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        slots = <const Entry *>view.buf
        count = view.len // <Py_ssize_t>sizeof(Entry)
        with nogil:
            row = 0
            while row < count and picked < most:
                if not slots[row].flags_check & dead:
                    payload += <int64_t>slots[row].length - overhead
                    if payload > bytes_max and picked:
                        break
                    seqs[picked] = first_seq + row
                    picked += 1
                row += 1
        return picked, first_seq + row - 1
    finally:
        PyBuffer_Release(&view)


def readable_span(entries):
    """Where the first frame of these begins and the last one ends, damaged ones left out."""
    cdef Py_buffer view
    cdef const Entry *slots
    cdef Py_ssize_t count, row
    cdef int64_t begin = -1
    cdef int64_t end = 0
    cdef int64_t behind
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        slots = <const Entry *>view.buf
        count = view.len // <Py_ssize_t>sizeof(Entry)
        with nogil:
            for row in range(count):
                if slots[row].flags_check & DAMAGED_FLAG:
                    continue
                if begin < 0 or slots[row].offset < begin:
                    begin = slots[row].offset
                behind = <int64_t>slots[row].offset + slots[row].length
                if behind > end:
                    end = behind
        if begin < 0:
            return 0, 0
        return begin, end
    finally:
        PyBuffer_Release(&view)


def entry_checks(entries, uint64_t first_seq, uint32_t[::1] checks):
    """The check value each entry should have, into `checks`."""
    cdef Py_ssize_t count = checks.shape[0]
    cdef Py_ssize_t row
    cdef Py_buffer view
    cdef const Entry *slots
    cdef uint64_t seq, total
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        if view.len != count * <Py_ssize_t>sizeof(Entry):
            raise ValueError("there is a check for each of the entries")
        slots = <const Entry *>view.buf
        with nogil:
            for row in range(count):
                seq = first_seq + <uint64_t>row
                total = slots[row].offset * <uint64_t>0x9E3779
                total += slots[row].length * <uint64_t>0x6A09E7
                total += (slots[row].ts & LOW) * <uint64_t>0xBB67AF
                total += (slots[row].ts >> 32) * <uint64_t>0x3C6EF3
                total += (slots[row].flags_check & FLAGS_MASK) * <uint64_t>0xA54FF5
                total += (seq & LOW) * <uint64_t>0x510E53
                total += (seq >> 32) * <uint64_t>0x9B0569
                total += <uint64_t>0x1F83D9
                checks[row] = <uint32_t>(total % PRIME)
    finally:
        PyBuffer_Release(&view)


def frame_faults(
    buffer, entries, uint64_t first_seq, int64_t base, bint checksums, uint8_t[::1] faults
):
    """Why each entry's frame is not what the entry says, into `faults`; 0 where it is."""
    cdef Py_buffer view, slots_view
    cdef Py_ssize_t count = faults.shape[0]
    cdef Py_ssize_t row
    cdef const Entry *slots
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(entries, &slots_view, PyBUF_SIMPLE)
        try:
            if slots_view.len != count * <Py_ssize_t>sizeof(Entry):
                raise ValueError("there is a fault for each of the entries")
            slots = <const Entry *>slots_view.buf
            with nogil:
                for row in range(count):
                    faults[row] = _fault(
                        <const uint8_t *>view.buf, view.len, &slots[row], first_seq + row, base,
                        checksums,
                    )
        finally:
            PyBuffer_Release(&slots_view)
    finally:
        PyBuffer_Release(&view)


cdef inline uint8_t _fault(
    const uint8_t *buffer,
    Py_ssize_t length,
    const Entry *entry,
    uint64_t seq,
    int64_t base,
    bint checksums,
) noexcept nogil:
    """The first fault in the order of the enum."""
    cdef int64_t offset = <int64_t>entry.offset - base
    cdef int64_t size = entry.length
    cdef int64_t border
    cdef const uint8_t *at
    cdef SegmentHead head
    cdef uint64_t checksum
    cdef uint8_t state
    if offset < 0 or size < FRAME_BYTES_MIN or offset > length - size:
        return OUTSIDE
    at = buffer + offset
    memcpy(&head, at, sizeof(SegmentHead))
    if head.frame_len != size - (LENGTH_BYTES + STATE_BYTES):
        return LENGTH
    if <int64_t>head.data_len + head.node_len + head.tag_len != size - FRAME_BYTES_MIN:
        return LENGTH
    if head.seq != seq:
        return SEQ
    if head.ts != entry.ts:
        return TS
    if head.flags != (entry.flags_check & RECORD_FLAGS):
        return FLAGS
    if checksums:
        border = size - STATE_BYTES - CHECKSUM_BYTES
        memcpy(&checksum, at + border, CHECKSUM_BYTES)
        if XXH3_64bits(at + LENGTH_BYTES, border - LENGTH_BYTES) != checksum:
            return CHECKSUM
    state = at[size - STATE_BYTES]
    if state != LIVE_STATE and state != DELETED_STATE:
        return STATE
    if entry.flags_check & DELETED_FLAG:
        return NOT_DELETED if state == LIVE_STATE else NONE
    return DELETED if state == DELETED_STATE else NONE
