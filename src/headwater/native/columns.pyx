# cython: boundscheck=False, wraparound=False, cdivision=True
"""Parts of many frames put one behind the other, as columns want them, without the interpreter.

The twins are in `headwater.format.segment.run` (`heads_at`) and `headwater.wire.frame_rows`
(`spans`). Nothing is read that is not inside of the buffer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from headwater.native.prefetch cimport HEADWATER_FETCH


cdef enum:
    FETCHED_AHEAD = 12  # frames: what is read from a map is in no cache yet, and comes slowly
    FETCHED_LINES = 4
    LINE_BYTES = 64


def gather_heads(buffer, const int64_t[::1] offsets, Py_ssize_t size, heads):
    """So many bytes from each of these offsets on, one behind the other into `heads`."""
    cdef Py_buffer view, target
    cdef Py_ssize_t count = offsets.shape[0]
    cdef Py_ssize_t row
    cdef const uint8_t *source
    cdef uint8_t *to
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(heads, &target, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            if size < 0 or target.len != count * size:
                raise ValueError("there is room for each of the heads")
            for row in range(count):
                if offsets[row] < 0 or offsets[row] > view.len - size:
                    raise IndexError(f"no head at {offsets[row]} of {view.len} bytes")
            source, to = <const uint8_t *>view.buf, <uint8_t *>target.buf
            with nogil:
                for row in range(count):
                    if row + FETCHED_AHEAD < count:
                        _fetch(source, view.len, offsets[row + FETCHED_AHEAD])
                    memcpy(to + row * size, source + offsets[row], size)
        finally:
            PyBuffer_Release(&target)
    finally:
        PyBuffer_Release(&view)


def gather_parts(
    buffer,
    const int64_t[::1] starts,
    const int64_t[::1] ends,
    const uint8_t[::1] has,
    int32_t[::1] borders,
):
    """The bytes from each start to its end, one behind the other, and whether all are ASCII.

    Where `has` is 0 there is nothing; without it there is always something. Where each begins and
    the last one ends goes into `borders`. None when there are more bytes than those can tell of.
    """
    cdef Py_buffer view
    cdef Py_ssize_t count = starts.shape[0]
    cdef Py_ssize_t row
    cdef int64_t total = 0
    cdef bint has_flags = has is not None
    cdef bytes values
    cdef uint64_t high = 0
    cdef const uint8_t *source
    cdef uint8_t *to
    if ends.shape[0] != count or borders.shape[0] != count + 1:
        raise ValueError("there is an end for each start, and one border more")
    if has_flags and has.shape[0] != count:
        raise ValueError("there is a flag for each start")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        for row in range(count):
            if has_flags and not has[row]:
                continue
            if starts[row] < 0 or ends[row] < starts[row] or ends[row] > view.len:
                raise ValueError(f"no bytes {starts[row]} to {ends[row]} in {view.len}")
            total += ends[row] - starts[row]
        if total > INT32_MAX:
            return None
        values = PyBytes_FromStringAndSize(NULL, total)
        source, to = <const uint8_t *>view.buf, <uint8_t *>PyBytes_AS_STRING(values)
        with nogil:
            total = 0
            for row in range(count):
                borders[row] = <int32_t>total
                if has_flags and not has[row]:
                    continue
                if row + FETCHED_AHEAD < count:
                    _fetch(source, view.len, starts[row + FETCHED_AHEAD])
                memcpy(to + total, source + starts[row], ends[row] - starts[row])
                high |= _high_bits(to + total, ends[row] - starts[row])
                total += ends[row] - starts[row]
            borders[count] = <int32_t>total
        return values, not high
    finally:
        PyBuffer_Release(&view)


cdef inline void _fetch(const uint8_t *source, Py_ssize_t length, int64_t offset) noexcept nogil:
    """Let the first lines of a frame come nearer, while others are read."""
    cdef Py_ssize_t line
    if 0 <= offset <= length - FETCHED_LINES * LINE_BYTES:
        for line in range(FETCHED_LINES):
            HEADWATER_FETCH(source + offset + line * LINE_BYTES)


cdef inline uint64_t _high_bits(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    """Not 0 when one of these bytes is not ASCII."""
    cdef uint64_t high_bits = 0
    cdef uint64_t word
    cdef Py_ssize_t row = 0
    while row + 8 <= length:
        memcpy(&word, at + row, 8)
        high_bits |= word
        row += 8
    while row < length:
        high_bits |= at[row]
        row += 1
    return high_bits & 0x8080808080808080ULL
