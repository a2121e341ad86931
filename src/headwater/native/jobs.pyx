# cython: boundscheck=False, wraparound=False, cdivision=True
"""Slots of an index, and who holds which job: the loops that run once for every job of a claim.

The twins are in `headwater.model.slots` and
`headwater.model.queue.held`, which say what the entries and the dicts mean.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError, PyDict_SetItem
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from headwater.native.layouts cimport Entry


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
    while at < end and slots[at].flags_check & DEAD:
        at += 1
    return at


def all_alive(bytearray buffer not None, Py_ssize_t first, Py_ssize_t end):
    """Every one of the slots [first, end) is alive."""
    cdef Entry *slots = _slots(buffer, first, end)
    cdef Py_ssize_t at
    for at in range(first, end):
        if slots[at].flags_check & DEAD:
            return False
    return True


def kill_run(bytearray buffer not None, Py_ssize_t first, Py_ssize_t end):
    """Mark the slots [first, end) dead; gives the sum of their lengths. If one of them is dead
    already, nothing is done and the answer is -1."""
    cdef Entry *slots = _slots(buffer, first, end)
    cdef Py_ssize_t at
    cdef int64_t total = 0
    for at in range(first, end):
        if slots[at].flags_check & DEAD:
            return -1
        total += slots[at].length
    for at in range(first, end):
        slots[at].flags_check |= DEAD
    return total


def is_run(list seqs not None):
    """Every one is the next after the one before."""
    cdef Py_ssize_t count = len(seqs)
    cdef Py_ssize_t at
    cdef int64_t before
    cdef int64_t now
    if count == 0:
        return False
    before = seqs[0]
    for at in range(1, count):
        now = seqs[at]
        if now != before + 1:
            return False
        before = now
    return True


def hold(dict holders not None, seqs, grant):
    """Every one of these jobs is held by this grant."""
    for seq in seqs:
        PyDict_SetItem(holders, seq, grant)


cdef object _one(dict holders, list seqs):
    cdef PyObject *first = NULL
    cdef PyObject *holder
    cdef int64_t before = -1
    cdef int64_t now
    for seq in seqs:
        holder = PyDict_GetItemWithError(holders, seq)
        if holder is NULL or (first is not NULL and holder is not first):
            return None
        first = holder
        if not PyLong_CheckExact(seq):  # what is as good as a seq may be named in more ways
            return None
        now = seq
        if now <= before:
            return None
        before = now
    return None if first is NULL else <object>first


def one_holder(dict holders not None, list seqs not None):
    """Who holds all of these, when they ascend, which is how most workers name them. None when
    they do not, or are not held, or not by one."""
    return _one(holders, seqs)


def move(dict source not None, dict target not None, list seqs not None):
    """Take these jobs, all of which are there, from one dictionary to another."""
    cdef PyObject *holder
    for seq in seqs:
        holder = PyDict_GetItemWithError(source, seq)
        if holder is NULL:
            raise KeyError(seq)
        PyDict_SetItem(target, seq, <object>holder)
        PyDict_DelItem(source, seq)


def let_go_together(dict holders not None, list seqs not None):
    """Take these jobs out and give who held them, when it was one who held all of them. None, and
    nothing is done, when it was not."""
    one = _one(holders, seqs)
    if one is not None:
        for seq in seqs:
            PyDict_DelItem(holders, seq)
    return one
