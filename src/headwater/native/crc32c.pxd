# CRC32C by the processor's own instruction, where it has one.

from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    static int has_crc32c(void) { __builtin_cpu_init(); return __builtin_cpu_supports("sse4.2"); }

    __attribute__((target("sse4.2")))
    static uint32_t crc32c_of(const uint8_t *at, size_t size)
    {
        uint64_t crc = 0xFFFFFFFFu, word;
        for (; size >= 8; at += 8, size -= 8) {
            __builtin_memcpy(&word, at, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        for (; size; at++, size--)
            crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
        return ~(uint32_t)crc;
    }
    #else
    static int has_crc32c(void) { return 0; }
    static uint32_t crc32c_of(const uint8_t *at, size_t size) { return 0; }
    #endif
    """
    int has_crc32c() nogil
    uint32_t crc32c_of(const uint8_t *, size_t) nogil
