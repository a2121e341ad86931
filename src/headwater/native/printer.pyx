# cython: boundscheck=False, wraparound=False, cdivision=True
"""Frames of the log and of segments as JSON objects, in one pass and without the interpreter.

The twin is in `headwater.wire.frames`, which says what is printed. Frames are taken for hostile:
every length is compared with the buffer before anything is read, and what is read may change
meanwhile (it is a mapped file), so the room in the answer is checked again while it is filled.
Whatever is not as it should be is left to the twin: the answer is None.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headwater.native.prefetch cimport HEADWATER_FETCH


cdef enum:
    HAS_TAG = 1
    HAS_NODE = 2
    HAS_META = 8
    META_LENGTH_BYTES = 4
    DIGITS_MAX = 20
    FETCHED_AHEAD = 12  # frames: what is read from a map is in no cache yet, and comes slowly
    LINE_BYTES = 64
    FETCHED_LINES = 4
    ESCAPE_SHORT = 1  # what a byte takes beside itself: \n
    ESCAPE_LONG = 5  # \u0001
    NOT_ASCII = 6
    # Up to here it takes longer to get the interpreter back, with another thread waiting for it,
    # than it takes to print. Not so for a map: a page of it may have to come from a disk.
    HELD_FRAMES_MAX = 256
    HELD_BYTES_MAX = 131072


cdef packed struct Fields:
    uint64_t seq
    uint64_t ts
    uint16_t node_len
    uint16_t tag_len
    uint32_t data_len


cdef struct Form:
    Py_ssize_t flags_at
    Py_ssize_t fields_at
    Py_ssize_t head_bytes
    bint data
    bint tags
    bint meta


cdef struct Part:
    const uint8_t *at
    Py_ssize_t length
    Py_ssize_t printed  # bytes of it as JSON, 0 when it is not told


cdef struct Record:
    uint64_t seq
    uint64_t ts
    Part node
    Part tag
    Part data
    Part meta
    Py_ssize_t printed  # bytes of all of them with their names, braces and `more` not counted


cdef struct Number:
    uint64_t value
    Py_ssize_t length
    char digits[DIGITS_MAX]


cdef uint8_t _beside[256]
cdef char _pairs[200]
cdef char _letters[256]


def _fill_tables():
    cdef int byte
    for byte in range(256):
        _beside[byte] = ESCAPE_LONG if byte < 0x20 else NOT_ASCII if byte >= 0x80 else 0
        _letters[byte] = 0
    for byte, letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\'):
        _beside[byte] = ESCAPE_SHORT
        _letters[byte] = letter
    for byte in range(100):
        _pairs[2 * byte] = 48 + byte // 10
        _pairs[2 * byte + 1] = 48 + byte % 10


_fill_tables()


def print_frames(
    buffer,
    const int64_t[::1] offsets,
    Py_ssize_t flags_at,
    Py_ssize_t fields_at,
    Py_ssize_t head_bytes,
    bint tags,
    bint meta,
    bint data,
    bytes more,
    dict special,
    int64_t[::1] ends=None,
):
    """The frames at these offsets as objects with commas between; where each ends, into `ends`.

    `more` is told of each behind its time, or for some seqs what `special` says of them.
    """
    cdef Form form
    cdef Py_buffer view
    form.flags_at, form.fields_at, form.head_bytes = flags_at, fields_at, head_bytes
    form.tags, form.meta, form.data = tags, meta, data
    if flags_at < 0 or fields_at < 0 or fields_at + <Py_ssize_t>sizeof(Fields) > head_bytes:
        raise ValueError("the fields are not in the head")
    if flags_at >= head_bytes:
        raise ValueError("the flags are not in the head")
    if ends is not None and ends.shape[0] != offsets.shape[0]:
        raise ValueError("there is an end for each of the offsets")
    if not offsets.shape[0]:
        return b""
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return _print_frames(&view, type(buffer) is bytes, offsets, &form, more, special or None, ends)
    finally:
        PyBuffer_Release(&view)


cdef bytes _print_frames(
    Py_buffer *view,
    bint in_memory,
    const int64_t[::1] offsets,
    Form *form,
    bytes more,
    dict special,
    int64_t[::1] ends,
):
    cdef const uint8_t *source = <const uint8_t *>view.buf
    cdef Py_ssize_t length = view.len
    cdef Py_ssize_t count = offsets.shape[0]
    cdef Py_ssize_t row, total
    cdef Py_ssize_t more_len = PyBytes_GET_SIZE(more)
    cdef const char *more_at = PyBytes_AS_STRING(more)
    cdef int64_t *ends_at = NULL if ends is None else &ends[0]
    cdef Record record
    cdef Number time
    cdef char *start
    cdef char *at
    cdef char *end
    cdef bytes extra, text
    if in_memory and count <= HELD_FRAMES_MAX:
        total = _measure(source, length, &offsets[0], count, form, more_len)
    else:
        with nogil:
            total = _measure(source, length, &offsets[0], count, form, more_len)
    if total < 0:
        return None
    if special is not None:
        for extra in special.values():
            total += PyBytes_GET_SIZE(extra)  # more than enough: not all need be among these
    text = PyBytes_FromStringAndSize(NULL, total)
    start = at = PyBytes_AS_STRING(text)
    end = start + total
    time.length = 0
    time.value = 0
    if special is None:
        if in_memory and total <= HELD_BYTES_MAX:
            at = _fill(
                source, length, &offsets[0], count, form, more_at, more_len, at, end, ends_at
            )
        else:
            with nogil:
                at = _fill(
                    source, length, &offsets[0], count, form, more_at, more_len, at, end, ends_at
                )
    else:
        for row in range(count):
            if not _read(source, length, offsets[row], form, &record):
                at = NULL
                break
            extra = special.get(record.seq, more)
            more_at, more_len = PyBytes_AS_STRING(extra), PyBytes_GET_SIZE(extra)
            at = _print(at, end, &record, &time, more_at, more_len, row + 1 < count)
            if at == NULL:
                break
            if ends_at != NULL:
                ends_at[row] = at - start - (row + 1 < count)
    if at == NULL:
        return None
    return text if at == end else text[: at - start]


cdef Py_ssize_t _measure(
    const uint8_t *source,
    Py_ssize_t length,
    const int64_t *offsets,
    Py_ssize_t count,
    Form *form,
    Py_ssize_t more_len,
) noexcept nogil:
    """Bytes of all of them with their commas; -1 when one is not a frame of ours."""
    cdef Py_ssize_t row, total = count - 1
    cdef Record record
    for row in range(count):
        if row + FETCHED_AHEAD < count:
            _fetch(source, length, offsets[row + FETCHED_AHEAD])
        if not _read(source, length, offsets[row], form, &record):
            return -1
        total += record.printed + more_len
    return total


cdef char *_fill(
    const uint8_t *source,
    Py_ssize_t length,
    const int64_t *offsets,
    Py_ssize_t count,
    Form *form,
    const char *more,
    Py_ssize_t more_len,
    char *at,
    char *end,
    int64_t *ends,
) noexcept nogil:
    """Behind all of them, or NULL when they are not what was measured."""
    cdef char *start = at
    cdef Py_ssize_t row
    cdef Record record
    cdef Number time
    time.length = 0
    time.value = 0
    for row in range(count):
        if not _read(source, length, offsets[row], form, &record):
            return NULL
        at = _print(at, end, &record, &time, more, more_len, row + 1 < count)
        if at == NULL:
            return NULL
        if ends != NULL:
            ends[row] = at - start - (row + 1 < count)
    return at


cdef inline void _fetch(const uint8_t *source, Py_ssize_t length, int64_t offset) noexcept nogil:
    """Let the first lines of a frame come nearer, while others are read."""
    cdef Py_ssize_t line
    if 0 <= offset <= length - FETCHED_LINES * LINE_BYTES:
        for line in range(FETCHED_LINES):
            HEADWATER_FETCH(source + offset + line * LINE_BYTES)


cdef inline bint _read(
    const uint8_t *source, Py_ssize_t length, int64_t offset, Form *form, Record *record
) noexcept nogil:
    """What is to be told of the frame that begins there; False when it is not a frame of ours."""
    cdef Fields fields
    cdef uint8_t flags
    cdef uint32_t meta_len
    cdef Py_ssize_t room
    cdef const uint8_t *at
    if offset < 0 or length < form.head_bytes or offset > length - form.head_bytes:
        return False
    at = source + offset
    flags = at[form.flags_at]
    memcpy(&fields, at + form.fields_at, sizeof(Fields))
    room = length - offset - form.head_bytes
    if <int64_t>fields.node_len + fields.tag_len + fields.data_len > room:
        return False
    record.seq, record.ts = fields.seq, fields.ts
    record.printed = 16 + _digits_of(fields.seq) + _digits_of(fields.ts)  # {"$seq":,"$ts":}
    at += form.head_bytes
    record.node.printed = record.tag.printed = record.data.printed = record.meta.printed = 0
    if flags & HAS_NODE:
        record.node.at, record.node.length = at, fields.node_len
        record.node.printed = _quoted_bytes(at, fields.node_len)
        if record.node.printed < 0:
            return False
        record.printed += 9 + record.node.printed  # ,"$node":
    at += fields.node_len
    if flags & HAS_TAG and form.tags:
        record.tag.at, record.tag.length = at, fields.tag_len
        record.tag.printed = _quoted_bytes(at, fields.tag_len)
        if record.tag.printed < 0:
            return False
        record.printed += 8 + record.tag.printed  # ,"$tag":
    at += fields.tag_len
    record.data.at, record.data.length = at, fields.data_len
    if flags & HAS_META:
        if fields.data_len < META_LENGTH_BYTES:
            return False
        memcpy(&meta_len, at + fields.data_len - META_LENGTH_BYTES, META_LENGTH_BYTES)
        if meta_len > fields.data_len - META_LENGTH_BYTES:
            return False
        record.data.length = fields.data_len - META_LENGTH_BYTES - meta_len
        record.meta.at, record.meta.length = at + record.data.length, meta_len
        if form.meta:
            record.meta.printed = 1
            record.printed += 8 + meta_len  # ,"meta":
    if form.data:
        record.data.printed = 1
        record.printed += 8 + record.data.length  # ,"data":
    return True


cdef inline char *_print(
    char *at,
    char *end,
    Record *record,
    Number *time,
    const char *more,
    Py_ssize_t more_len,
    bint comma,
) noexcept nogil:
    """Behind the record and its comma, or NULL when there is no room for them."""
    if end - at < record.printed + more_len + comma:
        return NULL
    memcpy(at, b'{"$seq":', 8)
    at = _put_number(at + 8, record.seq)
    memcpy(at, b',"$ts":', 7)
    at += 7
    if record.ts != time.value or not time.length:  # many come with the time of the one before
        time.value = record.ts
        time.length = _put_number(time.digits, record.ts) - time.digits
    memcpy(at, time.digits, time.length)
    at += time.length
    memcpy(at, more, more_len)
    at += more_len
    if record.node.printed:
        memcpy(at, b',"$node":', 9)
        at = _put_quoted(at + 9, &record.node)
        if at == NULL:
            return NULL
    if record.tag.printed:
        memcpy(at, b',"$tag":', 8)
        at = _put_quoted(at + 8, &record.tag)
        if at == NULL:
            return NULL
    if record.data.printed:
        memcpy(at, b',"data":', 8)
        memcpy(at + 8, record.data.at, record.data.length)
        at += 8 + record.data.length
    if record.meta.printed:
        memcpy(at, b',"meta":', 8)
        memcpy(at + 8, record.meta.at, record.meta.length)
        at += 8 + record.meta.length
    at[0] = b"}"
    at += 1
    if comma:
        at[0] = b","
        at += 1
    return at


cdef inline Py_ssize_t _digits_of(uint64_t value) noexcept nogil:
    cdef Py_ssize_t digits = 1
    while value >= 10000:
        value //= 10000
        digits += 4
    return digits + (value >= 10) + (value >= 100) + (value >= 1000)


cdef inline char *_put_number(char *at, uint64_t value) noexcept nogil:
    cdef Py_ssize_t digits = _digits_of(value)
    cdef char *end = at + digits
    cdef char *to = end
    while value >= 100:
        to -= 2
        memcpy(to, &_pairs[2 * (value % 100)], 2)
        value //= 100
    if value >= 10:
        memcpy(to - 2, &_pairs[2 * value], 2)
    else:
        (to - 1)[0] = <char>(48 + value)
    return end


cdef Py_ssize_t _quoted_bytes(const uint8_t *word, Py_ssize_t length) noexcept nogil:
    """How many bytes it has as a JSON string, quotes included; -1 when it is not UTF-8."""
    cdef Py_ssize_t total = length + 2
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t wide
    cdef uint8_t beside
    while row < length:
        beside = _beside[word[row]]
        if beside == NOT_ASCII:
            wide = _wide(word + row, length - row)
            if not wide:
                return -1
            row += wide
        else:
            total += beside
            row += 1
    return total


cdef Py_ssize_t _wide(const uint8_t *at, Py_ssize_t room) noexcept nogil:
    """Bytes of the character that begins here with a byte that is not ASCII; 0 if it is none."""
    cdef uint8_t first = at[0]
    if 0xC2 <= first <= 0xDF:
        return 2 if room >= 2 and _follows(at[1]) else 0
    if 0xE0 <= first <= 0xEF:
        if room < 3 or not (_follows(at[1]) and _follows(at[2])):
            return 0
        if (first == 0xE0 and at[1] < 0xA0) or (first == 0xED and at[1] > 0x9F):
            return 0  # written with more bytes than it needs, or half of a pair
        return 3
    if 0xF0 <= first <= 0xF4:
        if room < 4 or not (_follows(at[1]) and _follows(at[2]) and _follows(at[3])):
            return 0
        if (first == 0xF0 and at[1] < 0x90) or (first == 0xF4 and at[1] > 0x8F):
            return 0
        return 4
    return 0


cdef inline bint _follows(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef char *_put_quoted(char *at, Part *word) noexcept nogil:
    """Behind the word in quotes; NULL when it takes other room than was found for it."""
    cdef char *end = at + word.printed
    cdef Py_ssize_t row
    cdef uint8_t byte, beside
    at[0] = b'"'
    at += 1
    if word.printed == word.length + 2:
        memcpy(at, word.at, word.length)
        at += word.length
    else:
        for row in range(word.length):
            byte = word.at[row]
            beside = _beside[byte]
            if end - at < 7:
                # Near its end only what fits: the quote and what this byte takes.
                if end - at < 2 + (0 if beside == NOT_ASCII else beside):
                    return NULL
            if beside == ESCAPE_SHORT:
                at[0] = b"\\"
                at[1] = _letters[byte]
                at += 2
            elif beside == ESCAPE_LONG:
                memcpy(at, b"\\u00", 4)
                at[4] = 48 + (byte >> 4)
                at[5] = b"0123456789abcdef"[byte & 15]
                at += 6
            else:
                at[0] = <char>byte
                at += 1
        if at != end - 1:
            return NULL
    at[0] = b'"'
    return at + 1
