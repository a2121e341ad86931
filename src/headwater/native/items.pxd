# Tickets that wait, are in a group, or wait to be collected, as the thread without the interpreter
# sees them. Whoever puts them in or takes them out holds the interpreter: references are counted there.

from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc


cdef struct Item:
    PyObject *ticket
    PyObject *body
    const char *data
    int64_t size
    int64_t frames
    int64_t writers
    uint64_t last_frame
    bint plain


cdef struct Items:
    Item *items
    size_t first, count, room


cdef inline void move_to_front(Items *items) noexcept nogil:
    cdef size_t at
    for at in range(items.count):
        items.items[at] = items.items[items.first + at]
    items.first = 0


cdef inline bint reserve(Items *items, size_t more) noexcept nogil:
    """Have room behind those that are here."""
    cdef size_t room
    cdef Item *moved
    if items.first and items.first + items.count + more > items.room:
        move_to_front(items)
    if items.count + more > items.room:
        room = max(2 * items.room, items.count + more, 64)
        moved = <Item *>realloc(items.items, room * sizeof(Item))
        if moved == NULL:
            return False
        items.items, items.room = moved, room
    return True


cdef inline void append(Items *items, Item *item) noexcept nogil:
    items.items[items.first + items.count] = item[0]
    items.count += 1


cdef inline list given_out(Items *items):
    """All of them, with what became of them; they are nobody's here any more. Not with the lock:
    to make a list may run anything."""
    cdef Item *item
    tickets = []
    while items.count:
        item = &items.items[items.first]
        ticket = <object>item.ticket
        if item.last_frame:
            ticket.last_frame = item.last_frame
        tickets.append(ticket)
        Py_DECREF(<object>item.ticket)
        Py_DECREF(<object>item.body)
        items.first += 1
        items.count -= 1
    free(items.items)
    return tickets


cdef inline void release(Items *items):
    cdef size_t at
    for at in range(items.first, items.first + items.count):
        Py_DECREF(<object>items.items[at].ticket)
        Py_DECREF(<object>items.items[at].body)
    free(items.items)
