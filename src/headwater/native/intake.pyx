# cython: boundscheck=False, wraparound=False, cdivision=True
"""What every socket that has something was sent, read in one go that holds no interpreter.

The twin is `headwater.server.intake.receive`, which says what the answer means.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_wait(int descriptor, epoll_event *events, int events_max, int timeout_ms)


cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *now)


cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <poll.h>
    """
    struct pollfd:
        int fd
        short events
    short POLLIN
    int ppoll(pollfd *descriptors, unsigned long count, const timespec *timeout, const void *mask)


cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT
    ssize_t recv(int descriptor, void *buffer, size_t length, int flags)


cdef enum:
    READS_MAX = 512


cdef struct Read:
    int descriptor
    Py_ssize_t start
    ssize_t size


cdef int64_t _now_us() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000 + now.tv_nsec // 1_000


cdef int _read_ready(
    int epoll, unsigned char *room, Py_ssize_t room_bytes, Py_ssize_t each_max,
    Read *reads, int count,
) noexcept nogil:
    """Read from whoever is ready, behind the `count` reads there are; gives how many there are now.

    As many as there were before when nobody is ready, or there is no room."""
    cdef epoll_event events[READS_MAX]
    cdef Py_ssize_t used = 0
    cdef ssize_t size
    cdef int ready
    cdef int row
    if count:
        used = reads[count - 1].start + max(reads[count - 1].size, 0)
    if count == READS_MAX or room_bytes - used < each_max:
        return count
    ready = epoll_wait(epoll, events, READS_MAX - count, 0)
    for row in range(ready):
        if room_bytes - used < each_max:
            break
        size = recv(events[row].data.fd, room + used, each_max, MSG_DONTWAIT)
        if size < 0 and (errno == EAGAIN or errno == EINTR):
            continue
        reads[count].descriptor = events[row].data.fd
        reads[count].start = used
        reads[count].size = size
        used += max(size, 0)
        count += 1
        if size <= 0:
            break  # its end is told before anything is read from it again
    return count


def receive(
    int epoll,
    unsigned char[::1] room not None,
    Py_ssize_t each_max,
    int wanted,
    int quiet_us,
    int64_t longest_us,
):
    """Read once from every socket that is ready, as long as there is room for `each_max` bytes.
    With fewer than `wanted` of them, wait for more until nobody came for `quiet_us`, and
    for `longest_us` at most.

    Gives a list of (descriptor, bytes), with None instead of bytes for a socket that has ended or
    is broken. Nothing is said of one that had nothing after all.
    """
    cdef Read reads[READS_MAX]
    cdef Py_ssize_t room_bytes = room.shape[0]
    cdef unsigned char *bytes_read = &room[0] if room_bytes else NULL
    cdef timespec patience
    cdef pollfd waited
    cdef bint was_awaited = False
    cdef int64_t began_us
    cdef int count = 0
    cdef int now
    cdef int row
    cdef list found = []
    if each_max < 1 or each_max > room_bytes:
        raise ValueError(f"{each_max} bytes of each do not fit into {room_bytes}")
    if quiet_us < 0 or quiet_us >= 1_000_000:
        raise ValueError(f"{quiet_us} us is no time to wait")
    waited.fd, waited.events = epoll, POLLIN
    patience.tv_sec, patience.tv_nsec = 0, quiet_us * 1_000
    with nogil:
        began_us = _now_us()
        while True:
            now = _read_ready(epoll, bytes_read, room_bytes, each_max, reads, count)
            if now == count and was_awaited:
                break  # there is something for which there is no room
            was_awaited = now == count
            count = now
            if count >= wanted or (count and reads[count - 1].size <= 0):
                break
            if _now_us() - began_us >= longest_us:
                break
            if was_awaited and ppoll(&waited, 1, &patience, NULL) <= 0:
                break
    for row in range(count):
        if reads[row].size > 0:
            data = PyBytes_FromStringAndSize(<char *>bytes_read + reads[row].start, reads[row].size)
            found.append((reads[row].descriptor, data))
        else:
            found.append((reads[row].descriptor, None))
    return found
