# cython: cdivision=True
"""When a group waits for company, for the thread that holds no interpreter.

The twins are `ReturnMeter` and `CommitWindow` of `headwater.wal.policy`, which say why.
"""

cimport cython
from libc.stdint cimport int64_t


cdef double smoothed(double before, double value) noexcept nogil:
    return before + (value - before) / 4 if before else value


@cython.final
cdef class ReturnMeter:
    """The twin of `headwater.wal.policy.ReturnMeter`."""

    def __cinit__(self):
        self.number = 1

    cpdef void answered(self, int64_t writers, int64_t arrived, int64_t at_us) noexcept nogil:
        if not self.due:
            self.number, self.since_us = writers, at_us
            self.due = arrived + writers

    cpdef void returned(self, int64_t at_us) noexcept nogil:
        self.due = 0
        self.return_us = smoothed(self.return_us, <double>(at_us - self.since_us) / self.number)


@cython.final
cdef class CommitWindow:
    """The twin of `headwater.wal.policy.CommitWindow` that overlaps with the submitters."""

    def __init__(self, int64_t us_min, int64_t us_max):
        self.us_min, self.us_max = us_min, us_max
        self.returns = ReturnMeter()
        self.expected = 1

    def set_pressure(self, double pressure):
        self.pressure = min(max(pressure, 0.0), 1.0)

    cpdef int64_t wait_us(self, int64_t waiting) noexcept nogil:
        cdef int64_t relaxed
        if waiting >= self.expected or self.expected == 1:
            return 0
        relaxed = self.relaxed_us(waiting)
        return relaxed + <int64_t>((self.us_max - relaxed) * self.pressure + 0.5)

    cpdef int64_t relaxed_us(self, int64_t waiting) noexcept nogil:
        cdef double back_us = (self.expected - waiting) * self.returns.return_us
        if back_us > self.sync_us:
            return 0
        return min(max(<int64_t>(max(self.sync_us, 2 * back_us) + 0.5), self.us_min), self.us_max)

    cpdef void observe(self, int64_t writers, int64_t sync_us) noexcept nogil:
        self.expected = writers
        self.sync_us = smoothed(self.sync_us, <double>sync_us)

    cpdef void only(self, int64_t writers) noexcept nogil:
        self.expected = max(writers, 1)
