# XXH3-64 with seed 0, inlined from the header that Arrow ships.

cdef extern from *:
    """
    #define XXH_INLINE_ALL
    #include "arrow/vendored/xxhash/xxhash.h"
    """
    unsigned long long XXH3_64bits(const void *data, size_t length) nogil
