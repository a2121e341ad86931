"""Whether a JSON text has a number that may be too large, in one pass over its bytes.

The twin is in `headwater.format.kafka.mapping`.
"""

from libc.string cimport memchr


cdef enum:
    DIGITS_MAX = 199
    EXPONENT_DIGITS_MAX = 2


def may_be_large(bytes text, /):
    """Of bytes that are JSON: False when every number outside its strings surely has room."""
    cdef const unsigned char *at = text
    cdef const unsigned char *end = at + len(text)
    cdef bint large
    with nogil:
        large = _may_be_large(at, end)
    return large


cdef bint _may_be_large(const unsigned char *at, const unsigned char *end) noexcept nogil:
    cdef const unsigned char *begin
    while at < end:
        if at[0] == b'"':
            at = _behind(at + 1, end)
        elif _is_digit(at[0]):
            begin = at
            while at < end and _is_digit(at[0]):
                at += 1
            if at - begin > DIGITS_MAX:
                return True
        elif at[0] == b"e" or at[0] == b"E":  # those of true and false too: no digit follows
            at += 1
            if at < end and at[0] == b"+":
                at += 1
            begin = at
            while at < end and _is_digit(at[0]):
                at += 1
            if at - begin > EXPONENT_DIGITS_MAX:
                return True
        else:
            at += 1
    return False


cdef inline bint _is_digit(unsigned char letter) noexcept nogil:
    return b"0" <= letter <= b"9"


cdef const unsigned char *_behind(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    """Behind the quote that ends a string, which has no backslash, or an even number, before it."""
    cdef const unsigned char *begin = at
    cdef const unsigned char *before
    while at < end:
        at = <const unsigned char *>memchr(at, b'"', end - at)
        if at == NULL:
            return end
        before = at
        while before > begin and before[-1] == b"\\":
            before -= 1
        at += 1
        if (at - 1 - before) % 2 == 0:
            return at
    return end
