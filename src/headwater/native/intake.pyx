# cython: boundscheck=False, wraparound=False, cdivision=True
"""What every socket that has something was sent, read in one go that holds no interpreter.

The twin is `headwater.server.intake.receive`, which says what the answer means.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_wait(int descriptor, epoll_event *events, int events_max, int timeout_ms)


cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT
    ssize_t recv(int descriptor, void *buffer, size_t length, int flags)


cdef enum:
    SOCKETS_MAX = 512
    NOTHING = -2  # of a socket that was ready, and had nothing when it was read


def receive(int epoll, unsigned char[::1] room not None, Py_ssize_t each_max):
    """Read once from every socket that is ready, as long as there is room for `each_max` bytes.

    Gives a list of (descriptor, bytes), with None instead of bytes for a socket that has ended or
    is broken.
    """
    cdef epoll_event events[SOCKETS_MAX]
    cdef ssize_t sizes[SOCKETS_MAX]
    cdef Py_ssize_t room_bytes = room.shape[0]
    cdef Py_ssize_t used = 0
    cdef ssize_t size
    cdef int ready
    cdef int row
    cdef int count = 0
    cdef list received = []
    if each_max < 1 or each_max > room_bytes:
        raise ValueError(f"{each_max} bytes of each do not fit into {room_bytes}")
    with nogil:
        ready = epoll_wait(epoll, events, SOCKETS_MAX, 0)
        while count < ready and room_bytes - used >= each_max:
            size = recv(events[count].data.fd, &room[used], each_max, MSG_DONTWAIT)
            if size > 0:
                used += size
            elif size < 0 and (errno == EAGAIN or errno == EINTR):
                size = NOTHING
            sizes[count] = size
            count += 1
    used = 0
    for row in range(count):
        size = sizes[row]
        if size > 0:
            data = PyBytes_FromStringAndSize(<char *>&room[used], size)
            received.append((events[row].data.fd, data))
            used += size
        elif size != NOTHING:
            received.append((events[row].data.fd, None))
    return received
