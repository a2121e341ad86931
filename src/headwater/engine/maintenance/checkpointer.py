"""Checkpoints: from the log into segments, so that log files can go.

The order is the promise (I1, I7): record bytes, then index entries, both synced; then a
CheckpointMark in the log, synced; only then does memory change, and a log file is deleted only when
a snapshot covers its frames.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

import msgspec

from headwater.core.arrays import NDArray, load_arrays, numpy
from headwater.core.durability import Durability
from headwater.core.errors import DiskFullError, HeadwaterError
from headwater.core.units import MIB
from headwater.engine.maintenance.breaks import Breaks
from headwater.engine.owner import call_in_slices
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import TailChunk, Topic
from headwater.format.control_frames import (
    CheckpointEntry,
    RouterMark,
    encode_checkpoint_mark,
    encode_router_marks,
)
from headwater.format.segment import Entries, IndexFlag, WalSlice, encode_run, index_flags
from headwater.store.segment import Segment
from headwater.wal.sharded import shard_of
from headwater.wal.ticket import Ticket

RUN_BYTES_MAX: Final = 4 * MIB
"""How much is turned into segment bytes and synced at once: bounds memory, and how long a sync of
the log waits behind it."""

SLICE_BYTES_MAX: Final = MIB // 4
"""How much of it is joined at once: joining keeps other threads from running."""

CHUNKS_AT_ONCE: Final = 256
"""So many go to the cache in one step of the owner."""

_DEAD: Final = int(IndexFlag.DELETED | IndexFlag.LOST)


class TopicJob(msgspec.Struct):
    """What one topic has to put into segments, frozen at the cut."""

    topic: Topic
    first_seq: int
    last_seq: int
    chunks: list[TailChunk]
    entries: Entries | None
    """Copies of the index entries of these seqs: which are dead, and their times."""
    active: Segment | None
    flags: list[tuple[Segment, Entries, NDArray[numpy.int64]]]
    """Deleted records in segments whose files do not know it yet."""
    unflagged: int
    """How many of the topic's deletes these flags stand for."""
    evict_floor: int
    earliest_seq: int
    written: list[Segment] = msgspec.field(default_factory=list)
    runs: list[tuple[int, Entries]] = msgspec.field(default_factory=list)
    marks: list[RouterMark] = msgspec.field(default_factory=list)
    """How far its routers have come when it ends here."""


class Cut(msgspec.Struct):
    jobs: list[TopicJob]
    covered: list[int]
    """Per shard, the last frame that has taken effect at the cut."""
    is_full: bool


