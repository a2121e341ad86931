# cython: boundscheck=False, wraparound=False, cdivision=True
"""The bodies of writes whose records are a payload, maybe a tag, and nothing else, read together.

The twin is the decoder of requests with `headwater.server.http.write_handler.encode_request`, which
decide what is right: what is taken here is what they take, with the same bytes. This one is
stricter. A body that has anything unusual about it is not refused but left to the twin.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_CheckExact,
    PyByteArray_GET_SIZE,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Behind the bytes that stand for themselves in a string, eight at a time; maybe not all. A
       byte below 32, a quote or a backslash sets the high bit of its place, and of places behind
       it at most: the lowest one is right. */
    static inline const unsigned char *plain_end(const unsigned char *at, const unsigned char *end) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const uint64_t ones = 0x0101010101010101ULL;
        while (end - at >= 8) {
            uint64_t word, quote, backslash, found;
            memcpy(&word, at, 8);
            quote = word ^ (ones * 0x22);
            backslash = word ^ (ones * 0x5c);
            found = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)
                | ((word - ones * 32) & ~word);
            found &= ones << 7;
            if (found)
                return at + (__builtin_ctzll(found) >> 3);
            at += 8;
        }
    #endif
        return at;
    }
    """
    const unsigned char *plain_end(
        const unsigned char *at, const unsigned char *end
    ) noexcept nogil


cdef enum:
    DEPTH_MAX = 48
    NUMBER_BYTES_MAX = 18  # longer ones are the decoder's matter


