# cython: boundscheck=False, wraparound=False, cdivision=True
"""Slots of an index, and who holds which job: the loops that run once for every job of a claim.

The twins are in `headwater.model.slots` and `headwater.model.queue.holding`, which say what the
entries and the dicts mean.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_SetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef packed struct Entry:
    uint32_t offset
    uint32_t size
    uint64_t ts
    uint32_t flags


cdef enum:
    DEAD = 0x80


cdef Entry *_slots(bytearray buffer, Py_ssize_t first, Py_ssize_t end) except NULL:
    """The slots of a buffer; refused when it has no such."""
    cdef Py_ssize_t count = PyByteArray_GET_SIZE(buffer) // <Py_ssize_t>sizeof(Entry)
    if first < 0 or end < first or end > count:
        raise ValueError(f"no slots {first} to {end} in {count}")
    return <Entry *>PyByteArray_AS_STRING(buffer)


def first_alive(bytearray buffer not None, Py_ssize_t first, Py_ssize_t end):
    """The first of the slots [first, end) that is alive; `end` when there is none."""
    cdef Entry *slots = _slots(buffer, first, end)
    cdef Py_ssize_t at = first
    while at < end and slots[at].flags & DEAD:
        at += 1
    return at


def all_alive(bytearray buffer not None, Py_ssize_t first, Py_ssize_t end):
    """Every one of the slots [first, end) is alive."""
    cdef Entry *slots = _slots(buffer, first, end)
    cdef Py_ssize_t at
    for at in range(first, end):
        if slots[at].flags & DEAD:
            return False
    return True


def kill_run(bytearray buffer not None, Py_ssize_t first, Py_ssize_t end):
    """Mark the slots [first, end) dead; gives the sum of their lengths. If one of them is dead
    already, nothing is done and the answer is -1."""
    cdef Entry *slots = _slots(buffer, first, end)
    cdef Py_ssize_t at
    cdef int64_t total = 0
    for at in range(first, end):
        if slots[at].flags & DEAD:
            return -1
        total += slots[at].size
    for at in range(first, end):
        slots[at].flags |= DEAD
    return total


def pack_entries(lengths, times, flags):
    """Entries of live records that are in no segment yet, and the sum of their lengths. `times` is
    one for all of them, or one each."""
    return _pack_entries(
        list(lengths), times if isinstance(times, int) else list(times), list(flags)
    )


cdef tuple _pack_entries(list lengths, times, list flags):
    cdef Py_ssize_t count = len(lengths)
    cdef Py_ssize_t row
    cdef bint together = isinstance(times, int)
    cdef Entry entry
    cdef bytes packed
    cdef char *out
    cdef int64_t total = 0
    if len(flags) != count or not (together or len(times) == count):
        raise ValueError("the columns of a batch are equally long")
    packed = PyBytes_FromStringAndSize(NULL, count * sizeof(Entry))
    out = PyBytes_AS_STRING(packed)
    entry.offset = 0
    entry.ts = times if together else 0
    for row in range(count):
        entry.size = lengths[row]
        entry.flags = flags[row]
        if not together:
            entry.ts = (<list>times)[row]
        total += entry.size
        memcpy(out + row * sizeof(Entry), &entry, sizeof(Entry))
    return packed, total


def hold(dict holders not None, seqs, grant):
    """Every one of these jobs is held by this grant."""
    for seq in seqs:
        PyDict_SetItem(holders, seq, grant)


def one_holder(dict holders not None, list seqs not None):
    """Who holds all of these, when they ascend, which is how most workers name them. None when
    they do not, or are not held, or not by one."""
    cdef PyObject *first = NULL
    cdef PyObject *found
    cdef int64_t before = -1
    cdef int64_t now
    for seq in seqs:
        now = seq
        if now <= before:
            return None
        before = now
        found = PyDict_GetItemWithError(holders, seq)
        if found is NULL or (first is not NULL and found is not first):
            return None
        first = found
    return None if first is NULL else <object>first


def move(dict source not None, dict target not None, list seqs not None):
    """Take these jobs, all of which are there, from one place to another."""
    cdef PyObject *found
    for seq in seqs:
        found = PyDict_GetItemWithError(source, seq)
        if found is NULL:
            raise KeyError(seq)
        PyDict_SetItem(target, seq, <object>found)
        PyDict_DelItem(source, seq)


def let_go_together(dict holders not None, list seqs not None):
    """Take these jobs out and give who held them, when it was one who held all of them. None, and
    nothing is done, when it was not."""
    cdef PyObject *first = NULL
    cdef PyObject *found
    for seq in seqs:
        found = PyDict_GetItemWithError(holders, seq)
        if found is NULL or (first is not NULL and found is not first):
            return None
        first = found
    if first is NULL:
        return None
    grant = <object>first
    if grant is None or len(set(seqs)) != len(seqs):
        return None
    for seq in seqs:
        PyDict_DelItem(holders, seq)
    return grant
