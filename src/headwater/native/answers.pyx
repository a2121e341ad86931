"""What is answered most often, printed in one go, and sent to many at once.

The twin of what is printed is `headwater.wire.answers`, that of sending `server.http.write_replies`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint64_t
from libc.string cimport memcpy


cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    ssize_t send(int descriptor, const void *data, size_t length, int flags)


cdef enum:
    NUMBER_BYTES_MAX = 20
    OPENING_BYTES_MAX = 320  # what comes before the numbers, the name of a topic among it
    BODY_BYTES_MAX = 832  # its other words have 172 bytes, and its nine numbers 24 each at most
    HEAD_BYTES_MAX = 256
    REPLY_BYTES_MAX = 1344


cdef inline char *_text(char *at, const char *text, size_t length) noexcept nogil:
    memcpy(at, text, length)
    return at + length


cdef inline char *_number(char *at, uint64_t value) noexcept nogil:
    cdef char digits[NUMBER_BYTES_MAX]
    cdef int first = NUMBER_BYTES_MAX
    while True:
        first -= 1
        digits[first] = <char>(48 + value % 10)
        value //= 10
        if not value:
            break
    return _text(at, digits + first, NUMBER_BYTES_MAX - first)


cdef inline char *_hexadecimal(char *at, uint64_t value) noexcept nogil:
    cdef char digits[16]
    cdef int first = 16
    while True:
        first -= 1
        digits[first] = b"0123456789abcdef"[value & 15]
        value >>= 4
        if not value:
            break
    return _text(at, digits + first, 16 - first)


cdef inline char *_milliseconds(char *at, uint64_t us) noexcept nogil:
    at = _number(at, us // 1000)
    at[0] = b"."
    at[1] = <char>(48 + us // 100 % 10)
    at[2] = <char>(48 + us // 10 % 10)
    at[3] = <char>(48 + us % 10)
    return at + 4


cdef struct Reply:
    int descriptor
    size_t length
    ssize_t sent
    char text[REPLY_BYTES_MAX]


cdef size_t _print(
    char *text,
    const char *head, size_t head_bytes,
    const char *prefix, size_t prefix_bytes,
    const char *opening, size_t opening_bytes,
    uint64_t number,
    uint64_t seq,
    uint64_t head_seq,
    uint64_t total_us,
    uint64_t sync_us,
    uint64_t throttle_us,
) noexcept nogil:
    """The whole answer; gives its length."""
    cdef char body[BODY_BYTES_MAX]
    cdef char *at = body
    cdef size_t body_bytes
    cdef uint64_t append_us = total_us - sync_us if total_us > sync_us else 0
    at = _text(at, opening, opening_bytes)
    at = _number(at, seq)
    at = _text(at, b',"last_seq":', 12)
    at = _number(at, seq)
    at = _text(at, b',"head_seq":', 12)
    at = _number(at, head_seq)
    at = _text(at, b',"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":', 76)
    at = _milliseconds(at, total_us)
    at = _text(at, b',"wal_append_ms":', 17)
    at = _milliseconds(at, append_us)
    at = _text(at, b',"fsync_ms":', 12)
    at = _milliseconds(at, sync_us)
    at = _text(at, b',"throttle_wait_ms":', 20)
    at = _milliseconds(at, throttle_us if throttle_us < append_us else append_us)
    at = _text(at, b'},"seqs":[', 10)
    at = _number(at, seq)
    at = _text(at, b"]}", 2)
    body_bytes = at - body
    at = _text(text, head, head_bytes)
    at = _number(at, body_bytes)
    at = _text(at, b"\r\nx-request-id: ", 16)
    at = _text(at, prefix, prefix_bytes)
    at = _text(at, b"-", 1)
    at = _hexadecimal(at, number)
    at = _text(at, b"\r\n\r\n", 4)
    return _text(at, body, body_bytes) - text


cdef int _refuse_long(bytes head, bytes prefix, bytes opening) except -1:
    if PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(prefix) > HEAD_BYTES_MAX:
        raise ValueError("the head of an answer is shorter than that")
    if PyBytes_GET_SIZE(opening) > OPENING_BYTES_MAX:
        raise ValueError("the name of a topic is shorter than that")
    return 0


def single_write(
    bytes head,
    bytes prefix,
    bytes opening,
    uint64_t number,
    uint64_t seq,
    uint64_t head_seq,
    uint64_t total_us,
    uint64_t sync_us,
    uint64_t throttle_us,
):
    """The whole answer to a write of one record: `head` up to the length of its body, the id of
    the request from `prefix` and `number`, and the body, which begins with `opening`."""
    cdef char text[REPLY_BYTES_MAX]
    cdef size_t length
    _refuse_long(head, prefix, opening)
    length = _print(
        text,
        PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head),
        PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix),
        PyBytes_AS_STRING(opening), PyBytes_GET_SIZE(opening),
        number, seq, head_seq, total_us, sync_us, throttle_us,
    )
    return PyBytes_FromStringAndSize(text, length)


def send_single_writes(bytes head, bytes prefix, list replies, uint64_t now_us):
    """Print and send the answers to many single writes at once, the sending without the
    interpreter.

    Each is a socket that has nothing else to send, the number of a request, a seq, when the
    request came, how the answers of its topic begin, the topic's head, and how long the sync and
    the wait for pressure took. Gives what could not be sent, by its row: a socket that takes no
    more, or is gone, is its owner's matter.
    """
    cdef Py_ssize_t count = len(replies)
    cdef Py_ssize_t row
    cdef tuple one
    cdef bytes opening
    cdef uint64_t came_us
    cdef Reply *printed
    cdef Reply *reply
    cdef dict unsent = {}
    printed = <Reply *>PyMem_Malloc(count * sizeof(Reply))
    if printed == NULL:
        raise MemoryError
    try:
        for row in range(count):
            one = replies[row]
            opening = one[4]
            _refuse_long(head, prefix, opening)
            reply = &printed[row]
            reply.descriptor = one[0]
            came_us = one[3]
            reply.length = _print(
                reply.text,
                PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head),
                PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix),
                PyBytes_AS_STRING(opening), PyBytes_GET_SIZE(opening),
                one[1], one[2], one[5], now_us - came_us if now_us > came_us else 0,
                one[6], one[7],
            )
        with nogil:
            for row in range(count):
                reply = &printed[row]
                reply.sent = send(
                    reply.descriptor, reply.text, reply.length, MSG_DONTWAIT | MSG_NOSIGNAL
                )
        for row in range(count):
            reply = &printed[row]
            if reply.sent < 0:
                reply.sent = 0
            if <size_t>reply.sent < reply.length:
                unsent[row] = PyBytes_FromStringAndSize(
                    reply.text + reply.sent, reply.length - reply.sent
                )
    finally:
        PyMem_Free(printed)
    return unsent
