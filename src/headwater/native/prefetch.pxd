# Bytes that will be read soon are prefetched: what is read from a map is in no cache yet.

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define HEADWATER_FETCH(at) __builtin_prefetch(at)
    #else
    #define HEADWATER_FETCH(at) ((void)0)
    #endif
    """
    void HEADWATER_FETCH(const void *at) noexcept nogil
