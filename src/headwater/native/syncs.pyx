# cython: boundscheck=False, wraparound=False, cdivision=True
"""Two files synced at the same time, in one call that holds no interpreter.

The twin is one sync after the other, in `headwater.disk.whole`. Two threads of Python could do it
as well, but each would wait for the interpreter before its sync and after it.
"""

from libc.errno cimport EINTR, errno


cdef extern from "<unistd.h>" nogil:
    int fdatasync(int)


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    int pthread_create(pthread_t *, const void *, void *(*)(void *) noexcept nogil, void *)
    int pthread_join(pthread_t, void **)


cdef struct Sync:
    int descriptor
    int error


cdef void *carry_out(void *given) noexcept nogil:
    cdef Sync *work = <Sync *>given
    while fdatasync(work.descriptor) != 0:
        if errno != EINTR:
            work.error = errno
            break
    return NULL


def sync_together(int first, int second):
    """fdatasync of both. The errno of each, 0 where it went well; returns when both are through."""
    cdef Sync one, other
    cdef pthread_t thread
    cdef bint alone
    one.descriptor, one.error = first, 0
    other.descriptor, other.error = second, 0
    with nogil:
        alone = pthread_create(&thread, NULL, carry_out, &one) != 0
        carry_out(&other)
        if alone:  # no more threads to be had: one after the other
            carry_out(&one)
        else:
            pthread_join(thread, NULL)
    return one.error, other.error
