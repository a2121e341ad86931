# cython: boundscheck=False, wraparound=False, cdivision=True
"""Two files synced at the same time, in one call that holds no interpreter.

The twin is one sync after the other, in `headwater.disk.whole_files`. Two threads of Python could
do it as well, but each would wait for the interpreter before its sync and after it. A thread of our
own carries out the second sync. It is made once and kept: to make one for each sync takes as long
as the sync of a quick disk.
"""

from libc.errno cimport EINTR, errno
from posix.types cimport pid_t
from posix.unistd cimport getpid


cdef extern from "<unistd.h>" nogil:
    int fdatasync(int)


cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t *)


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t *, const void *, void *(*)(void *) noexcept nogil, void *)
    int pthread_detach(pthread_t)
    int pthread_mutex_init(pthread_mutex_t *, const void *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_cond_init(pthread_cond_t *, const void *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_signal(pthread_cond_t *)
    int pthread_sigmask(int, const sigset_t *, sigset_t *)


cdef enum State:
    IDLE
    REQUESTED
    DONE


cdef struct Sync:
    int descriptor
    int error


cdef pthread_mutex_t lock
cdef pthread_cond_t requested, answered
cdef State state
cdef Sync given
cdef pid_t owner = 0
"""The process that has the thread: a child that was forked has none."""
cdef bint taken = False
"""The thread is busy with a sync. Only read and changed with the interpreter."""


cdef void carry_out(Sync *work) noexcept nogil:
    while fdatasync(work.descriptor) != 0:
        if errno != EINTR:
            work.error = errno
            break


cdef void *help(void *nothing) noexcept nogil:
    """What the thread does: one sync for each request, for as long as the process lives."""
    global state
    pthread_mutex_lock(&lock)
    while True:
        while state != REQUESTED:
            pthread_cond_wait(&requested, &lock)
        pthread_mutex_unlock(&lock)
        carry_out(&given)
        pthread_mutex_lock(&lock)
        state = DONE
        pthread_cond_signal(&answered)


cdef bint find_help() noexcept:
    """Whether there is a thread; it is made when there is none. It takes no signals."""
    global owner, state
    cdef pthread_t thread
    cdef sigset_t every, before
    cdef int failed
    if owner == getpid():
        return True
    state = IDLE
    if pthread_mutex_init(&lock, NULL) or pthread_cond_init(&requested, NULL):
        return False
    if pthread_cond_init(&answered, NULL) or sigfillset(&every):
        return False
    if pthread_sigmask(SIG_SETMASK, &every, &before):
        return False
    failed = pthread_create(&thread, NULL, help, NULL)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    if failed:
        return False
    pthread_detach(thread)
    owner = getpid()
    return True


def sync_together(int first, int second):
    """fdatasync of both. The errno of each, 0 where it went well; returns when both are through."""
    global taken, given, state
    cdef Sync one, other
    cdef bint alone
    one.descriptor, one.error = first, 0
    other.descriptor, other.error = second, 0
    # No more threads to be had, or it is busy just now: one after the other.
    alone = taken or not find_help()
    if not alone:
        taken = True
    with nogil:
        if alone:
            carry_out(&other)
        else:
            pthread_mutex_lock(&lock)
            given = other
            state = REQUESTED
            pthread_cond_signal(&requested)
            pthread_mutex_unlock(&lock)
        carry_out(&one)
        if not alone:
            pthread_mutex_lock(&lock)
            while state != DONE:
                pthread_cond_wait(&answered, &lock)
            state = IDLE
            other = given
            pthread_mutex_unlock(&lock)
    if not alone:
        taken = False
    return one.error, other.error
