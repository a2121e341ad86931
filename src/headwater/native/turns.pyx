# cython: boundscheck=False, wraparound=False, cdivision=True
"""Turns and their replies, between columns and the lists that Python handles.

The twins are in `headwater.wire.turns`, which says what the fields mean. A frame is taken for
hostile: every length is compared with it before anything is read.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef packed struct TurnHead:
    uint16_t version
    uint16_t zero
    uint32_t group_count
    uint32_t record_count
    uint64_t first_group


cdef packed struct GroupRow:
    uint32_t key
    uint32_t requests
    uint32_t record_count
    uint32_t size
    uint16_t name_bytes
    uint16_t zero


cdef packed struct Lengths:
    uint32_t data_bytes
    uint16_t tag_bytes
    uint16_t zero


cdef packed struct ReplyHead:
    uint16_t version
    uint16_t zero
    uint32_t row_count


cdef packed struct ReplyRow:
    uint64_t group
    uint32_t outcome
    uint32_t error
    uint64_t first_seq
    uint64_t head_seq
    uint64_t sync_us
    uint64_t throttle_us


cdef enum:
    SHORT_MAX = 65535
    OUTCOMES = 3

cdef uint64_t SIZE_MAX = 0xFFFFFFFF


def encode_turn(
    uint16_t version, uint64_t first_group, list groups, list tags, list datas
):
    cdef Py_ssize_t group_count = len(groups)
    cdef Py_ssize_t count = len(datas)
    cdef Py_ssize_t row, record = 0, last
    cdef uint64_t size, total = 0
    cdef tuple group
    cdef bytes name, tag, data, frame
    cdef TurnHead head
    cdef GroupRow *rows
    cdef Lengths *lengths
    cdef char *at
    if len(tags) != count or group_count == 0:
        raise ValueError("the columns of a turn are as long as its groups say")
    for row in range(count):
        tag, data = tags[row], datas[row]
        if PyBytes_GET_SIZE(tag) > SHORT_MAX:
            raise OverflowError("a tag has 65,535 bytes at most")
        total += PyBytes_GET_SIZE(tag) + PyBytes_GET_SIZE(data)
    if total > SIZE_MAX:
        raise OverflowError("a turn has less than 4 GiB")
    for row in range(group_count):
        group = groups[row]
        name = group[1]
        if PyBytes_GET_SIZE(name) > SHORT_MAX:
            raise OverflowError("a name has 65,535 bytes at most")
        total += PyBytes_GET_SIZE(name)
    frame = PyBytes_FromStringAndSize(
        NULL,
        sizeof(TurnHead) + group_count * sizeof(GroupRow) + count * sizeof(Lengths) + total,
    )
    at = PyBytes_AS_STRING(frame)
    head.version, head.zero, head.first_group = version, 0, first_group
    head.group_count, head.record_count = <uint32_t>group_count, <uint32_t>count
    memcpy(at, &head, sizeof(TurnHead))
    rows = <GroupRow *>(at + sizeof(TurnHead))
    lengths = <Lengths *>(rows + group_count)
    at = <char *>(lengths + count)
    for row in range(group_count):
        group = groups[row]
        name = group[1]
        memcpy(at, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        at += PyBytes_GET_SIZE(name)
    for row in range(group_count):
        group = groups[row]
        name = group[1]
        rows[row].key, rows[row].requests, rows[row].record_count = group[0], group[2], group[3]
        rows[row].name_bytes, rows[row].zero = <uint16_t>PyBytes_GET_SIZE(name), 0
        if rows[row].requests == 0 or rows[row].requests > rows[row].record_count:
            raise ValueError("a group has requests, and each of them a record or more")
        last = record + rows[row].record_count
        if last > count:
            raise ValueError("the columns of a turn are as long as its groups say")
        size = 0
        while record < last:
            tag, data = tags[record], datas[record]
            lengths[record].data_bytes = <uint32_t>PyBytes_GET_SIZE(data)
            lengths[record].tag_bytes = <uint16_t>PyBytes_GET_SIZE(tag)
            lengths[record].zero = 0
            memcpy(at, PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag))
            at += PyBytes_GET_SIZE(tag)
            memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            at += PyBytes_GET_SIZE(data)
            size += PyBytes_GET_SIZE(tag) + PyBytes_GET_SIZE(data)
            record += 1
        rows[row].size = <uint32_t>size
    if record != count:
        raise ValueError("the columns of a turn are as long as its groups say")
    return frame


def decode_turn(uint16_t version, bytes frame not None):
    """The number of the first group, and (key, name, requests, tags, datas, bytes) of each group."""
    cdef const char *start = PyBytes_AS_STRING(frame)
    cdef uint64_t length = PyBytes_GET_SIZE(frame)
    cdef uint64_t needed, size
    cdef uint32_t row, record, own
    cdef TurnHead head
    cdef const GroupRow *rows
    cdef const Lengths *lengths
    cdef const char *name
    cdef const char *at
    cdef list groups, tags, datas
    if length < sizeof(TurnHead):
        raise ValueError("a turn that is cut off")
    memcpy(&head, start, sizeof(TurnHead))
    if head.version != version:
        raise ValueError(f"a turn of version {head.version}")
    if head.group_count == 0:
        raise ValueError("a turn without groups")
    needed = (
        sizeof(TurnHead)
        + <uint64_t>head.group_count * sizeof(GroupRow)
        + <uint64_t>head.record_count * sizeof(Lengths)
    )
    if needed > length:
        raise ValueError("a turn that is cut off")
    rows = <const GroupRow *>(start + sizeof(TurnHead))
    lengths = <const Lengths *>(rows + head.group_count)
    name = <const char *>(lengths + head.record_count)
    at = name
    size = 0
    for row in range(head.group_count):
        size += rows[row].record_count
        needed += rows[row].name_bytes
        at += rows[row].name_bytes
    if size != head.record_count:
        raise ValueError("groups that are not the records")
    for record in range(head.record_count):
        needed += <uint64_t>lengths[record].data_bytes + lengths[record].tag_bytes
    if needed != length:
        raise ValueError("a turn of another length")
    groups = []
    record = 0
    for row in range(head.group_count):
        if rows[row].requests == 0 or rows[row].requests > rows[row].record_count:
            raise ValueError("a group with fewer records than requests")
        tags, datas = [], []
        size = 0
        for own in range(rows[row].record_count):
            tags.append(
                PyBytes_FromStringAndSize(at, lengths[record].tag_bytes)
                if lengths[record].tag_bytes else b""
            )
            at += lengths[record].tag_bytes
            datas.append(PyBytes_FromStringAndSize(at, lengths[record].data_bytes))
            at += lengths[record].data_bytes
            size += <uint64_t>lengths[record].data_bytes + lengths[record].tag_bytes
            record += 1
        if size != rows[row].size:
            raise ValueError("a group of another length")
        groups.append((
            rows[row].key,
            PyUnicode_DecodeUTF8(name, rows[row].name_bytes, NULL),  # raises a ValueError
            rows[row].requests,
            tags,
            datas,
            rows[row].size,
        ))
        name += rows[row].name_bytes
    return head.first_group, groups


def encode_reply(uint16_t version, list rows, bytes errors):
    cdef Py_ssize_t count = len(rows)
    cdef Py_ssize_t row
    cdef tuple one
    cdef bytes frame = PyBytes_FromStringAndSize(
        NULL, sizeof(ReplyHead) + count * sizeof(ReplyRow) + PyBytes_GET_SIZE(errors)
    )
    cdef ReplyHead *head = <ReplyHead *>PyBytes_AS_STRING(frame)
    cdef ReplyRow *to = <ReplyRow *>(head + 1)
    head.version, head.zero, head.row_count = version, 0, <uint32_t>count
    for row in range(count):
        one = rows[row]
        to[row].group, to[row].outcome, to[row].error = one[0], one[1], one[2]
        to[row].first_seq, to[row].head_seq = one[3], one[4]
        to[row].sync_us, to[row].throttle_us = one[5], one[6]
    memcpy(to + count, PyBytes_AS_STRING(errors), PyBytes_GET_SIZE(errors))
    return frame


def decode_reply(uint16_t version, bytes frame not None):
    """The rows, and where the errors begin."""
    cdef const char *start = PyBytes_AS_STRING(frame)
    cdef uint64_t length = PyBytes_GET_SIZE(frame)
    cdef uint64_t errors_at
    cdef uint32_t row
    cdef ReplyHead head
    cdef const ReplyRow *rows
    cdef list found = []
    if length < sizeof(ReplyHead):
        raise ValueError("a reply that is cut off")
    memcpy(&head, start, sizeof(ReplyHead))
    if head.version != version:
        raise ValueError(f"a reply of version {head.version}")
    if head.row_count == 0:
        raise ValueError("a reply without rows")
    errors_at = sizeof(ReplyHead) + <uint64_t>head.row_count * sizeof(ReplyRow)
    if errors_at > length:
        raise ValueError("a reply that is cut off")
    rows = <const ReplyRow *>(start + sizeof(ReplyHead))
    for row in range(head.row_count):
        if rows[row].outcome >= OUTCOMES:
            raise ValueError("an outcome that there is not")
        found.append((
            rows[row].group, rows[row].outcome, rows[row].error,
            rows[row].first_seq, rows[row].head_seq, rows[row].sync_us, rows[row].throttle_us,
        ))
    return found, errors_at
