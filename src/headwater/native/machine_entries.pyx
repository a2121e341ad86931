# cython: boundscheck=False, wraparound=False, cdivision=True
"""Entries of the machines' log: which of them are sound and follow each other, and what is in them.

The twin is in `headwater.format.machines.entry`, which says what is meant. Entries are taken for
hostile: every length is compared with the buffer before anything is read.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headwater.native.crc32c cimport crc32c_of, has_crc32c


cdef bint CRC_HERE = has_crc32c()


cdef enum:
    MAGIC = 0x574C4F47
    HEADER_CHECK = 0x01
    MORE = 0x02
    KNOWN_FLAGS = 0x03
    CHECK_BYTES = 4
    PAYLOAD_BYTES_MAX = 16 * 1024 * 1024
    KINDS = 6


cdef packed struct Head:
    uint32_t magic
    uint8_t kind
    uint8_t flags
    uint8_t reserved[2]
    uint32_t length
    uint32_t checksum
    uint64_t sequence


cdef extern from *:
    """
    #if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define HEADWATER_BIG32(value) __builtin_bswap32(value)
    #define HEADWATER_BIG64(value) __builtin_bswap64(value)
    #else
    #define HEADWATER_BIG32(value) (value)
    #define HEADWATER_BIG64(value) (value)
    #endif
    """
    uint32_t HEADWATER_BIG32(uint32_t) nogil
    uint64_t HEADWATER_BIG64(uint64_t) nogil


cdef Py_ssize_t size_of(const uint8_t *data, Py_ssize_t room, Head *head) noexcept nogil:
    """Bytes of the sound entry that begins here, its fields in `head`; 0 when there is none."""
    cdef Py_ssize_t border
    cdef uint32_t check
    if room < <Py_ssize_t>sizeof(Head):
        return 0
    memcpy(head, data, sizeof(Head))
    if HEADWATER_BIG32(head.magic) != MAGIC:
        return 0
    head.length = HEADWATER_BIG32(head.length)
    if head.length > PAYLOAD_BYTES_MAX:
        return 0
    border = <Py_ssize_t>sizeof(Head) + head.length
    if head.flags & HEADER_CHECK:
        if border + CHECK_BYTES > room:
            return 0
        memcpy(&check, data + border, CHECK_BYTES)
        if HEADWATER_BIG32(check) != crc32c_of(data, sizeof(Head)):
            return 0
    elif border > room:
        return 0
    if head.kind < 1 or head.kind > KINDS or head.flags & ~KNOWN_FLAGS:
        return 0
    if head.reserved[0] or head.reserved[1]:
        return 0
    if HEADWATER_BIG32(head.checksum) != crc32c_of(data + sizeof(Head), head.length):
        return 0
    head.sequence = HEADWATER_BIG64(head.sequence)
    return border + CHECK_BYTES if head.flags & HEADER_CHECK else border


def read_run(buffer, Py_ssize_t at, Py_ssize_t limit, tuple kinds):
    """Entries from `at` on that follow each other by number, so many at most.

    Gives the number of the first, how many of them are whole batches, where the last one ends, and
    for each its kind, where it is, and its payload. `kinds` are those there are, in their order.
    None where the processor has no CRC32C.
    """
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef Head head
    cdef Py_ssize_t size, count = 0, whole = 0
    cdef uint64_t first = 0, expected
    cdef list found = [], offsets = [], payloads = []
    if not CRC_HERE or len(kinds) != KINDS:
        return None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>view.buf
        while count < limit:
            size = size_of(data + at, view.len - at, &head)
            if size == 0:
                break
            if count == 0:
                first = head.sequence
            else:
                expected = first + <uint64_t>count
                if head.sequence != expected or expected < first:
                    break
            found.append(kinds[head.kind - 1])
            offsets.append(at)
            payloads.append(
                PyBytes_FromStringAndSize(<const char *>data + at + sizeof(Head), head.length)
            )
            count += 1
            if not head.flags & MORE:
                whole = count
            at += size
        return first, whole, at, found, offsets, payloads
    finally:
        PyBuffer_Release(&view)
