# cython: boundscheck=False, wraparound=False, cdivision=True
"""Groups written and synced without the interpreter.

The twins are `headwater.wal.queue` and the common case of `headwater.wal.committer` over
`headwater.wal.frame_log`; they say what is right. A thread of Python
calls `serve` and is back when something is left to Python: another file, a class of tickets that
is answered before its sync, a failure, a task, time that makes something due. In between it holds
no interpreter: it takes what waits, writes mark and frames, syncs, and rings the descriptor that
the owner watches. Whoever gives and collects tickets holds the interpreter, so their references
are counted there, and the lock is held for a few instructions and never over a system call.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact
from cpython.ref cimport Py_INCREF, Py_DECREF, PyObject
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.types cimport off_t
from posix.unistd cimport close, read, write

from headwater.native.items cimport Item, Items, append, given_out, release, reserve
from headwater.native.window cimport CommitWindow
from headwater.native.xxh3 cimport XXH3_64bits


cdef extern from "<unistd.h>" nogil:
    int fdatasync(int)


cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t pwritev(int, const iovec *, int, off_t)


cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC
    int EFD_NONBLOCK
    int eventfd(unsigned int, int)


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, const void *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_condattr_init(pthread_condattr_t *)
    int pthread_condattr_setclock(pthread_condattr_t *, int)
    int pthread_cond_init(pthread_cond_t *, const pthread_condattr_t *)
    int pthread_cond_destroy(pthread_cond_t *)
    int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *)
    int pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const timespec *)
    int pthread_cond_signal(pthread_cond_t *)


cdef enum:
    COMMIT_MARK = 12
    FORMAT_VERSION = 1
    BUCKETS_MAX = 32
    NOTED_MAX = 64  # long waits until Python comes for them, which it does with every answer


cdef enum Stage:
    STAGE_IDLE
    STAGE_LEFT
    STAGE_COMMITTED
    STAGE_WRITE_FAILED
    STAGE_SYNC_FAILED


IDLE = STAGE_IDLE
"""Nothing was taken: a task, the end, or time that makes something due."""
LEFT = STAGE_LEFT
"""The group is for Python: nothing of it was written."""
COMMITTED = STAGE_COMMITTED
"""Written and synced, and nobody watches the descriptor."""
WRITE_FAILED = STAGE_WRITE_FAILED
"""As LEFT, and why."""
SYNC_FAILED = STAGE_SYNC_FAILED
"""Written, and not known to be synced."""

cdef enum Refusal:
    REFUSAL_NONE
    REFUSAL_CLOSED
    REFUSAL_FULL


CLOSED = REFUSAL_CLOSED
FULL = REFUSAL_FULL


cdef enum Waited:
    WAITED_COMPANY
    WAITED_THREAD
    WAITED_QUEUE
    WAITED_WRITE
    WAITED_SYNC
    WAITED_ANSWERS


FOR_COMPANY, FOR_THREAD, FOR_QUEUE, FOR_WRITE, FOR_SYNC, FOR_ANSWERS = (
    <int>WAITED_COMPANY, <int>WAITED_THREAD, <int>WAITED_QUEUE,
    <int>WAITED_WRITE, <int>WAITED_SYNC, <int>WAITED_ANSWERS,
)
"""What a long wait was for: `headwater.observe.waits` has the causes."""


cdef struct Noted:
    Waited reason
    int64_t started_us, ended_us, amount


cdef packed struct Mark:
    uint32_t frame_len
    uint8_t type
    uint8_t flags
    uint64_t topic_id
    uint64_t seq
    uint64_t ts
    uint16_t node_len
    uint16_t tag_len
    uint32_t data_len
    uint16_t version
    uint16_t kind
    uint32_t frame_count
    uint64_t body_bytes
    uint64_t body_hash
    uint64_t run
    uint64_t log_id
    uint64_t file_frame
    uint64_t file_bytes
    uint64_t frame
    uint64_t offset
    uint64_t durable_offset
    uint64_t chain
    uint64_t checksum


cdef struct Counts:
    int64_t groups, submissions, frames, bytes, syncs, sync_us, sync_us_last, throttle_us_last
    int64_t buckets[BUCKETS_MAX]


cdef int write_all(int file, iovec *parts, int count, off_t at) noexcept nogil:
    """An errno, 0 where all bytes were taken."""
    cdef ssize_t step
    while count:
        step = pwritev(file, parts, count, at)
        if step < 0:
            if errno == EINTR:
                continue
            return errno
        if step == 0:
            return EIO
        at += step
        while count and <size_t>step >= parts.iov_len:
            step -= parts.iov_len
            parts += 1
            count -= 1
        if count:
            parts.iov_base = <char *>parts.iov_base + step
            parts.iov_len -= step
    return 0


cdef int64_t now_us() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef uint64_t wall_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <uint64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


@cython.final
cdef class GroupWriter:
    cdef pthread_mutex_t lock
    cdef pthread_cond_t bell
    cdef Items waiting, group, done
    cdef readonly CommitWindow window
    cdef int64_t submissions_max, bytes_max, group_frames_max, group_bytes_max
    cdef int64_t idle_after_us
    # -- the queue
    cdef int64_t frames, bytes, writers_, arrived, wake_at
    cdef int64_t peak
    cdef bint closed_, attention
    # -- the file that is lent
    cdef int file
    cdef readonly uint64_t offset, durable_offset, next_frame, chain
    cdef uint64_t number, file_bytes, limit, run, log_id
    cdef char *joined
    cdef size_t joined_room
    # -- what happened
    cdef readonly int error
    cdef readonly int64_t written_us, written_bytes, throttle_us, sync_us
    cdef readonly uint64_t written_frame, synced_frame
    cdef Counts counts
    cdef int64_t bounds[BUCKETS_MAX]
    cdef int bounds_n
    cdef readonly int descriptor
    cdef bint watched
    # -- how long things took; nothing is noted when `wait_us_min` is 0
    cdef int64_t wait_us_min
    cdef int64_t started_us, first_us, queued_us, free_us, company_us, done_us
    cdef Noted noted[NOTED_MAX]
    cdef readonly int noted_count

    def __cinit__(self):
        cdef pthread_condattr_t monotonic
        memset(&self.waiting, 0, sizeof(Items))
        memset(&self.group, 0, sizeof(Items))
        memset(&self.done, 0, sizeof(Items))
        self.descriptor = -1
        pthread_mutex_init(&self.lock, NULL)
        pthread_condattr_init(&monotonic)
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC)
        pthread_cond_init(&self.bell, &monotonic)

    def __init__(
        self,
        CommitWindow window,
        *,
        int64_t submissions_max,
        int64_t bytes_max,
        int64_t group_frames_max,
        int64_t group_bytes_max,
        int64_t idle_after_us,
        int64_t wait_us_min,
        bounds,
    ):
        if len(bounds) >= BUCKETS_MAX:
            raise ValueError("too many buckets")
        self.window = window
        self.submissions_max, self.bytes_max = submissions_max, bytes_max
        self.group_frames_max, self.group_bytes_max = group_frames_max, group_bytes_max
        self.idle_after_us = idle_after_us
        self.wait_us_min = wait_us_min
        self.bounds_n = len(bounds)
        for at, bound in enumerate(bounds):
            self.bounds[at] = bound

    def __dealloc__(self):
        release(&self.waiting)
        release(&self.group)
        release(&self.done)
        free(self.joined)
        if self.descriptor >= 0:
            close(self.descriptor)
        pthread_cond_destroy(&self.bell)
        pthread_mutex_destroy(&self.lock)

    # -- the queue, by whoever holds the interpreter

    def __len__(self):
        return self.waiting.count

    @property
    def writers(self):
        return self.writers_

    @property
    def waiting_bytes(self):
        return self.bytes

    @property
    def fill(self):
        return max(self.writers_ / <double>self.submissions_max, self.bytes / <double>self.bytes_max)

    @property
    def closed(self):
        return self.closed_

    def put(self, ticket, body, int64_t frames, int64_t writers, bint held):
        """0, or why it is refused: CLOSED, FULL. `held` when its answer waits for the sync."""
        cdef Item item
        cdef int64_t depth, size
        cdef bint wake = False
        item.ticket, item.body = <PyObject *>ticket, <PyObject *>body
        item.plain = held and PyBytes_CheckExact(body)
        item.data = PyBytes_AS_STRING(body) if item.plain else NULL
        item.size = size = len(body)
        item.frames, item.writers, item.last_frame = frames, writers, 0
        pthread_mutex_lock(&self.lock)
        depth = self.writers_ + writers
        if self.closed_ or depth > self.submissions_max or (
            self.bytes + size > self.bytes_max and self.waiting.count
        ):
            pthread_mutex_unlock(&self.lock)
            return <int>REFUSAL_CLOSED if self.closed_ else <int>REFUSAL_FULL
        if not reserve(&self.waiting, 1):
            pthread_mutex_unlock(&self.lock)
            raise MemoryError
        if not self.waiting.count:
            self.first_us = now_us()
        append(&self.waiting, &item)
        Py_INCREF(ticket)
        Py_INCREF(body)
        self.frames += frames
        self.bytes += size
        self.writers_ = depth
        self.arrived += writers
        self.peak = max(self.peak, depth)
        if 0 < self.window.returns.due <= self.arrived:
            self.window.returns.returned(now_us())
        if 0 < self.wake_at <= depth:
            self.wake_at = 0
            wake = True
        pthread_mutex_unlock(&self.lock)
        if wake:
            pthread_cond_signal(&self.bell)
        return <int>REFUSAL_NONE

    def ring(self):
        """Have `serve` come back soon."""
        pthread_mutex_lock(&self.lock)
        self.attention = True
        pthread_mutex_unlock(&self.lock)
        pthread_cond_signal(&self.bell)

    def close(self):
        """Refuse further tickets."""
        pthread_mutex_lock(&self.lock)
        self.closed_ = self.attention = True
        pthread_mutex_unlock(&self.lock)
        pthread_cond_signal(&self.bell)

    def drain(self):
        """All tickets that wait."""
        cdef Items moved
        pthread_mutex_lock(&self.lock)
        self.frames = self.bytes = self.writers_ = 0
        moved = self.waiting
        memset(&self.waiting, 0, sizeof(Items))
        pthread_mutex_unlock(&self.lock)
        return given_out(&moved)

    # -- the owner

    def watch(self):
        """A descriptor that becomes readable when there is something to collect."""
        self.descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(errno, "eventfd")
        return self.descriptor

    def watched_from_now(self, bint watched):
        """Whether somebody comes when it becomes readable."""
        pthread_mutex_lock(&self.lock)
        self.watched = watched
        pthread_mutex_unlock(&self.lock)

    def hand_over(self, tickets):
        """Tickets that Python answered, behind those that wait to be collected. False, with
        nothing kept, when nobody watches."""
        cdef Item item
        cdef uint64_t one = 1
        cdef list given = list(tickets)
        memset(&item, 0, sizeof(Item))
        pthread_mutex_lock(&self.lock)
        if not self.watched or not reserve(&self.done, len(given)):
            pthread_mutex_unlock(&self.lock)
            return False
        if not self.done.count:
            self.done_us = now_us()
        for ticket in given:
            item.ticket = item.body = <PyObject *>ticket
            Py_INCREF(ticket)
            Py_INCREF(ticket)
            append(&self.done, &item)
        pthread_mutex_unlock(&self.lock)
        write(self.descriptor, &one, sizeof(one))
        return True

    def collect(self):
        """Tickets whose groups are committed, in order, and those that were handed over."""
        cdef uint64_t rung
        cdef Items moved
        if self.descriptor >= 0:
            read(self.descriptor, &rung, sizeof(rung))
        pthread_mutex_lock(&self.lock)
        moved = self.done
        memset(&self.done, 0, sizeof(Items))
        if moved.count:
            self.note(WAITED_ANSWERS, self.done_us, now_us(), moved.count)
        pthread_mutex_unlock(&self.lock)
        return given_out(&moved)

    def long_waits(self):
        """What took long since the last call: what for, when it began and ended, how much."""
        cdef Noted noted[NOTED_MAX]
        cdef int count, at
        pthread_mutex_lock(&self.lock)
        count = self.noted_count
        memcpy(noted, self.noted, count * sizeof(Noted))
        self.noted_count = 0
        pthread_mutex_unlock(&self.lock)
        return [
            (<int>noted[at].reason, noted[at].started_us, noted[at].ended_us, noted[at].amount)
            for at in range(count)
        ]

    def add_to(self, counters):
        """What was counted since the last call."""
        cdef Counts counts
        cdef int bucket
        if self.peak > counters.queue_depth_peak:
            counters.queue_depth_peak = self.peak
        if not self.counts.groups:
            return
        pthread_mutex_lock(&self.lock)
        counts = self.counts
        memset(&self.counts, 0, sizeof(Counts))
        pthread_mutex_unlock(&self.lock)
        counters.groups += counts.groups
        counters.submissions += counts.submissions
        counters.frames += counts.frames
        counters.bytes_written += counts.bytes
        counters.syncs += counts.syncs
        counters.sync_us_total += counts.sync_us
        counters.sync_us_last = counts.sync_us_last
        counters.throttle_us_last = counts.throttle_us_last
        for bucket in range(self.bounds_n + 1):
            if counts.buckets[bucket]:
                counters.sync_us_buckets[bucket] += counts.buckets[bucket]

    # -- the thread

    def lend(
        self,
        int file,
        uint64_t offset,
        uint64_t durable_offset,
        uint64_t next_frame,
        uint64_t chain,
        uint64_t number,
        uint64_t file_bytes,
        uint64_t limit,
        uint64_t run,
        uint64_t log_id,
    ):
        """Where to write: as far as `limit`."""
        self.file, self.offset, self.durable_offset = file, offset, durable_offset
        self.next_frame, self.chain, self.number = next_frame, chain, number
        self.file_bytes, self.limit, self.run, self.log_id = file_bytes, limit, run, log_id

    def serve(self, bint lent, tick_at_us):
        """Commit groups until something is left to Python: says what, a `Stage`."""
        cdef int64_t tick_at = -1 if tick_at_us is None else tick_at_us
        cdef int stage
        self.error = 0
        with nogil:
            stage = self.work(lent, tick_at)
        return stage

    def observe(self, int64_t held, int64_t sync_us):
        """Python committed the group, and so many waited for its sync."""
        pthread_mutex_lock(&self.lock)
        self.answered(held, sync_us)
        self.free_us = now_us()
        pthread_mutex_unlock(&self.lock)

    def taken(self):
        """The tickets of the group that `serve` took."""
        cdef Items moved = self.group
        memset(&self.group, 0, sizeof(Items))
        return given_out(&moved)

    cdef int work(self, bint lent, int64_t tick_at) noexcept nogil:
        cdef int stage
        cdef uint64_t one = 1
        cdef int64_t held
        while True:
            pthread_mutex_lock(&self.lock)
            if not self.await_group(tick_at):
                self.attention = False
                pthread_mutex_unlock(&self.lock)
                return STAGE_IDLE
            if not reserve(&self.group, self.waiting.count):
                pthread_mutex_unlock(&self.lock)
                return STAGE_IDLE  # no memory now: the tickets wait
            self.take_group()
            self.note_taken()
            pthread_mutex_unlock(&self.lock)
            if not lent or not self.is_common():
                return STAGE_LEFT
            stage = self.commit()
            if stage != STAGE_COMMITTED:
                return stage
            tick_at = self.written_us + self.idle_after_us
            pthread_mutex_lock(&self.lock)
            held = self.count_group()
            self.note(WAITED_WRITE, self.started_us, self.written_us, self.written_bytes)
            self.note(WAITED_SYNC, self.written_us, self.written_us + self.sync_us, held)
            self.answered(held, self.sync_us)
            self.free_us = now_us()
            # Room is made now: a collector takes the whole list with it.
            if not self.watched or not reserve(&self.done, self.group.count):
                pthread_mutex_unlock(&self.lock)
                return stage
            if not self.done.count:
                self.done_us = self.free_us
            while self.group.count:
                append(&self.done, &self.group.items[self.group.first])
                self.group.first += 1
                self.group.count -= 1
            self.group.first = 0
            pthread_mutex_unlock(&self.lock)
            write(self.descriptor, &one, sizeof(one))

    cdef void answered(self, int64_t held, int64_t sync_us) noexcept nogil:
        # Who came during the sync is not among those it answered: both are out there.
        self.window.observe(held + self.writers_, sync_us)
        self.window.returns.answered(held, self.arrived, now_us())

    cdef bint await_group(self, int64_t tick_at) noexcept nogil:
        """Sleep until a group is here that is worth a sync. False when Python has work first."""
        cdef int64_t wait_us, relaxed_us, began_us, waited_us
        self.throttle_us = self.company_us = 0
        while not self.attention:
            wait_us = self.window.wait_us(self.writers_)
            if wait_us and not self.closed_:
                relaxed_us = self.window.relaxed_us(self.writers_)
                began_us = now_us()
                self.park(self.window.expected, began_us + wait_us)
                waited_us = now_us() - began_us
                if self.writers_:
                    self.throttle_us += max(waited_us - relaxed_us, 0)
                    self.company_us += began_us + waited_us - max(began_us, self.first_us)
                if waited_us >= wait_us and self.writers_ < self.window.expected:
                    self.window.only(self.writers_)
            if self.waiting.count:
                return True
            if self.attention or self.closed_:
                return False
            self.throttle_us = self.company_us = 0
            self.park(1, tick_at)
            if 0 <= tick_at <= now_us():
                self.window.only(self.writers_)
            if not self.waiting.count:
                return False
        return False

    cdef void park(self, int64_t wake_at, int64_t until_us) noexcept nogil:
        cdef timespec until
        until.tv_sec, until.tv_nsec = until_us // 1000000, until_us % 1000000 * 1000
        while self.writers_ < wake_at and not self.attention:
            self.wake_at = wake_at
            if until_us < 0:
                pthread_cond_wait(&self.bell, &self.lock)
            elif now_us() >= until_us:
                break
            else:
                pthread_cond_timedwait(&self.bell, &self.lock, &until)
        self.wake_at = 0

    cdef void take_group(self) noexcept nogil:
        cdef int64_t frames = 0, size = 0
        cdef Item *item
        while self.waiting.count:
            item = &self.waiting.items[self.waiting.first]
            frames += item.frames
            size += item.size
            if self.group.count and (frames > self.group_frames_max or size > self.group_bytes_max):
                return
            append(&self.group, item)
            self.waiting.first += 1
            self.waiting.count -= 1
            self.frames -= item.frames
            self.bytes -= item.size
            self.writers_ -= item.writers
        self.waiting.first = 0

    cdef void note(
        self, Waited reason, int64_t started_us, int64_t ended_us, int64_t amount
    ) noexcept nogil:
        """With the lock. What comes when there is no room is not kept."""
        cdef Noted *noted = &self.noted[self.noted_count]
        if not 0 < self.wait_us_min <= ended_us - started_us or self.noted_count == NOTED_MAX:
            return
        noted.reason, noted.amount = reason, amount
        noted.started_us, noted.ended_us = started_us, ended_us
        self.noted_count += 1

    cdef void note_taken(self) noexcept nogil:
        """With the lock: a group was taken just now."""
        cdef int64_t taken_us = now_us(), since_us = max(self.first_us, self.free_us)
        self.note(WAITED_COMPANY, taken_us - self.company_us, taken_us, self.group.count)
        self.note(WAITED_THREAD, since_us, taken_us - self.company_us, self.group.count)
        if self.queued_us:
            self.note(WAITED_QUEUE, self.queued_us, taken_us, self.group.count)
        self.queued_us = self.first_us if self.waiting.count else 0
        self.first_us = taken_us

    cdef bint is_common(self) noexcept nogil:
        """Every answer waits for the sync, and there is room."""
        cdef size_t at
        cdef uint64_t size = sizeof(Mark)
        for at in range(self.group.count):
            if not self.group.items[at].plain:
                return False
            size += self.group.items[at].size
        return self.offset + size <= self.limit

    cdef int commit(self) noexcept nogil:
        cdef Mark mark
        cdef iovec parts[2]
        cdef size_t size = 0, at
        cdef uint64_t frame = self.next_frame
        cdef Item *item
        for at in range(self.group.count):
            item = &self.group.items[at]
            frame += item.frames
            item.last_frame = frame
            size += item.size
        if not self.join(&parts[1], size):
            return STAGE_LEFT
        memset(&mark, 0, sizeof(Mark))
        mark.frame_len = sizeof(Mark) - sizeof(mark.frame_len)
        mark.type = COMMIT_MARK
        mark.ts = wall_ms()
        mark.data_len = sizeof(Mark) - 38 - sizeof(mark.checksum)
        mark.version = FORMAT_VERSION
        mark.frame_count = <uint32_t>(frame - self.next_frame)
        mark.body_bytes, mark.body_hash = size, XXH3_64bits(parts[1].iov_base, size)
        mark.run, mark.log_id = self.run, self.log_id
        mark.file_frame, mark.file_bytes = self.number, self.file_bytes
        mark.frame, mark.offset = self.next_frame, self.offset
        mark.durable_offset, mark.chain = self.durable_offset, self.chain
        mark.checksum = XXH3_64bits(<char *>&mark + 4, sizeof(Mark) - 4 - sizeof(mark.checksum))
        parts[0].iov_base, parts[0].iov_len = &mark, sizeof(Mark)
        self.started_us = now_us()
        self.error = write_all(self.file, parts, 2 if size else 1, self.offset)
        if self.error:
            return STAGE_WRITE_FAILED
        self.chain = XXH3_64bits(&mark, sizeof(Mark))
        self.written_bytes = sizeof(Mark) + size
        self.offset += self.written_bytes
        self.next_frame = frame + 1
        self.written_frame = frame
        self.written_us = now_us()
        while fdatasync(self.file) != 0:
            if errno != EINTR:
                self.error = errno
                return STAGE_SYNC_FAILED
        self.sync_us = now_us() - self.written_us
        self.durable_offset = self.offset
        self.synced_frame = frame
        return STAGE_COMMITTED

    cdef bint join(self, iovec *part, size_t size) noexcept nogil:
        cdef size_t at = 0, row
        cdef char *room
        cdef Item *item = self.group.items
        if self.group.count == 1:
            part.iov_base, part.iov_len = <void *>item.data, size
            return True
        if size > self.joined_room:
            room = <char *>realloc(self.joined, size)
            if room == NULL:
                return False
            self.joined, self.joined_room = room, size
        for row in range(self.group.count):
            item = &self.group.items[row]
            memcpy(self.joined + at, item.data, item.size)
            at += item.size
        part.iov_base, part.iov_len = self.joined, size
        return True

    cdef int64_t count_group(self) noexcept nogil:
        """Into the counters; how many wait for the answer."""
        cdef int64_t held = 0, size = sizeof(Mark), frames = 1
        cdef size_t at
        cdef int bucket = 0
        cdef Counts *counts = &self.counts
        for at in range(self.group.count):
            held += self.group.items[at].writers
            size += self.group.items[at].size
            frames += self.group.items[at].frames
        counts.groups += 1
        counts.submissions += self.group.count
        counts.frames += frames
        counts.bytes += size
        counts.syncs += 1
        counts.sync_us += self.sync_us
        counts.sync_us_last = self.sync_us
        counts.throttle_us_last = self.throttle_us
        while bucket < self.bounds_n and self.bounds[bucket] < self.sync_us:
            bucket += 1
        counts.buckets[bucket] += 1
        return held