class Checkpointer:
    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def run(self, *, full: bool) -> Cut:
        """One checkpoint, on the maintenance thread. A full one takes everything published."""
        if self._core.dirty:
            load_arrays()  # here, where no request waits for it
        cut, topics = self._core.owner.call(lambda: self._cut(full=full))
        self._add_jobs(cut, topics)
        self._carry_out(cut)
        return cut

    def checkpoint(self, topics: Iterable[Topic]) -> None:
        """A checkpoint of these topics alone."""
        cut = Cut([], [], is_full=False)
        self._add_jobs(cut, topics)
        self._carry_out(cut)

    def _add_jobs(self, cut: Cut, topics: Iterable[Topic]) -> None:
        """What takes effect after the cut and before a topic's turn goes along with it."""

        def jobs() -> Iterator[None]:
            for topic in topics:
                if not topic.dropped:
                    cut.jobs.append(self._job(topic))
                    yield

        call_in_slices(self._core.owner, self._core.clock, jobs())

    def _carry_out(self, cut: Cut) -> None:
        core = self._core
        if not cut.jobs:
            return
        assert core.wal is not None
        if core.wal.poison is not None:
            # A mark that failed may be there after a restart: the files must stay as it says.
            raise core.wal.poison
        written, first_error = self._write_each(cut.jobs)
        if written:
            refused = self._mark(written)
            marked = []
            for job in written:
                error = refused.get(self._shard_of(job))
                if error is None:
                    marked.append(job)
                else:
                    _take_back(job, error)
            call_in_slices(core.owner, core.clock, self._finish(marked))
            first_error = next(iter(refused.values()), first_error)
        if first_error is not None:
            raise first_error

    def _write_each(self, jobs: Sequence[TopicJob]) -> tuple[list[TopicJob], Exception | None]:
        """Files of one topic that cannot be written to keep no other topic's records in memory.
        Gives what was written, and the first error: the log must keep all it has, then."""
        now, breaks = self._core.clock.wall_ms(), Breaks(self._core)
        written: list[TopicJob] = []
        first_error: Exception | None = None
        full: DiskFullError | None = None
        for job in jobs:
            if full is not None and job.chunks:
                continue  # nor is there room for this one; what was deleted needs none
            try:
                self._write(job, now, breaks)
            except (OSError, HeadwaterError) as error:
                _take_back(job, error)
                if isinstance(error, DiskFullError):
                    full = error
                first_error = first_error or error
            else:
                written.append(job)
        return written, full or first_error

    def _cut(self, *, full: bool) -> tuple[Cut, list[Topic]]:
        core = self._core
        least = 1 if full else core.settings.checkpoint_tail_bytes
        topics = []
        for topic in list(core.dirty.values()):
            if topic.dropped:
                core.dirty.pop(topic.topic_id, None)
            elif full or topic.tail_bytes >= least:
                topics.append(topic)
        return Cut([], [shard.published_frame for shard in core.shards], full), topics

    def _job(self, topic: Topic) -> TopicJob:
        log = topic.log
        first, last = topic.checkpointed_seq + 1, log.visible_seq
        if topic.logged_upto is not None:
            last = min(last, topic.logged_upto)  # what is ephemeral stays so
        flags = self._unflagged(topic)
        chunks: list[TailChunk] = []
        entries = None
        if topic.tail_bytes and topic.tail.first_seq is not None:
            # What was evicted before it reached a segment never goes there.
            first = max(first, topic.tail.first_seq, log.earliest_seq)
            if first <= last:
                chunks = list(topic.tail.chunks(first, last))
                entries = log.index.entries(first, last)
        return TopicJob(
            topic,
            first,
            last,
            chunks,
            entries,
            topic.active_segment,
            flags,
            len(topic.unflagged),
            log.evict_floor,
            log.earliest_seq,
            marks=_marks(topic, last),
        )

    def _unflagged(self, topic: Topic) -> list[tuple[Segment, Entries, NDArray[numpy.int64]]]:
        """Deleted seqs that lie in segments, by segment; those in the tail are written dead."""
        if not topic.unflagged:
            return []
        # Jobs that were done before a checkpoint came are in front, and in no segment: most of them
        # are sorted out before any is sorted.
        seqs = numpy.concatenate(topic.unflagged)
        last = topic.segments[-1].end_seq if topic.segments else 0
        seqs = numpy.unique(seqs[(seqs >= topic.log.index.base_seq) & (seqs <= last)])
        flagged = []
        for segment in topic.segments:
            low, high = numpy.searchsorted(seqs, (segment.first_seq, segment.end_seq + 1))
            here = seqs[low:high]
            if len(here):
                entries = topic.log.index.entries(int(here[0]), int(here[-1]))
                flagged.append((segment, entries, here))
        return flagged

    def _write(self, job: TopicJob, now: int, breaks: Breaks) -> None:
        files = job.topic.files
        for segment, entries, seqs in job.flags:
            files.flag_deleted(segment, entries, seqs)
            breaks.take()
        active = job.active
        for first_seq, slices in _runs(job):
            count = sum(len(part.offsets) for part in slices)
            at = first_seq - job.first_seq
            assert job.entries is not None
            entries_then = job.entries[at : at + count]
            dead = (index_flags(entries_then) & _DEAD).astype(numpy.uint8)
            if dead.any():
                data, entries = encode_run(slices, first_seq, dead, entries_then["ts"])
            else:
                data, entries = encode_run(slices, first_seq)
            written = files.append_run(active, first_seq, data, entries, now)
            active = written[-1] if not written[-1].sealed else None
            _merge(job.written, written)
            job.runs.append((first_seq, entries))
            breaks.take()
        if active is not None and active.end_seq < job.last_seq:
            # What came behind it was evicted before it got here: nothing can be appended to it.
            _merge(job.written, [files.seal(active)])

    def _shard_of(self, job: TopicJob) -> int:
        return shard_of(job.topic.topic_id, len(self._core.shards))

    def _mark(self, jobs: Iterable[TopicJob]) -> dict[int, Exception]:
        """Write to each log what is in segments now. Gives the logs that refused, with the error:
        the marks in the others count all the same."""
        core = self._core
        by_shard: dict[int, list[CheckpointEntry]] = defaultdict(list)
        routers: dict[int, list[RouterMark]] = defaultdict(list)
        for job in jobs:
            shard = self._shard_of(job)
            routers[shard] += job.marks
            active = _active_after(job)
            by_shard[shard].append(
                CheckpointEntry(
                    job.topic.topic_id,
                    job.last_seq,
                    job.evict_floor,
                    job.earliest_seq,
                    0 if active is None else active.first_seq,
                    0 if active is None else active.data_bytes,
                )
            )
        tickets: dict[int, Ticket] = {}
        refused: dict[int, Exception] = {}
        for shard, entries in by_shard.items():
            now = core.clock.wall_ms()
            frames = [encode_checkpoint_mark(entries, now)]
            if routers[shard]:
                frames.append(encode_router_marks(0, routers[shard], now))  # both or neither
            ticket = Ticket(b"".join(frames), len(frames), Durability.FSYNC, essential=True)
            try:
                core.owner.call(partial(core.submit_to, shard, ticket))
                tickets[shard] = ticket
            except HeadwaterError as error:
                refused[shard] = error
        for shard, ticket in tickets.items():
            try:
                ticket.wait()
            except HeadwaterError as error:
                refused[shard] = error
        return refused

    def _finish(self, jobs: Iterable[TopicJob]) -> Iterator[None]:
        for job in jobs:
            if not job.topic.dropped:
                self._checkpointed(job)
                yield
                yield from self._keep_in_cache(job)
        self._core.counters.checkpoints += 1

    def _checkpointed(self, job: TopicJob) -> None:
        core, topic = self._core, job.topic
        for first_seq, entries in job.runs:
            topic.log.index.set_offsets(first_seq, entries["offset"])
        # Only now: had the files refused the flags, the next checkpoint would try again.
        del topic.unflagged[: job.unflagged]
        _remember_deletes(job)
        _merge(topic.segments, job.written)
        topic.checkpointed_seq = max(topic.checkpointed_seq, job.last_seq)
        topic.durable_earliest = job.earliest_seq
        core.reclaim[topic.topic_id] = topic
        if topic.tail.first_seq is not None:
            first_seq = topic.tail.first_seq
            size = sum([len(each.buffer) for each in job.chunks if each.first_seq >= first_seq])
            topic.tail_bytes -= size
            core.tail_bytes -= size
        if topic.tail_bytes == 0 and not topic.unflagged:
            core.dirty.pop(topic.topic_id, None)
        topic.meta = None
        if topic.inbound is not None:
            topic.inbound.flushed(job.last_seq)
            topic.inbound.marked(job.marks)

    def _keep_in_cache(self, job: TopicJob) -> Iterator[None]:
        """Thousands of chunks, where each has one write: readers get their turn in between."""
        tail = job.topic.tail
        for at in range(0, len(job.chunks), CHUNKS_AT_ONCE):
            first_seq = tail.first_seq
            if first_seq is None:
                return
            chunks = job.chunks[at : at + CHUNKS_AT_ONCE]
            self._core.cache.keep(tail, [each for each in chunks if each.first_seq >= first_seq])
            yield


