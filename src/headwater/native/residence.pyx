"""Whether a mapped stretch of a file is in memory, asked of the operating system in one call.

The twin is in `headwater.disk.residence`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uintptr_t


cdef extern from "<sys/mman.h>":
    int mincore(void *address, size_t length, unsigned char *pages) nogil


cdef enum:
    PAGES_MAX = 1024
    IN_MEMORY = 1


def is_resident(buffer, Py_ssize_t page_bytes):
    """True when every page of it was in memory a moment ago; None when it has too many pages."""
    cdef Py_buffer view
    cdef unsigned char pages[PAGES_MAX]
    cdef uintptr_t begin
    cdef Py_ssize_t length, count, page
    cdef bint resident = True
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        begin = <uintptr_t>view.buf - <uintptr_t>view.buf % page_bytes
        length = view.len + (<uintptr_t>view.buf - begin)
        count = (length + page_bytes - 1) // page_bytes
        if count > PAGES_MAX:
            return None
        with nogil:
            if mincore(<void *>begin, length, pages) != 0:
                resident = False
            else:
                for page in range(count):
                    if not pages[page] & IN_MEMORY:
                        resident = False
                        break
        return resident
    finally:
        PyBuffer_Release(&view)
