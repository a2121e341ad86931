# The bytes that several loops read. What the fields mean is said in headwater.format.segment.

from libc.stdint cimport uint32_t, uint64_t

cdef packed struct Entry:
    uint32_t offset
    uint32_t length
    uint64_t ts
    uint32_t flags_check
