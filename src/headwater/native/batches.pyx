# cython: boundscheck=False, wraparound=False, cdivision=True
"""Produce requests of Kafka clients and their answers: the frame around a record batch, its CRC.

The twins are the functions that `headwater.wire.kafka.codec` makes from the table of fields, and
those of `headwater.format.kafka.batch`. What is not plain here is left to them: every function
gives None then, and has changed nothing.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headwater.native.crc32c cimport crc32c_of, has_crc32c


cdef bint CRC_HERE = has_crc32c()


cdef enum:
    FLEXIBLE_SINCE = 9
    LOG_START_SINCE = 5
    ERRORS_SINCE = 8
    VERSION_MIN = 3
    VERSION_MAX = 9
    NAME_BYTES_MAX = 0x7FFF
    # More rows than any producer sends at once. What each of them is held in takes more memory than
    # a small batch, and the table has a limit for that.
    ROWS_MAX = 4096
    # Of a topic that can exist, with room to spare.
    SHORT_NAME_BYTES = 512
    # What is enough for an answer without its topics, a topic without its name, and a row.
    FRAME_BYTES = 32
    TOPIC_BYTES = 16
    ROW_BYTES = 48
    # Shorter ones are done before another thread has the interpreter.
    LONG_BYTES = 0x10000
    # The header of a request in front of the client's name, and of a batch: see
    # headwater.wire.kafka.codec and headwater.format.kafka.batch, which a test holds it against.
    PRODUCE = 0
    REQUEST_HEADER_BYTES = 10
    ACKS_BYTES = 2
    TIMEOUT_BYTES = 4
    PREFIX_BYTES = 4
    PREAMBLE_BYTES = 16
    BODY_BYTES_MAX = 0x7FFFFFFF
    LENGTH_AT = 8
    LENGTH_FROM = 12
    MAGIC_AT = 16
    MAGIC = 2
    CRC_AT = 17
    CRC_FROM = 21
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    TIMESTAMPS_AT = 27
    PRODUCER_ID_AT = 43
    EPOCH_AT = 51
    SEQUENCE_AT = 53
    COUNT_AT = 57
    HEADER_BYTES = 61
    CODEC_MASK = 0x07
    CODECS = 5
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    RECORDS_MAX = 1000000
    RECORDS_PER_BYTE_MAX = 150
    RECORD_BYTES_MIN = 7


cdef inline uint32_t big32(const uint8_t *at) noexcept nogil:
    return (
        (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | <uint32_t>at[3]
    )


cdef inline int64_t length_at(
    const uint8_t *data, Py_ssize_t end, Py_ssize_t *at, bint flexible, bint short
) noexcept nogil:
    """A length, and `at` behind it; -1 for null, -2 for what is not all there or too long."""
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    if flexible:
        while shift <= 28:
            if at[0] >= end:
                return -2
            byte = data[at[0]]
            at[0] += 1
            number |= (<uint64_t>(byte & 0x7F)) << shift
            if not byte & 0x80:
                return <int64_t>number - 1
            shift += 7
        return -2
    if short:
        if end - at[0] < 2:
            return -2
        number = (<uint16_t>data[at[0]] << 8) | data[at[0] + 1]
        at[0] += 2
        return <int16_t>number
    if end - at[0] < 4:
        return -2
    number = big32(data + at[0])
    at[0] += 4
    return <int32_t>number


cdef inline char *put(char *at, uint64_t value, int size) noexcept nogil:
    cdef int shift = 8 * (size - 1)
    while shift >= 0:
        at[0] = <char>((value >> shift) & 0xFF)
        at += 1
        shift -= 8
    return at


cdef inline char *put_length(
    char *at, uint64_t length, bint flexible, int size
) noexcept nogil:
    if not flexible:
        return put(at, length, size)
    length += 1
    while length >= 0x80:
        at[0] = <char>((length & 0x7F) | 0x80)
        at += 1
        length >>= 7
    at[0] = <char>length
    return at + 1


cdef inline uint64_t big(const uint8_t *at, int size) noexcept nogil:
    cdef uint64_t number = 0
    cdef int each
    for each in range(size):
        number = (number << 8) | at[each]
    return number


cdef bint no_tags(
    const uint8_t *data, Py_ssize_t end, Py_ssize_t *at, bint flexible
) noexcept nogil:
    """Pass the tagged fields where there may be some; False when there are."""
    if flexible:
        if at[0] >= end or data[at[0]] != 0:
            return False
        at[0] += 1
    return True


cdef Py_ssize_t body_of(const uint8_t *data, Py_ssize_t end, bint *flexible) noexcept nogil:
    """Where the body of a Produce begins; -1 for what is none, or has more in its header."""
    cdef int16_t version, name_bytes
    cdef Py_ssize_t at = REQUEST_HEADER_BYTES
    if end < at or big(data, 2) != PRODUCE:
        return -1
    version = <int16_t>big(data + 2, 2)
    if not VERSION_MIN <= version <= VERSION_MAX:
        return -1
    name_bytes = <int16_t>big(data + 8, 2)
    if name_bytes > 0:
        at += name_bytes
    flexible[0] = version >= FLEXIBLE_SINCE
    return at if no_tags(data, end, &at, flexible[0]) and at <= end else -1


cdef bint is_sound(const uint8_t *batch, Py_ssize_t size) noexcept nogil:
    """Whether these bytes are one whole batch that may be stored: what `check_batch` checks."""
    cdef uint32_t attributes
    cdef int64_t count, fitting
    if size < HEADER_BYTES or batch[MAGIC_AT] != MAGIC:
        return False
    if <int32_t>big32(batch + LENGTH_AT) != size - LENGTH_FROM:
        return False
    attributes = <uint32_t>big(batch + ATTRIBUTES_AT, 2)
    if attributes & (TRANSACTIONAL | CONTROL) or (attributes & CODEC_MASK) >= CODECS:
        return False
    count = <int32_t>big32(batch + COUNT_AT)
    if not 1 <= count <= RECORDS_MAX or <int32_t>big32(batch + LAST_DELTA_AT) != count - 1:
        return False
    fitting = size - HEADER_BYTES
    if attributes & CODEC_MASK:
        fitting *= RECORDS_PER_BYTE_MAX
    else:
        fitting //= RECORD_BYTES_MIN
    if count > fitting:
        return False
    if <int64_t>big(batch + PRODUCER_ID_AT, 8) >= 0 and (
        <int16_t>big(batch + EPOCH_AT, 2) < 0 or <int32_t>big32(batch + SEQUENCE_AT) < 0
    ):
        return False
    return crc32c_of(batch + CRC_FROM, size - CRC_FROM) == big32(batch + CRC_AT)


cdef tuple header_of(const uint8_t *batch):
    """All fields, as `BatchHeader` has them."""
    return (
        <int64_t>big(batch, 8),
        <int32_t>big32(batch + LENGTH_AT),
        <int32_t>big32(batch + LENGTH_FROM),
        batch[MAGIC_AT],
        big32(batch + CRC_AT),
        <int16_t>big(batch + ATTRIBUTES_AT, 2),
        <int32_t>big32(batch + LAST_DELTA_AT),
        <int64_t>big(batch + TIMESTAMPS_AT, 8),
        <int64_t>big(batch + TIMESTAMPS_AT + 8, 8),
        <int64_t>big(batch + PRODUCER_ID_AT, 8),
        <int16_t>big(batch + EPOCH_AT, 2),
        <int32_t>big32(batch + SEQUENCE_AT),
        <int32_t>big32(batch + COUNT_AT),
    )


cdef object row_at(
    object name, const uint8_t *data, Py_ssize_t end, Py_ssize_t *at, bint flexible
):
    """A partition and its batch, as the fields of `PlainRow`; None when it is not plain."""
    cdef int64_t size
    cdef Py_ssize_t start
    cdef int32_t partition
    cdef bint sound
    if end - at[0] < 4:
        return None
    partition = <int32_t>big32(data + at[0])
    at[0] += 4
    size = length_at(data, end, at, flexible, False)
    if size < 0 or size > end - at[0]:
        return None
    start = at[0]
    at[0] += size
    if size < LONG_BYTES:
        sound = is_sound(data + start, size)
    else:
        with nogil:
            sound = is_sound(data + start, size)
    if not sound or not no_tags(data, end, at, flexible):
        return None
    return name, partition, start, start + size, header_of(data + start)


cdef list rows_at(const uint8_t *data, Py_ssize_t end, Py_ssize_t at, bint flexible):
    """All rows of the topics that stand here; None when one of them is not plain."""
    cdef int64_t topics, partitions, size
    cdef list rows = []
    topics = length_at(data, end, &at, flexible, False)
    if topics < 1:
        return None
    while topics:
        topics -= 1
        size = length_at(data, end, &at, flexible, True)
        if size < 0 or size > end - at:
            return None
        try:
            name = (<const char *>data)[at : at + size].decode("utf-8")
        except UnicodeDecodeError:
            return None
        at += size
        partitions = length_at(data, end, &at, flexible, False)
        if partitions < 1:
            return None
        while partitions:
            partitions -= 1
            row = row_at(name, data, end, &at, flexible)
            if row is None or len(rows) == ROWS_MAX:
                return None
            rows.append(row)
        if not no_tags(data, end, &at, flexible):
            return None
    return rows if no_tags(data, end, &at, flexible) else None


def read_plain(frame):
    """A Produce of one sound batch for each of its partitions, as the fields of `PlainProduce`.

    None for everything else: the table, `split_batches` and `check_batch` say what it is.
    """
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef Py_ssize_t at
    cdef bint flexible
    if not CRC_HERE:
        return None
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>view.buf
        at = body_of(data, view.len, &flexible)
        if at < 0 or length_at(data, view.len, &at, flexible, True) != -1:
            return None
        if view.len - at < ACKS_BYTES + TIMEOUT_BYTES:
            return None
        acks = <int16_t>big(data + at, ACKS_BYTES)
        rows = rows_at(data, view.len, at + ACKS_BYTES + TIMEOUT_BYTES, flexible)
        if rows is None:
            return None
        return <int16_t>big(data + 2, 2), <int32_t>big32(data + 4), acks, rows
    finally:
        PyBuffer_Release(&view)


def assign_offset(batch, int64_t base_offset):
    """The batch as it stands in a log: behind its length, with its offset written into it."""
    cdef Py_buffer view
    cdef bytes body
    cdef char *at
    cdef uint32_t size
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        if not PREAMBLE_BYTES <= view.len <= BODY_BYTES_MAX:
            return None
        size = <uint32_t>view.len
        body = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + view.len)
        at = PyBytes_AS_STRING(body)
        at[0], at[1] = <char>(size & 0xFF), <char>((size >> 8) & 0xFF)
        at[2], at[3] = <char>((size >> 16) & 0xFF), <char>(size >> 24)
        at = put(at + PREFIX_BYTES, <uint64_t>base_offset, 8)
        at = put(at, size - LENGTH_FROM, 4)
        at = put(at, 0, 4)
        memcpy(at, <const char *>view.buf + PREAMBLE_BYTES, view.len - PREAMBLE_BYTES)
    finally:
        PyBuffer_Release(&view)
    return body


cdef Py_ssize_t room_for(dict values) except -1:
    """Bytes that are enough for the answer. 0 when there is something that is not written here."""
    cdef Py_ssize_t room = FRAME_BYTES
    cdef dict topic
    if len(values) != 2 or "throttle_time_ms" not in values:
        return 0
    responses = values.get("responses")
    if type(responses) is not list:
        return 0
    for each in responses:
        if type(each) is not dict:
            return 0
        topic = each
        rows = topic.get("partition_responses")
        name = topic.get("name")
        if len(topic) != 2 or type(rows) is not list or type(name) is not str:
            return 0
        # A character has four bytes at most.
        room += TOPIC_BYTES + 4 * len(name) + ROW_BYTES * len(rows)
    return room


cdef char *put_fields(
    char *at,
    int32_t index,
    int16_t error,
    int64_t base,
    int64_t time_ms,
    int64_t start,
    int version,
) noexcept nogil:
    at = put(at, <uint32_t>index, 4)
    at = put(at, <uint16_t>error, 2)
    at = put(at, <uint64_t>base, 8)
    at = put(at, <uint64_t>time_ms, 8)
    if version >= LOG_START_SINCE:
        at = put(at, <uint64_t>start, 8)
    if version >= ERRORS_SINCE:  # no rows of errors, and no message
        if version >= FLEXIBLE_SINCE:
            at = put(at, 0x010000, 3)
        else:
            at = put(at, 0x00000000FFFF, 6)
    return at


cdef char *put_row(char *at, dict row, int version) except? NULL:
    """The row, and where it ends; NULL for one that says more than this."""
    cdef int32_t index
    cdef int16_t error
    cdef int64_t base, time_ms = -1, start = -1
    cdef Py_ssize_t known = 3
    index, error, base = row["index"], row["error_code"], row["base_offset"]
    said = row.get("log_append_time_ms")
    if said is not None:
        time_ms = said
        known += 1
    said = row.get("log_start_offset")
    if said is not None:
        start = said
        known += 1
    if len(row) != known:
        return NULL
    return put_fields(at, index, error, base, time_ms, start, version)


def write_produced(int version, int32_t correlation_id, values):
    """The whole answer with its size; None for one that is not plain: one with errors told."""
    cdef bint flexible = version >= FLEXIBLE_SINCE
    cdef Py_ssize_t room
    cdef bytearray answer
    cdef bytes name
    cdef char *start
    cdef char *at
    cdef list responses, rows
    cdef int32_t throttle_ms
    if not VERSION_MIN <= version <= VERSION_MAX or type(values) is not dict:
        return None
    room = room_for(values)
    if not room:
        return None
    answer = PyByteArray_FromStringAndSize(NULL, room)
    start = PyByteArray_AS_STRING(answer)
    at = put(start + 4, <uint32_t>correlation_id, 4)
    if flexible:
        at = put(at, 0, 1)
    responses = values["responses"]
    at = put_length(at, len(responses), flexible, 4)
    try:
        throttle_ms = values["throttle_time_ms"]
        for topic in responses:
            name, rows = topic["name"].encode(), topic["partition_responses"]
            if PyBytes_GET_SIZE(name) > NAME_BYTES_MAX:
                return None
            at = put_length(at, PyBytes_GET_SIZE(name), flexible, 2)
            memcpy(at, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            at = put_length(at + PyBytes_GET_SIZE(name), len(rows), flexible, 4)
            for row in rows:
                if type(row) is not dict:
                    return None
                at = put_row(at, row, version)
                if at is NULL:
                    return None
            if flexible:
                at = put(at, 0, 1)
    except (KeyError, OverflowError, TypeError, UnicodeEncodeError):
        return None  # the twin says what is wrong with it
    at = put(at, <uint32_t>throttle_ms, 4)
    if flexible:
        at = put(at, 0, 1)
    put(start, <uint64_t>(at - start - 4), 4)
    return bytes(answer[: at - start])


def produced(
    int version,
    int32_t correlation_id,
    str name,
    int32_t index,
    int64_t base_offset,
    int64_t time_ms,
    int64_t start_offset,
):
    """The whole answer, with its size, to a Produce of one batch that went well."""
    cdef bint flexible = version >= FLEXIBLE_SINCE
    cdef bytes text = name.encode()
    cdef Py_ssize_t text_bytes = PyBytes_GET_SIZE(text)
    cdef char room[FRAME_BYTES + TOPIC_BYTES + ROW_BYTES + SHORT_NAME_BYTES]
    cdef char *at
    if text_bytes > SHORT_NAME_BYTES or not VERSION_MIN <= version <= VERSION_MAX:
        return None
    at = put(room + 4, <uint32_t>correlation_id, 4)
    if flexible:
        at = put(at, 0, 1)
    at = put_length(at, 1, flexible, 4)
    at = put_length(at, text_bytes, flexible, 2)
    memcpy(at, PyBytes_AS_STRING(text), text_bytes)
    at = put_length(at + text_bytes, 1, flexible, 4)
    at = put_fields(at, index, 0, base_offset, time_ms, start_offset, version)
    if flexible:
        at = put(at, 0, 1)
    at = put(at, 0, 4)
    if flexible:
        at = put(at, 0, 1)
    put(room, <uint64_t>(at - room - 4), 4)
    return room[: at - room]


def crc32c(buffer, Py_ssize_t start):
    """CRC32C of the buffer from this byte on; None where the processor has no step for it.

    The twin needs bytes, which takes a copy of everything that is read.
    """
    cdef Py_buffer view
    cdef uint32_t crc
    if not CRC_HERE:
        return None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= view.len:
            return None
        if view.len - start < LONG_BYTES:
            crc = crc32c_of(<const uint8_t *>view.buf + start, view.len - start)
        else:
            with nogil:
                crc = crc32c_of(<const uint8_t *>view.buf + start, view.len - start)
    finally:
        PyBuffer_Release(&view)
    return crc
