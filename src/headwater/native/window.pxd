# What the writer asks of its window, without the interpreter.

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class ReturnMeter:
    cdef public double return_us
    cdef public int64_t due
    cdef int64_t number, since_us
    cpdef void answered(self, int64_t writers, int64_t arrived, int64_t at_us) noexcept nogil
    cpdef void returned(self, int64_t at_us) noexcept nogil


@cython.final
cdef class CommitWindow:
    cdef readonly ReturnMeter returns
    cdef public int64_t expected
    cdef int64_t us_min, us_max
    cdef double pressure, sync_us
    cpdef int64_t wait_us(self, int64_t waiting) noexcept nogil
    cpdef int64_t relaxed_us(self, int64_t waiting) noexcept nogil
    cpdef void observe(self, int64_t writers, int64_t sync_us) noexcept nogil
    cpdef void only(self, int64_t writers) noexcept nogil