def _remember_deletes(job: TopicJob) -> None:
    """One of the deletes in each segment's files: a copy from before does not have it."""
    for segment, entries, seqs in job.flags:
        flagged = seqs[index_flags(entries[seqs - seqs[0]]) & IndexFlag.DAMAGED == 0]
        if len(flagged):
            job.topic.stored.flagged[segment.first_seq] = int(flagged[-1])


def _take_back(job: TopicJob, error: Exception) -> None:
    """At once where there was no room: nothing but these bytes may stand in the way of more."""
    at_once = isinstance(error, DiskFullError)
    job.topic.files.take_back(job.active, job.written, at_once=at_once)


def _marks(topic: Topic, last_seq: int) -> list[RouterMark]:
    """Nothing of a topic whose copies stay in memory."""
    if topic.inbound is None or last_seq != topic.log.visible_seq:
        return []
    return [router.next_mark() for router in topic.inbound.routers if router.made]


def _runs(job: TopicJob) -> Iterator[tuple[int, list[WalSlice]]]:
    """What goes into segments in one go, each time with its first seq."""
    run: list[WalSlice] = []
    first_seq, size, count = job.first_seq, 0, 0
    for part in _slices(job):
        run.append(part)
        size += len(part.buffer)
        count += len(part.offsets)
        if size >= RUN_BYTES_MAX:
            yield first_seq, run
            run, first_seq, size, count = [], first_seq + count, 0, 0
    if run:
        yield first_seq, run


def _slices(job: TopicJob) -> Iterator[WalSlice]:
    """The chunks joined: a column costs the same for one record as for a thousand."""
    portion: list[TailChunk] = []
    size = 0
    for chunk in job.chunks:
        portion.append(chunk)
        size += len(chunk.buffer)
        if size >= SLICE_BYTES_MAX:
            yield _joined(portion, job.first_seq)
            portion, size = [], 0
    if portion:
        yield _joined(portion, job.first_seq)


def _joined(chunks: Sequence[TailChunk], first_seq: int) -> WalSlice:
    known = max(first_seq - chunks[0].first_seq, 0)  # in a segment before, or evicted
    if len(chunks) == 1:
        offsets = numpy.asarray(chunks[0].offsets, numpy.int64)
        return WalSlice(chunks[0].buffer, offsets[known:])
    counts = [len(chunk.offsets) for chunk in chunks]
    ends = numpy.cumsum([len(chunk.buffer) for chunk in chunks])
    bases = numpy.concatenate(([0], ends[:-1]))
    within = chain.from_iterable([chunk.offsets for chunk in chunks])
    offsets = numpy.fromiter(within, numpy.int64, sum(counts)) + numpy.repeat(bases, counts)
    return WalSlice(b"".join([chunk.buffer for chunk in chunks]), offsets[known:])


def _merge(segments: list[Segment], changed: Sequence[Segment]) -> None:
    """Put changed segments in their places: the same first seq is the same segment."""
    for segment in changed:
        if segments and segments[-1].first_seq == segment.first_seq:
            segments[-1] = segment
        else:
            segments.append(segment)


def _active_after(job: TopicJob) -> Segment | None:
    last = job.written[-1] if job.written else job.active
    return None if last is None or last.sealed else last