cdef inline const unsigned char *_skip_space(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    while at < end and (at[0] == 32 or at[0] == 10 or at[0] == 13 or at[0] == 9):
        at += 1
    return at


cdef inline const unsigned char *_expect(
    const unsigned char *at, const unsigned char *end, unsigned char wanted
) noexcept nogil:
    """Behind this character and the space around it; NULL when it is not there."""
    at = _skip_space(at, end)
    if at >= end or at[0] != wanted:
        return NULL
    return _skip_space(at + 1, end)


cdef inline bint _is_digit(unsigned char character) noexcept nogil:
    return 48 <= character <= 57


cdef inline bint _is_hexadecimal(unsigned char character) noexcept nogil:
    return _is_digit(character) or 65 <= character <= 70 or 97 <= character <= 102


cdef const unsigned char *_string(
    const unsigned char *at, const unsigned char *end, bint *is_plain
) noexcept nogil:
    """Behind a string whose opening quote is at `at`; NULL when it is not sure to be one."""
    cdef unsigned char character
    is_plain[0] = True
    at += 1
    while True:
        at = plain_end(at, end)
        if at >= end:
            return NULL
        character = at[0]
        if character == 34:
            return at + 1
        if character < 32:
            return NULL
        at += 1
        if character != 92:
            continue
        is_plain[0] = False
        if at >= end:
            return NULL
        character = at[0]
        at += 1
        if character == 117:  # u
            if end - at < 4 or not (
                _is_hexadecimal(at[0]) and _is_hexadecimal(at[1])
                and _is_hexadecimal(at[2]) and _is_hexadecimal(at[3])
            ):
                return NULL
            if at[0] == 100 or at[0] == 68:  # half of a pair, maybe without the other half
                return NULL
            at += 4
        elif not (
            character == 34 or character == 92 or character == 47 or character == 98
            or character == 102 or character == 110 or character == 114 or character == 116
        ):
            return NULL


cdef const unsigned char *_number(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    cdef const unsigned char *began = at
    if at[0] == 45:  # -
        at += 1
    if at >= end or not _is_digit(at[0]):
        return NULL
    if at[0] == 48 and at + 1 < end and _is_digit(at[1]):
        return NULL
    while at < end and _is_digit(at[0]):
        at += 1
    if at < end and at[0] == 46:  # .
        at += 1
        if at >= end or not _is_digit(at[0]):
            return NULL
        while at < end and _is_digit(at[0]):
            at += 1
    if at < end and (at[0] == 101 or at[0] == 69):
        return NULL  # how large an exponent may be is the decoder's matter
    return NULL if at - began > NUMBER_BYTES_MAX else at


cdef inline const unsigned char *_word(
    const unsigned char *at, const unsigned char *end, const char *word, Py_ssize_t size
) noexcept nogil:
    if end - at < size or memcmp(at, word, size) != 0:
        return NULL
    return at + size


cdef const unsigned char *_scalar(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    cdef bint is_plain
    if at[0] == 34:
        return _string(at, end, &is_plain)
    if at[0] == 45 or _is_digit(at[0]):
        return _number(at, end)
    if at[0] == 116:
        return _word(at, end, b"true", 4)
    if at[0] == 102:
        return _word(at, end, b"false", 5)
    if at[0] == 110:
        return _word(at, end, b"null", 4)
    return NULL


cdef const unsigned char *_name(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    """Behind the name of a member and its colon, where its value begins."""
    cdef bint is_plain
    if at >= end or at[0] != 34:
        return NULL
    at = _string(at, end, &is_plain)
    return NULL if at == NULL else _expect(at, end, 58)


cdef const unsigned char *_value(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    """Behind any value of JSON that begins at `at`; NULL when it is not sure to be one."""
    cdef unsigned char closes[DEPTH_MAX]
    cdef int depth = 0
    while True:
        if at >= end:
            return NULL
        if at[0] == 123 or at[0] == 91:  # { or [, whose closing characters are two further
            if depth == DEPTH_MAX:
                return NULL
            closes[depth] = at[0] + 2
            depth += 1
            at = _skip_space(at + 1, end)
            if at >= end:
                return NULL
            if at[0] != closes[depth - 1]:
                if closes[depth - 1] == 125:
                    at = _name(at, end)
                    if at == NULL:
                        return NULL
                continue
        else:
            at = _scalar(at, end)
            if at == NULL or depth == 0:
                return at
            at = _skip_space(at, end)
        # Behind a value, or in front of the end of something empty.
        while True:
            if at >= end:
                return NULL
            if at[0] == 44:  # another one follows
                at = _skip_space(at + 1, end)
                if closes[depth - 1] == 125:
                    at = _name(at, end)
                    if at == NULL:
                        return NULL
                break
            if at[0] != closes[depth - 1]:
                return NULL
            at += 1
            depth -= 1
            if depth == 0:
                return at
            at = _skip_space(at, end)


cdef struct Limits:
    Py_ssize_t records
    Py_ssize_t data_bytes
    Py_ssize_t tag_bytes


cdef struct Fields:
    const unsigned char *data
    const unsigned char *data_end
    const unsigned char *tag
    const unsigned char *tag_end


cdef const unsigned char *_field(
    const unsigned char *at, const unsigned char *end, Fields *fields
) noexcept nogil:
    """Behind `"data": ...` or `"tag": "..."`, each at most once."""
    cdef bint is_plain
    cdef bint is_tag
    cdef const unsigned char *after = _word(at, end, b'"data"', 6)
    is_tag = after == NULL
    if is_tag:
        after = _word(at, end, b'"tag"', 5)
    if after == NULL:
        return NULL
    at = _expect(after, end, 58)
    if at == NULL or at >= end:
        return NULL
    if not is_tag:
        if fields.data != NULL:
            return NULL
        fields.data = at
        fields.data_end = at = _value(at, end)
        return at
    if fields.tag != NULL or at[0] != 34:
        return NULL
    fields.tag = at + 1
    at = _string(at, end, &is_plain)
    if at == NULL or not is_plain:
        return NULL
    fields.tag_end = at - 1
    return at


cdef const unsigned char *_record(
    const unsigned char *at, const unsigned char *end, Fields *fields
) noexcept nogil:
    """Behind `{"data": ..., "tag": "..."}` and the space after it, with nothing else in it."""
    fields.data = fields.tag = fields.data_end = fields.tag_end = NULL
    at = _expect(at, end, 123)
    while at != NULL:
        at = _field(at, end, fields)
        if at == NULL:
            return NULL
        at = _skip_space(at, end)
        if at >= end or at[0] != 44:
            break
        at = _skip_space(at + 1, end)
    if at == NULL or fields.data == NULL:
        return NULL
    return _expect(at, end, 125)


cdef const unsigned char *_opening(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    """Behind `{"records": [`."""
    at = _expect(at, end, 123)
    if at == NULL:
        return NULL
    at = _word(at, end, b'"records"', 9)
    if at == NULL:
        return NULL
    at = _expect(at, end, 58)
    if at == NULL:
        return NULL
    return _expect(at, end, 91)


cdef inline bint _is_ascii(const unsigned char *text, Py_ssize_t size) noexcept nogil:
    cdef unsigned char seen = 0
    cdef Py_ssize_t at
    for at in range(size):
        seen |= text[at]
    return seen < 128


cdef bint _is_text(const unsigned char *text, Py_ssize_t size) except -1:
    if _is_ascii(text, size):
        return True
    try:
        PyUnicode_DecodeUTF8(<char *>text, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef Py_ssize_t _take(
    const unsigned char *at,
    const unsigned char *end,
    Limits *limits,
    list datas,
    list tags,
) except -1:
    """Append the records of one body; 0, and maybe some of them, when it is not sure to be one."""
    cdef Fields fields
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t tag_bytes
    at = _opening(at, end)
    while at != NULL:
        at = _record(at, end, &fields)
        if at == NULL or at >= end or count == limits.records:
            return 0
        if fields.data_end - fields.data > limits.data_bytes:
            return 0
        tag_bytes = fields.tag_end - fields.tag
        if fields.tag != NULL and (tag_bytes == 0 or tag_bytes > limits.tag_bytes):
            return 0  # a tag without bytes is a tag
        tags.append(
            b"" if fields.tag == NULL else PyBytes_FromStringAndSize(<char *>fields.tag, tag_bytes)
        )
        datas.append(
            PyBytes_FromStringAndSize(<char *>fields.data, fields.data_end - fields.data)
        )
        count += 1
        if at[0] != 44:
            break
        at = _skip_space(at + 1, end)
    if at == NULL:
        return 0
    at = _expect(at, end, 93)
    if at == NULL:
        return 0
    return count if _expect(at, end, 125) == end else 0


def plain_records(
    list bodies not None,
    Py_ssize_t records_max,
    Py_ssize_t data_bytes_max,
    Py_ssize_t tag_bytes_max,
):
    """The records of bodies that bring payloads, maybe tags, and nothing else: how many each body
    has, and the payloads and the tags of all, with no bytes for no tag. A body that is none such,
    or may not be, has 0."""
    cdef Py_ssize_t rows = len(bodies)
    cdef Py_ssize_t row, first, count, size
    cdef const unsigned char *text
    cdef Limits limits
    cdef list counts = [0] * rows
    cdef list datas = []
    cdef list tags = []
    limits.records = records_max
    limits.data_bytes = data_bytes_max
    limits.tag_bytes = tag_bytes_max
    for row in range(rows):
        body = bodies[row]
        if PyBytes_CheckExact(body):
            text = <const unsigned char *>PyBytes_AS_STRING(body)
            size = PyBytes_GET_SIZE(body)
        elif PyByteArray_CheckExact(body):
            text = <const unsigned char *>PyByteArray_AS_STRING(body)
            size = PyByteArray_GET_SIZE(body)
        else:
            continue
        if not _is_text(text, size):
            continue
        first = len(datas)
        count = _take(text, text + size, &limits, datas, tags)
        if count == 0:
            del datas[first:], tags[first:]
        counts[row] = count
    return counts, datas, tags
