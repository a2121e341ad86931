"""What is answered most often, printed in one go, and sent to many at once.

The twin of what is printed is `headwater.wire.answers`, that of sending `server.http.write_batcher`.
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
    BODY_BYTES_MAX = 832  # its other words have 172 bytes, and its ten numbers 24 each at most
    SEQ_BYTES_MAX = 21  # with its comma
    HEAD_BYTES_MAX = 256
    HEAD_ROOM = 384  # with the length, the number of the request, and the words around them
    REPLY_BYTES_MAX = HEAD_ROOM + BODY_BYTES_MAX  # and each seq


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


cdef inline char *_seqs(char *at, uint64_t first, uint64_t count) noexcept nogil:
    """These seqs, with commas in between."""
    cdef uint64_t row
    for row in range(count):
        if row:
            at[0] = b","
            at += 1
        at = _number(at, first + row)
    return at


cdef struct Opening:
    const char *head
    const char *prefix
    const char *topic
    size_t head_bytes
    size_t prefix_bytes
    size_t topic_bytes


cdef struct Told:
    uint64_t number
    uint64_t first_seq
    uint64_t count
    uint64_t head_seq
    uint64_t total_us
    uint64_t sync_us
    uint64_t throttle_us


cdef struct Reply:
    int descriptor
    char *text
    size_t length
    ssize_t sent


cdef size_t _print(
    char *room, char **begins, const Opening *opening, const Told *told
) noexcept nogil:
    """The whole answer somewhere in the room for it; gives its length. The body is printed first:
    its length stands before it."""
    cdef char *body = room + HEAD_ROOM
    cdef char *at = body
    cdef char head[HEAD_ROOM]
    cdef size_t body_bytes, head_bytes
    cdef uint64_t total_us = told.total_us
    cdef uint64_t append_us = total_us - told.sync_us if total_us > told.sync_us else 0
    at = _text(at, opening.topic, opening.topic_bytes)
    at = _number(at, told.first_seq)
    at = _text(at, b',"last_seq":', 12)
    at = _number(at, told.first_seq + told.count - 1)
    at = _text(at, b',"head_seq":', 12)
    at = _number(at, told.head_seq)
    at = _text(at, b',"count":', 9)
    at = _number(at, told.count)
    at = _text(at, b',"created":false,"deduped":false,"performance":{"server_total_ms":', 66)
    at = _milliseconds(at, total_us)
    at = _text(at, b',"wal_append_ms":', 17)
    at = _milliseconds(at, append_us)
    at = _text(at, b',"fsync_ms":', 12)
    at = _milliseconds(at, told.sync_us)
    at = _text(at, b',"throttle_wait_ms":', 20)
    at = _milliseconds(at, told.throttle_us if told.throttle_us < append_us else append_us)
    at = _text(at, b'},"seqs":[', 10)
    at = _seqs(at, told.first_seq, told.count)
    at = _text(at, b"]}", 2)
    body_bytes = at - body
    at = _text(head, opening.head, opening.head_bytes)
    at = _number(at, body_bytes)
    at = _text(at, b"\r\nx-request-id: ", 16)
    at = _text(at, opening.prefix, opening.prefix_bytes)
    at = _text(at, b"-", 1)
    at = _hexadecimal(at, told.number)
    at = _text(at, b"\r\n\r\n", 4)
    head_bytes = at - head
    begins[0] = body - head_bytes
    memcpy(begins[0], head, head_bytes)
    return head_bytes + body_bytes


cdef int _open(Opening *opening, bytes head, bytes prefix, bytes topic) except -1:
    if PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(prefix) > HEAD_BYTES_MAX:
        raise ValueError("the head of an answer is shorter than that")
    if PyBytes_GET_SIZE(topic) > OPENING_BYTES_MAX:
        raise ValueError("the name of a topic is shorter than that")
    opening.head = PyBytes_AS_STRING(head)
    opening.head_bytes = PyBytes_GET_SIZE(head)
    opening.prefix = PyBytes_AS_STRING(prefix)
    opening.prefix_bytes = PyBytes_GET_SIZE(prefix)
    opening.topic = PyBytes_AS_STRING(topic)
    opening.topic_bytes = PyBytes_GET_SIZE(topic)
    return 0


def write_reply(
    bytes head,
    bytes prefix,
    bytes topic,
    uint64_t number,
    uint64_t first_seq,
    uint64_t count,
    uint64_t head_seq,
    uint64_t total_us,
    uint64_t sync_us,
    uint64_t throttle_us,
):
    """The whole answer to a write of `count` records: `head` up to the length of its body, the id
    of the request from `prefix` and `number`, and the body, which begins with `topic`."""
    cdef Opening opening
    cdef Told told
    cdef char *begins
    cdef size_t length
    _open(&opening, head, prefix, topic)
    told.number, told.first_seq, told.count, told.head_seq = number, first_seq, count, head_seq
    told.total_us, told.sync_us, told.throttle_us = total_us, sync_us, throttle_us
    cdef char *room = <char *>PyMem_Malloc(REPLY_BYTES_MAX + count * SEQ_BYTES_MAX)
    if room == NULL:
        raise MemoryError
    try:
        length = _print(room, &begins, &opening, &told)
        return PyBytes_FromStringAndSize(begins, length)
    finally:
        PyMem_Free(room)


def send_write_replies(bytes head, bytes prefix, list replies, uint64_t now_us):
    """Print and send the answers to many writes at once, the sending without the interpreter.

    Each is a socket that has nothing else to send, the number of a request, a first seq and how
    many there are, when the request came, how the answers of its topic begin, the topic's head, and
    how long the sync and the wait for pressure took. Gives what could not be sent, by its row: a
    socket that takes no more, or is gone, is its owner's matter.
    """
    cdef Py_ssize_t rows = len(replies)
    cdef Py_ssize_t row
    cdef tuple one
    cdef Opening opening
    cdef Told told
    cdef uint64_t came_us
    cdef size_t room_bytes = rows * REPLY_BYTES_MAX
    cdef char *rooms = NULL
    cdef char *room
    cdef Reply *printed = <Reply *>PyMem_Malloc(rows * sizeof(Reply))
    cdef Reply *reply
    cdef dict unsent = {}
    try:
        for one in replies:
            room_bytes += <size_t>one[3] * SEQ_BYTES_MAX
        rooms = room = <char *>PyMem_Malloc(room_bytes)
        if printed == NULL or rooms == NULL:
            raise MemoryError
        for row in range(rows):
            one = replies[row]
            reply = &printed[row]
            reply.descriptor = one[0]
            told.number, told.first_seq, told.count, came_us = one[1], one[2], one[3], one[4]
            _open(&opening, head, prefix, one[5])
            told.head_seq, told.sync_us, told.throttle_us = one[6], one[7], one[8]
            told.total_us = now_us - came_us if now_us > came_us else 0
            reply.length = _print(room, &reply.text, &opening, &told)
            room += REPLY_BYTES_MAX + told.count * SEQ_BYTES_MAX
        with nogil:
            for row in range(rows):
                reply = &printed[row]
                reply.sent = send(
                    reply.descriptor, reply.text, reply.length, MSG_DONTWAIT | MSG_NOSIGNAL
                )
        for row in range(rows):
            reply = &printed[row]
            if reply.sent < 0:
                reply.sent = 0
            if <size_t>reply.sent < reply.length:
                unsent[row] = PyBytes_FromStringAndSize(
                    reply.text + reply.sent, reply.length - reply.sent
                )
    finally:
        PyMem_Free(rooms)
        PyMem_Free(printed)
    return unsent
