# cython: boundscheck=False, wraparound=False, cdivision=True
"""Frames of the log and of segments: encoding and checksums, record by record.

The twins are in `headwater.format.appends` and `headwater.format.segment.run`, which say what the
bytes mean. Checksums of many records are made without the interpreter.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headwater.native.layouts cimport Entry
from headwater.native.xxh3 cimport XXH3_64bits


cdef packed struct AppendHead:
    uint32_t frame_len
    uint8_t type
    uint8_t flags
    uint64_t topic_id
    uint64_t seq
    uint64_t ts
    uint16_t node_len
    uint16_t tag_len
    uint32_t data_len


cdef enum:
    APPEND = 1
    LENGTH_BYTES = 4
    CHECKSUM_BYTES = 8
    PART_BYTES_MAX = 0xFFFF


def hash_ranges(buffer, const int64_t[::1] starts, const int64_t[::1] ends, uint64_t[::1] hashes):
    """The checksum of every [start, end) of the buffer, into `hashes`."""
    cdef Py_ssize_t count = starts.shape[0]
    cdef Py_ssize_t row
    cdef Py_buffer view
    cdef const char *data
    if ends.shape[0] != count or hashes.shape[0] != count:
        raise ValueError("starts, ends and hashes are equally long")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const char *>view.buf
        for row in range(count):
            if starts[row] < 0 or ends[row] < starts[row] or ends[row] > view.len:
                raise ValueError(f"no bytes {starts[row]} to {ends[row]} in {view.len}")
        with nogil:
            for row in range(count):
                hashes[row] = XXH3_64bits(data + starts[row], ends[row] - starts[row])
    finally:
        PyBuffer_Release(&view)


def encode_appends(
    uint64_t topic_id,
    uint64_t first_seq,
    times,
    flags,
    nodes,
    tags,
    datas,
):
    """The frames of these records, where each begins, and how long each is."""
    return _encode_appends(
        topic_id, first_seq, list(times), 0, list(flags), 0, list(nodes), list(tags), list(datas), 0
    )[:3]


def encode_batches(list batches, int64_t length_shift):
    """The same for several batches, each of one moment: a list of (frames, offsets, lengths,
    flags). Each batch is (topic id, first seq, time, flags of all, flags, nodes, tags, datas)."""
    cdef list encoded = []
    cdef tuple batch
    for batch in batches:
        encoded.append(
            _encode_appends(
                batch[0], batch[1], None, batch[2], batch[4], batch[3], batch[5], batch[6], batch[7],
                length_shift,
            )
        )
    return encoded


cdef tuple _encode_appends(
    uint64_t topic_id,
    uint64_t first_seq,
    list times,
    uint64_t time,
    list flags,
    uint8_t flags_of_all,
    list nodes,
    list tags,
    list datas,
    int64_t length_shift,
):
    """`time` is that of all where `times` is None."""
    cdef Py_ssize_t count = len(datas)
    cdef Py_ssize_t row, total = 0
    cdef bytes node, tag, data, frames
    cdef AppendHead head
    cdef char *at
    cdef char *start
    cdef uint64_t checksum
    cdef list offsets = [0] * count
    cdef list sizes = [0] * count
    cdef list flags_now = [0] * count
    if len(flags) != count or len(nodes) != count or len(tags) != count:
        raise ValueError("the columns of a batch are equally long")
    for row in range(count):
        node, tag, data = nodes[row], tags[row], datas[row]
        if PyBytes_GET_SIZE(node) > PART_BYTES_MAX or PyBytes_GET_SIZE(tag) > PART_BYTES_MAX:
            raise OverflowError("a node or tag has 65,535 bytes at most")
        total += (
            sizeof(AppendHead)
            + PyBytes_GET_SIZE(node)
            + PyBytes_GET_SIZE(tag)
            + PyBytes_GET_SIZE(data)
            + CHECKSUM_BYTES
        )
    frames = PyBytes_FromStringAndSize(NULL, total)
    start = at = PyBytes_AS_STRING(frames)
    head.type = APPEND
    head.topic_id = topic_id
    for row in range(count):
        node, tag, data = nodes[row], tags[row], datas[row]
        head.flags = flags_of_all | <uint8_t>flags[row]
        flags_now[row] = head.flags
        head.seq = first_seq + row
        head.ts = time if times is None else <uint64_t>times[row]
        head.node_len = <uint16_t>PyBytes_GET_SIZE(node)
        head.tag_len = <uint16_t>PyBytes_GET_SIZE(tag)
        head.data_len = <uint32_t>PyBytes_GET_SIZE(data)
        head.frame_len = <uint32_t>(
            sizeof(AppendHead) - LENGTH_BYTES + head.node_len + head.tag_len + head.data_len
            + CHECKSUM_BYTES
        )
        offsets[row] = at - start
        sizes[row] = head.frame_len + LENGTH_BYTES + length_shift
        memcpy(at, &head, sizeof(AppendHead))
        at += sizeof(AppendHead)
        memcpy(at, PyBytes_AS_STRING(node), head.node_len)
        at += head.node_len
        memcpy(at, PyBytes_AS_STRING(tag), head.tag_len)
        at += head.tag_len
        memcpy(at, PyBytes_AS_STRING(data), head.data_len)
        at += head.data_len
        checksum = XXH3_64bits(
            at - head.data_len - head.tag_len - head.node_len - sizeof(AppendHead) + LENGTH_BYTES,
            head.frame_len - CHECKSUM_BYTES,
        )
        memcpy(at, &checksum, CHECKSUM_BYTES)
        at += CHECKSUM_BYTES
    return frames, offsets, sizes, flags_now


def index_entries(list lengths, list times, list flags):
    """Entries of records that are in no segment yet: a length, a time and flags each."""
    cdef Py_ssize_t count = len(lengths)
    cdef Py_ssize_t row
    cdef bytes entries
    cdef Entry *at
    if len(times) != count or len(flags) != count:
        raise ValueError("lengths, times and flags are equally many")
    entries = PyBytes_FromStringAndSize(NULL, count * sizeof(Entry))
    at = <Entry *>PyBytes_AS_STRING(entries)
    for row in range(count):
        at[row].offset = 0
        at[row].length = lengths[row]
        at[row].ts = times[row]
        at[row].flags_check = flags[row]
    return entries


def copy_ranges(buffer, const int64_t[::1] starts, const int64_t[::1] ends, uint8_t[::1] target):
    """Every [start, end) of the buffer, one behind the other, into a target that they fill."""
    cdef Py_ssize_t count = starts.shape[0]
    cdef Py_ssize_t row
    cdef int64_t total = 0
    cdef Py_buffer view
    cdef const char *data
    cdef uint8_t *at
    if ends.shape[0] != count:
        raise ValueError("starts and ends are equally many")
    if not count:
        return
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const char *>view.buf
        for row in range(count):
            if starts[row] < 0 or ends[row] < starts[row] or ends[row] > view.len:
                raise ValueError(f"no bytes {starts[row]} to {ends[row]} in {view.len}")
            total += ends[row] - starts[row]
        if total != target.shape[0]:
            raise ValueError(f"{total} bytes do not fill a target of {target.shape[0]}")
        if total:
            at = &target[0]
            with nogil:
                for row in range(count):
                    memcpy(at, data + starts[row], ends[row] - starts[row])
                    at += ends[row] - starts[row]
    finally:
        PyBuffer_Release(&view)
