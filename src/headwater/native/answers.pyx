"""What is answered most often, printed in one go: the twin is `headwater.wire.answers`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef enum:
    NUMBER_BYTES_MAX = 20
    BODY_BYTES_MAX = 512  # its words have 184 bytes, and its nine numbers 24 each at most


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


def single_write(
    bytes head,
    bytes prefix,
    uint64_t number,
    uint64_t seq,
    uint64_t head_seq,
    uint64_t total_us,
    uint64_t sync_us,
    uint64_t throttle_us,
):
    """The whole answer to a write of one record: `head` up to the length of its body, the id of
    the request from `prefix` and `number`, and the body."""
    cdef char body[BODY_BYTES_MAX]
    cdef char *at = body
    cdef uint64_t append_us = total_us - sync_us if total_us > sync_us else 0
    at = _text(at, b'{"first_seq":', 13)
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
    return _joined(head, prefix, number, body, at - body)


cdef bytes _joined(bytes head, bytes prefix, uint64_t number, const char *body, size_t length):
    cdef Py_ssize_t room = (
        PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(prefix) + length + 2 * NUMBER_BYTES_MAX + 21
    )
    cdef bytes answer
    cdef char text[512]
    cdef char *at
    cdef char *start
    if room > <Py_ssize_t>(sizeof(text) + length):
        raise ValueError("the head of an answer is shorter than that")
    start = at = text
    at = _text(at, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
    at = _number(at, length)
    at = _text(at, b"\r\nx-request-id: ", 16)
    at = _text(at, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
    at = _text(at, b"-", 1)
    at = _hexadecimal(at, number)
    at = _text(at, b"\r\n\r\n", 4)
    answer = PyBytes_FromStringAndSize(NULL, at - start + length)
    memcpy(PyBytes_AS_STRING(answer), start, at - start)
    memcpy(PyBytes_AS_STRING(answer) + (at - start), body, length)
    return answer
