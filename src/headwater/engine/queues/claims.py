"""Queues, for the owner: claims, acks, nacks and extensions, and their frames in the log.

A lease takes effect at once and is answered when the log has what it must have: nothing, unless
leases are durable or the claim's number is not covered by a ceiling. An ack takes effect when the
log has the delete, like every delete (I8); until then no other worker can get the job.

Reading the records of jobs, wherever they lie, is an operation of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from headwater.config.topic import TopicType
from headwater.core.arrays import numpy
from headwater.core.errors import HeadwaterError, NotAQueueError
from headwater.core.limits import CLAIM_BYTES_MAX, LEASE_MS_CLAMP
from headwater.core.records import Record
from headwater.core.results import Claimed, ClaimedJob, LeaseResult, QueueStats
from headwater.core.units import US_PER_MS, US_PER_S
from headwater.engine.operation import AsOwner, InFiles, Operation
from headwater.engine.owner import Change
from headwater.engine.partition import FrameRun, ReadPlan
from headwater.engine.state.topic import ClaimRequest, Topic, TopicQueue
from headwater.engine.topics.operations import EMPTY_ROUNDS_MAX, Take, Taken, take_records
from headwater.engine.topics.protocols import TopicEngine
from headwater.engine.topics.reader import ReadFilter
from headwater.format.control_frames import (
    LeaseEvent,
    LeaseKind,
    RecordsDeleted,
    encode_lease_event,
)
from headwater.model.queue import Grant, LeaseHistory, QueueLeases, Verdict, share
from headwater.model.queue.history import resume
from headwater.model.queue.leases import fitting
from headwater.model.slots import as_run
from headwater.store.segment import SegmentChangedError

_log = logging.getLogger("headwater.queues")

RETRY_LETTERS_US: Final = US_PER_S
"""After that long, jobs that could not be put away are tried again."""
DRAWS_MAX = 16
"""Draws of jobs in one turn of the owner; where jobs are sparse, the claim tries again."""


NOWHERE_FOR_DAMAGED: Final = "damaged, and the queue has no dead_letter topic to put it in"

COVERED: Final = Change(lambda: True)
"""Nothing has to be logged: answered already."""
COVERED.result = True
P = TypeVar("P")
_EVERYTHING = ReadFilter()
AT_HAND_CHUNKS_MAX: Final = 8
"""More chunks than this are those of single writes: they are put together before they are read."""


class Queues:
    def __init__(self, engine: TopicEngine) -> None:
        self._core = engine.core
        self._topics = engine.topics

    def of(self, topic: Topic) -> TopicQueue:
        """The queue of a loaded topic, with the rules its settings give."""
        settings = topic.log.settings
        queue = topic.queue
        if queue is not None and queue.settings is settings:
            return queue
        if settings.type is not TopicType.QUEUE:
            raise NotAQueueError(f"{topic.name!r} is a log; claims need a queue")
        if queue is None:
            topic.queue = queue = TopicQueue()
            if topic.lease_history is not None:
                topic.lease_history.keep(topic.log.index.is_live, held=settings.leases_durable)
                meta = topic.lease_history.meta()
                resume(queue.leases, meta, self._core.opened_us, self._core.opened_ms)
                self._core.lease_ceilings.restore(topic.topic_id, meta.ceiling)
                topic.lease_history = None
        queue.leases.deliveries_max = settings.max_deliveries if settings.dead_letter else 0
        queue.leases.keep_order(settings.fifo_key is not None)
        queue.leases.retry_blocked()
        queue.blocked_reason = None
        if settings.dead_letter and queue.leases.unreadable:
            queue.leases.set_aside(list(queue.leases.unreadable), put_away=True)
        queue.settings = settings
        return queue

    def stats(self, topic: Topic) -> QueueStats:
        leases = self.of(topic).leases
        self._sweep(topic, leases)
        delayed = len(leases.delays) + len(leases.scheduled)
        ready = leases.ready(topic.log.index)
        blocked = leases.kept_back
        return QueueStats(ready, leases.in_flight, delayed, leases.dead_lettered, blocked)

    def glance(self, topic: Topic) -> QueueStats:
        """The same without reading a file: of a queue not used since the start, what the log
        says."""
        if topic.loaded:
            return self.stats(topic)
        known = topic.lease_history or LeaseHistory()
        core = self._core
        held, delayed = known.out(
            core.opened_ms,
            (core.clock.monotonic_us() - core.opened_us) // US_PER_MS,
            core.retention_ms(),
            held=topic.log.settings.leases_durable,
        )
        ready = max(self._topics.state(topic).count - held - delayed, 0)
        return QueueStats(ready, held, delayed, known.dead_lettered, 0)

    # -- claiming

    def request(
        self, topic: Topic, node: str, wanted: int, lease_ms: int | None, connection: int | None
    ) -> ClaimRequest:
        self.of(topic)
        return ClaimRequest(node, wanted, self._lease_us(topic, lease_ms), connection)

    def _lease_us(self, topic: Topic, lease_ms: int | None) -> int:
        low, high = LEASE_MS_CLAMP
        given = topic.log.settings.lease_ms if lease_ms is None else lease_ms
        return min(max(given, low), high) * US_PER_MS

    def begin(
        self, topic: Topic, request: ClaimRequest, lease_ms: int | None, bytes_max: int
    ) -> Change | None:
        """Give a new request its terms, and serve it at once where it need not wait for others:
        most claims are over with that. Gives the change that the log has to take, if jobs were
        there."""
        self.of(topic)
        request.lease_us = self._lease_us(topic, lease_ms)
        settings = topic.log.settings
        if settings.claim_jitter_ms or settings.fifo_key is not None:
            return None
        self.serve(topic, (request,), request.wanted, bytes_max)
        return None if request.grant is None else self.confirm(topic, request)

    def serve(
        self, topic: Topic, requests: Sequence[ClaimRequest], wanted: int, bytes_max: int
    ) -> None:
        """One pass for requests that want so many jobs together."""
        self.sweep(topic)
        self.deal(topic, requests, self.draw(topic, wanted, bytes_max))

    def sweep(self, topic: Topic) -> QueueLeases:
        """Before a pass: what expired is gone, what ran out is ready."""
        leases = self.of(topic).leases
        if topic.log.settings.ttl_ms:
            self._topics.evict(topic)
        self._sweep(topic, leases)
        return leases

    def has_next(self, topic: Topic) -> bool:
        """A claim made now would find a job, or at least draw one that it has not seen."""
        leases = self.of(topic).leases
        self._sweep(topic, leases)
        if topic.log.settings.paused:
            return False
        return bool(leases.reclaim) or leases.has_fresh(topic.log.index)

    def next_change_us(self, topic: Topic) -> int | None:
        """When to try again, though nothing happens until then."""
        leases = self.of(topic).leases
        at_us = leases.next_change_us(self._core.clock.monotonic_us(), self._core.retention_ms())
        return None if at_us is None else at_us + 1  # a lease holds up to and with its deadline

    def _sweep(self, topic: Topic, leases: QueueLeases) -> None:
        leases.sweep(self._core.clock.monotonic_us(), self._core.retention_ms())

    def draw(self, topic: Topic, wanted: int, bytes_max: int = CLAIM_BYTES_MAX) -> Sequence[int]:
        """Jobs for a pass, out of line from now on. One is drawn, however large it is."""
        leases = self.of(topic).leases
        jobs = topic.log.index
        if topic.log.settings.paused:
            return []
        drawn = self._readable(topic, leases.draw(jobs, wanted))
        for _ in range(DRAWS_MAX - 1):
            if len(drawn) >= wanted or not leases.has_fresh(jobs):
                break
            more = leases.draw(jobs, wanted - len(drawn))
            drawn = [*drawn, *self._readable(topic, more)]
        if len(drawn) > 1:
            count = max(fitting(jobs, drawn, bytes_max), 1)
            if count < len(drawn):
                leases.put_back(drawn[count:])
                drawn = drawn[:count]
        return drawn

    def _readable(self, topic: Topic, drawn: Sequence[int]) -> Sequence[int]:
        """These without the damaged ones, which are set aside."""
        if not topic.log.damaged:
            return drawn
        damaged = self.set_aside_damaged(topic, drawn)
        return [seq for seq in drawn if seq not in damaged] if damaged else drawn

    def set_aside_damaged(self, topic: Topic, seqs: Sequence[int]) -> frozenset[int]:
        """Of jobs that were drawn or granted, those that cannot be read: gives them."""
        damaged = frozenset(topic.log.damaged.among(seqs))
        jobs = [seq for seq in damaged if topic.log.index.is_live(seq)]
        if jobs:
            put_away, queue = topic.log.settings.dead_letter is not None, self.of(topic)
            queue.leases.set_aside(sorted(jobs), put_away=put_away)
            if not put_away:
                queue.blocked_reason = NOWHERE_FOR_DAMAGED
        return damaged

    def deal(self, topic: Topic, requests: Sequence[ClaimRequest], seqs: Sequence[int]) -> None:
        """Share drawn jobs between the requests whose workers are still there."""
        leases = self.of(topic).leases
        now_us = self._core.clock.monotonic_us()
        wanted = [0 if request.left else request.wanted for request in requests]
        at = 0
        for request, count in zip(requests, share(len(seqs), wanted), strict=True):
            request.served = True
            if count:
                some = seqs if count == len(seqs) else seqs[at : at + count]
                deadline_us = now_us + request.lease_us
                request.grant = leases.grant(some, request.node, deadline_us, request.connection)
                at += count
        if at < len(seqs):
            leases.put_back(seqs[at:])

    def abandon(self, topic: Topic, request: ClaimRequest) -> None:
        """The worker is gone before there was an answer."""
        request.left = True
        if topic.queue is None or topic.dropped:
            return
        topic.queue.window.leave(request)
        if request.grant is not None:
            topic.queue.leases.take_back(request.grant)
        topic.wake()

    def confirm(self, topic: Topic, request: ClaimRequest) -> Change:
        """Log what must be durable of a claim before the worker gets it."""
        grant = request.grant
        assert grant is not None
        leases = self.of(topic).leases
        if not topic.log.settings.leases_durable:
            return self._number(topic, leases, grant)
        event = LeaseEvent(
            LeaseKind.CLAIMED,
            tuple(grant.seqs),
            grant.node,
            grant.lease_id,
            request.lease_us // US_PER_MS,
            grant.connection is not None,
        )
        change = Change(lambda: True, lambda: leases.take_back(grant))
        self._submit_events(topic, [event], change)
        self._topics.touched(topic)
        return change

    def _number(self, topic: Topic, leases: QueueLeases, grant: Grant) -> Change:
        """No number is given twice, though claims are not in the log: a ceiling is."""
        ceilings, topic_id, number = self._core.lease_ceilings, topic.topic_id, grant.lease_id
        ceiling = ceilings.reserve(topic_id, number, number)
        waits = not ceilings.is_durable(topic_id, number)
        if ceiling is None and not waits:
            return COVERED
        value = number if ceiling is None else ceiling

        def confirmed() -> bool:
            ceilings.confirm(topic_id, value)
            self._topics.touched(topic)
            return True

        def refused() -> None:
            ceilings.take_back(topic_id)
            if waits:
                leases.take_back(grant)

        change = Change(confirmed, refused)
        self._submit_events(topic, [LeaseEvent(LeaseKind.NUMBERED, lease_id=value)], change)
        return change if waits else COVERED

    def claimed(self, topic: Topic, request: ClaimRequest, records: dict[int, Record]) -> Claimed:
        """The answer: the jobs of a claim, and how many more there are."""
        jobs = []
        if request.grant is not None:
            deadline, again = self.terms(topic, request.grant)
            for seq in request.grant.seqs:
                record = records.get(seq)
                if record is not None:  # deleted since, or damaged and reported
                    count = again.get(seq, 1)
                    jobs.append(ClaimedJob(record, request.grant.lease_id, deadline, count))
        return Claimed(jobs, self.ready(topic))

    def terms(self, topic: Topic, grant: Grant) -> tuple[int, dict[int, int]]:
        """The deadline of a claim by the wall clock, and how often its jobs were delivered, this
        time included, where that is more than once."""
        returned = self.of(topic).leases.returned
        again = (
            {seq: returned[seq] + 1 for seq in grant.seqs if seq in returned} if returned else {}
        )
        return self._wall_of(grant.deadline_us), again

    def ready(self, topic: Topic) -> int:
        return self.of(topic).leases.ready(topic.log.index)

    # -- settling

    def ack(
        self, topic: Topic, node: str, seqs: Sequence[int], lease_ids: Sequence[int] | None
    ) -> Change:
        """These jobs are done: delete them for good."""
        leases = self.of(topic).leases
        verdict = leases.ack(node, seqs, lease_ids, self._core.clock.monotonic_us())
        return self._bury(topic, verdict)

    def put_away(self, topic: Topic, seq: int) -> Change:
        """A job that is safe in the dead letter topic."""
        leases = self.of(topic).leases
        event = LeaseEvent(LeaseKind.DEAD_LETTERED, (seq,), lease_id=leases.dead_lettered + 1)
        return self._bury(topic, Verdict([seq], [], {}), dead=event)

    def block(self, topic: Topic, seq: int, reason: str, *, is_copied: bool) -> None:
        """A job that was delivered too often and cannot be put away now."""
        queue = self.of(topic)
        if queue.blocked_reason is None:
            _log.warning(
                "%s: jobs that were delivered too often stay, for they cannot be put away as dead "
                "letters in %s: %s; tried again with claims, once a second",
                topic.name,
                topic.log.settings.dead_letter,
                reason,
            )
        queue.blocked_reason = reason
        retry_us = self._core.clock.monotonic_us() + RETRY_LETTERS_US
        queue.leases.block(seq, retry_us, is_copied=is_copied)

    def _bury(self, topic: Topic, verdict: Verdict, dead: LeaseEvent | None = None) -> Change:
        """Delete jobs that are leaving."""
        core = self._core
        leases = self.of(topic).leases

        def take_effect() -> LeaseResult:
            self._topics.apply_seqs_deletion(topic, verdict.taken)
            leases.gone(verdict.taken)
            if dead is not None:
                leases.dead_lettered += len(dead.seqs)
                self.of(topic).blocked_reason = None
            if leases.reclaim:
                topic.wake()  # the next job of a key
            return self._lease_result(topic, verdict)

        def give_up() -> None:
            if dead is None:
                leases.stays(verdict.taken, core.clock.monotonic_us())
            for seq in () if dead is None else dead.seqs:
                self.block(topic, seq, "the log refused the delete", is_copied=True)

        change = Change(take_effect, give_up)
        if not verdict.taken:
            change.result = self._lease_result(topic, verdict)
            return change
        body = RecordsDeleted(0, 0, seqs=tuple(verdict.taken))
        events = [] if dead is None else [dead]
        more = [encode_lease_event(topic.topic_id, each, core.clock.wall_ms()) for each in events]
        try:
            self._topics.submit_deletion(topic, body, change, *more)
        except BaseException:
            give_up()
            raise
        return change

    def nack(
        self,
        topic: Topic,
        node: str,
        seqs: Sequence[int],
        lease_ids: Sequence[int] | None,
        delay_ms: int,
    ) -> Change:
        """These jobs are given back, to be delivered again."""
        now_us = self._core.clock.monotonic_us()
        leases = self.of(topic).leases
        verdict = leases.nack(node, seqs, lease_ids, now_us, delay_ms * US_PER_MS)
        topic.wake()
        events = [
            LeaseEvent(LeaseKind.RETURNED, tuple(some), lease_id=lease_id, span_ms=delay_ms)
            for lease_id, some in verdict.claims.items()
        ]
        return self._log_events(topic, verdict, events, {})

    def extend(
        self,
        topic: Topic,
        node: str,
        seqs: Sequence[int],
        lease_ids: Sequence[int] | None,
        lease_ms: int | None,
    ) -> Change:
        """Hold these jobs longer: until so long from now."""
        now_us = self._core.clock.monotonic_us()
        lease_us = self._lease_us(topic, lease_ms)
        leases = self.of(topic).leases
        verdict = leases.extend(node, seqs, lease_ids, now_us, now_us + lease_us)
        span_ms = lease_us // US_PER_MS
        events = [
            LeaseEvent(LeaseKind.EXTENDED, tuple(some), lease_id=lease_id, span_ms=span_ms)
            for lease_id, some in verdict.claims.items()
        ]
        deadline = self._wall_of(now_us + lease_us)
        return self._log_events(topic, verdict, events, dict.fromkeys(verdict.taken, deadline))

    def release(self, topic: Topic, connection: int) -> None:
        """A connection ended: its jobs are ready for others now. The log need not know: no claim
        made on a connection outlives the process."""
        if topic.queue is None or topic.dropped:
            return
        if topic.queue.leases.release(connection):
            topic.wake()
            self._topics.touched(topic)

    # -- the log

    def _log_events(
        self, topic: Topic, verdict: Verdict, events: list[LeaseEvent], deadlines: dict[int, int]
    ) -> Change:
        result = self._lease_result(topic, verdict, deadlines)
        change = Change(lambda: result)
        if events and topic.log.settings.leases_durable:
            self._submit_events(topic, events, change)
            self._topics.touched(topic)
        else:
            change.result = result
        return change

    def _submit_events(self, topic: Topic, events: Sequence[LeaseEvent], change: Change) -> None:
        now = self._core.clock.wall_ms()
        frames = [encode_lease_event(topic.topic_id, event, now) for event in events]
        if topic.creation is not None:
            frames.insert(0, topic.creation)
        try:
            self._topics.submit(topic, b"".join(frames), change, frame_count=len(frames))
        except HeadwaterError as error:
            change.refuse(error)

    def _lease_result(
        self, topic: Topic, verdict: Verdict, deadlines: dict[int, int] | None = None
    ) -> LeaseResult:
        leases = self.of(topic).leases
        ready = leases.ready(topic.log.index)
        return LeaseResult(verdict.taken, verdict.skipped, ready, leases.in_flight, deadlines or {})

    def _wall_of(self, at_us: int) -> int:
        clock = self._core.clock
        return clock.wall_ms() + (at_us - clock.monotonic_us()) // US_PER_MS


def runs_at_hand(topic: Topic, seqs: Sequence[int]) -> list[FrameRun] | None:
    """As the owner: where the frames of these records lie, when they are neighbours, all alive, and
    in a few chunks of the tail. None when they are not: then their reading is planned."""
    run, tail_first = as_run(seqs), topic.tail.first_seq
    if run is None or tail_first is None or run.start < tail_first:
        return None
    if not topic.log.index.all_live(run.start, run.stop):
        return None
    runs: list[FrameRun] = []
    for chunk in topic.tail.chunks(run.start, run.stop - 1):
        if len(runs) == AT_HAND_CHUNKS_MAX:
            return None
        first = max(run.start - chunk.first_seq, 0)
        offsets = numpy.array(chunk.offsets[first : run.stop - chunk.first_seq], numpy.int64)
        runs.append(FrameRun(chunk.buffer, offsets, in_segment=False))
    return runs


def fetch_records(
    engine: TopicEngine, topic: Topic, seqs: Sequence[int]
) -> Operation[dict[int, Record]]:
    """These records, as far as they are there and can be read."""
    records = yield from fetch_as(engine, topic, seqs, take_records)
    return {record.seq: record for record in records}


def fetch_as(engine: TopicEngine, topic: Topic, seqs: Sequence[int], take: Take[P]) -> Operation[P]:
    """The same in the form that `take` gives them, in the order of their seqs."""
    make_plan = partial(engine.reader.plan_seqs, topic, seqs)
    return (yield from fetch_planned(engine, topic, make_plan, take))


def fetch_planned(
    engine: TopicEngine, topic: Topic, make_plan: Callable[[], ReadPlan], take: Take[P]
) -> Operation[P]:
    """The same for a plan that is made as the owner, together with what else is to be asked."""
    for _ in range(EMPTY_ROUNDS_MAX):
        plan: ReadPlan = yield AsOwner(make_plan)
        work = partial(_taken, plan, take)
        taken: Taken[P] | None = (yield InFiles(work)) if plan.waits_for_files else work()
        if taken is None:
            continue  # a segment was rewritten or went away in between
        if taken.findings and (yield AsOwner(partial(plan.note_damage, taken.findings))):
            continue  # what is damaged is known now, and left out of the next plan
        engine.core.counters.records_read += taken.records
        return taken.payload
    raise SegmentChangedError(f"{topic.name!r} is being rewritten; try again")


def _taken(plan: ReadPlan, take: Take[P]) -> Taken[P] | None:
    try:
        return take(plan, _EVERYTHING)
    except SegmentChangedError:
        return None
