"""What workers can do with a queue, written once for threads and for event loops.

Claims that come within `claim_jitter_ms` of each other are served in one pass; the first that runs
when the window closes makes it, for all of them. A queue with `fifo_key` must read the keys of the
jobs it hands out, which may need files: there one pass follows the other, so that no later job of
a key overtakes an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from headwater.core import limits
from headwater.core.errors import InvalidRequestError, TopicNotFoundError
from headwater.core.records import Record
from headwater.core.results import Claimed, LeaseResult, QueueStats
from headwater.core.units import US_PER_MS
from headwater.engine.operation import Answered, AsOwner, Operation, Woken
from headwater.engine.owner import Change
from headwater.engine.queues.claims import COVERED, Queues, fetch_records
from headwater.engine.queues.dead_letters import dead_letter_operation
from headwater.engine.state.topic import ClaimRequest, Topic
from headwater.engine.topics.operations import EMPTY_ROUNDS_MAX, loaded_topic
from headwater.engine.topics.protocols import TopicEngine

P = TypeVar("P")
TakeJobs = Callable[[TopicEngine, Queues, Topic, ClaimRequest], Operation[P]]
"""The jobs of a claim in the form that the caller wants."""


class ClaimOptions(NamedTuple):
    """What a worker wants."""

    node: str
    wanted: int = 1
    lease_ms: int | None = None
    wait_ms: int = 0
    """How long to wait for a first job."""
    goes_on: Callable[[], bool] = lambda: True
    """Called before each wait: false ends the wait with nothing."""


def claim_operation(
    engine: TopicEngine,
    name: str,
    node: str,
    wanted: int = 1,
    lease_ms: int | None = None,
    wait_ms: int = 0,
) -> Operation[Claimed]:
    """Jobs for a worker: at most so many, for so long."""
    options = ClaimOptions(node, wanted, lease_ms, wait_ms)
    return (yield from claim_as_operation(engine, name, options, _take_claimed))


def claim_as_operation(
    engine: TopicEngine, name: str, options: ClaimOptions, take: TakeJobs[P]
) -> Operation[P]:
    """The same, in the form that `take` gives the jobs."""
    check_node(options.node)
    topic = yield from loaded_topic(engine, name)
    return (yield from run_claim(engine, PendingClaim(engine, topic, options), take))


class PendingClaim:
    """One claim of a topic that is loaded. Most are over with their first pass, and a caller that
    is the owner anyway may run that alone; then it drives the operation, or abandons the claim."""

    __slots__ = ("_begun", "log_change", "options", "queues", "request", "topic")

    def __init__(self, engine: TopicEngine, topic: Topic, options: ClaimOptions) -> None:
        check_node(options.node)
        self.queues = Queues(engine)
        self.topic = topic
        self.options = options
        self.request = ClaimRequest(options.node, claim_limit(options.wanted))
        self.log_change: Change | None = None
        """What the log has to take before the answer, if jobs were there."""
        self._begun = False

    def begin(self) -> None:
        """As the owner: everything about it that need not wait. Once."""
        if not self._begun:
            self._begun = True
            self.log_change = self.queues.begin(
                self.topic, self.request, self.options.lease_ms, limits.CLAIM_BYTES_MAX
            )

    @property
    def is_over(self) -> bool:
        """As the owner: there is nothing to wait for but the jobs themselves, if there are any, and
        nothing else to be done."""
        request, queue = self.request, self.topic.queue
        if queue is None or not request.served or queue.leases.has_exhausted:
            return False
        return self.options.wait_ms <= 0 if request.grant is None else self.log_change is COVERED

    def abandon(self) -> None:
        """No worker gets these jobs: they are free for others."""
        self.queues.abandon(self.topic, self.request)


def run_claim(engine: TopicEngine, claim: PendingClaim, take: TakeJobs[P]) -> Operation[P]:
    """All of it, or the rest of one that is begun."""
    queues, topic, request = claim.queues, claim.topic, claim.request
    try:
        yield AsOwner(claim.begin)
        log_change = claim.log_change
        if not request.served:
            yield from serve_operation(engine, queues, topic, [request])
        if request.grant is None and claim.options.wait_ms > 0:
            yield from _wait_operation(engine, queues, topic, request, claim.options)
        if log_change is None and request.grant is not None:
            yield Answered(lambda: queues.confirm(topic, request))
        elif log_change is not None and log_change is not COVERED:
            yield Answered(lambda: log_change)
        taken = yield from take(engine, queues, topic, request)
        yield from set_aside_operation(queues, topic, request)
        yield from dead_letter_operation(engine, queues, topic)
    except BaseException:
        engine.core.owner.post(claim.abandon)
        raise
    return taken


def set_aside_operation(queues: Queues, topic: Topic, request: ClaimRequest) -> Operation[None]:
    """When the jobs of a claim were read: those that turned out to be damaged are not held."""
    if topic.log.damaged and request.grant is not None:
        seqs = request.grant.seqs
        yield AsOwner(lambda: queues.set_aside_damaged(topic, seqs))


def claim_limit(wanted: int) -> int:
    """How many jobs a worker may have at once when it asks for so many."""
    low, high = limits.CLAIM_JOBS_CLAMP
    return min(max(wanted, low), high)


def _take_claimed(
    engine: TopicEngine, queues: Queues, topic: Topic, request: ClaimRequest
) -> Operation[Claimed]:
    records: dict[int, Record] = {}
    if request.grant is not None:
        records = yield from fetch_records(engine, topic, request.grant.seqs)
    claimed: Claimed = yield AsOwner(lambda: queues.claimed(topic, request, records))
    return claimed


def _wait_operation(
    engine: TopicEngine, queues: Queues, topic: Topic, request: ClaimRequest, options: ClaimOptions
) -> Operation[None]:
    """Nothing was there: until something is, or the time is up."""
    clock = engine.core.clock
    wait_ms = min(options.wait_ms, limits.READ_WAIT_MS_CLAMP)
    until_us = clock.monotonic_us() + wait_ms * US_PER_MS
    while request.grant is None and options.goes_on() and clock.monotonic_us() < until_us:
        yield from dead_letter_operation(engine, queues, topic)
        changes_us: int | None = yield AsOwner(lambda: queues.next_change_us(topic))
        soon_us = until_us if changes_us is None else min(until_us, changes_us)
        yield Woken(topic, soon_us, lambda: topic.dropped or queues.has_next(topic))
        if topic.dropped:
            raise TopicNotFoundError(
                f"there is no topic {topic.name!r} any more", detail={"topic": topic.name}
            )
        request.served = False
        yield from serve_operation(engine, queues, topic, [request])


def serve_operation(
    engine: TopicEngine, queues: Queues, topic: Topic, requests: Sequence[ClaimRequest]
) -> Operation[None]:
    """Until a pass has served these requests, which come together."""
    jitter_us = topic.log.settings.claim_jitter_ms * US_PER_MS
    if not jitter_us:
        yield from _pass_operation(engine, queues, topic, requests)
        return
    assert topic.queue is not None
    clock, window = engine.core.clock, topic.queue.window

    def join() -> None:
        for each in requests:
            window.join(each, each.wanted, clock.monotonic_us(), jitter_us)

    def are_waiting() -> bool:
        return any(each in window for each in requests)

    def are_served() -> bool:
        return all(each.served for each in requests)

    def is_due() -> bool:
        closes_us = window.closes_us
        return closes_us is not None and clock.monotonic_us() >= closes_us and are_waiting()

    def due() -> list[ClaimRequest]:
        """Everyone, for the first who comes when the window is over."""
        return window.close() if is_due() else []

    def closes_us() -> int | None:
        """None while another claim makes the pass."""
        return window.closes_us if are_waiting() else None

    def hand_back(together: Sequence[ClaimRequest]) -> None:
        """The claim that was to make the pass is gone: another one makes it."""
        for each in together:
            if each not in requests and not (each.served or each.left):
                window.join(each, each.wanted, clock.monotonic_us(), jitter_us)
        topic.wake()

    yield AsOwner(join)
    while not are_served():
        until_us: int | None = yield AsOwner(closes_us)
        yield Woken(topic, until_us, lambda: are_served() or is_due())
        together: list[ClaimRequest] = yield AsOwner(due)
        if together:
            try:
                yield from _pass_operation(engine, queues, topic, together)
            except BaseException:
                engine.core.owner.post(partial(hand_back, together))
                raise


def _pass_operation(
    engine: TopicEngine, queues: Queues, topic: Topic, requests: Sequence[ClaimRequest]
) -> Operation[None]:
    """Serve these requests together."""
    wanted = sum(request.wanted for request in requests)
    if topic.log.settings.fifo_key is not None:
        yield from _keyed_pass_operation(engine, queues, topic, requests, wanted)
        return

    bytes_max = limits.CLAIM_BYTES_MAX * len(requests)

    def serve() -> None:
        queues.serve(topic, requests, wanted, bytes_max)
        if len(requests) > 1:
            topic.wake()

    yield AsOwner(serve)


def _keyed_pass_operation(
    engine: TopicEngine,
    queues: Queues,
    topic: Topic,
    requests: Sequence[ClaimRequest],
    wanted: int,
) -> Operation[None]:
    queue = topic.queue
    assert queue is not None

    def begin() -> bool:
        if queue.passing:
            return False
        queue.passing = True
        queues.sweep(topic)
        return True

    while not (yield AsOwner(begin)):
        yield Woken(topic, None, lambda: not queue.passing)
    admitted: list[int] = []
    drawn: list[int] = []
    room = limits.CLAIM_BYTES_MAX * len(requests)

    def draw() -> Sequence[int]:
        return queues.draw(topic, wanted - len(admitted), room) if room > 0 else []

    def admit(records: dict[int, Record]) -> None:
        """Those whose record cannot be read have no key that could be waited for."""
        nonlocal room
        leases = queue.leases
        damaged = queues.set_aside_damaged(topic, drawn)
        drawn[:] = [seq for seq in drawn if seq not in damaged]
        now = [seq for seq in drawn if leases.admit(seq, _key(records.get(seq)))]
        admitted.extend(now)
        drawn.clear()
        jobs = topic.log.index
        room -= sum(jobs.payload_at(seq) for seq in now if jobs.is_live(seq))

    ended = False

    def end() -> None:
        nonlocal ended
        if ended:
            return
        ended = True
        queue.leases.put_back(drawn)
        queues.deal(topic, requests, admitted)
        queue.passing = False
        topic.wake()

    try:
        if not queue.leases.keys_known:
            seqs: list[int] = yield AsOwner(queue.leases.unkeyed_seqs)
            known = yield from fetch_records(engine, topic, seqs)
            keys = {seq: _key(record) for seq, record in known.items()}
            yield AsOwner(partial(queue.leases.learn_keys, keys))
        for _ in range(EMPTY_ROUNDS_MAX):
            drawn += yield AsOwner(draw)
            if not drawn:
                break
            records = yield from fetch_records(engine, topic, list(drawn))
            yield AsOwner(partial(admit, records))
            if len(admitted) == wanted:
                break
        yield AsOwner(end)
    finally:
        # A claim that gives up half way holds nothing.
        engine.core.owner.post(end)


def _key(record: Record | None) -> bytes | None:
    return None if record is None or record.tag is None else record.tag.encode()


def ack_operation(
    engine: TopicEngine,
    name: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None = None,
) -> Operation[LeaseResult]:
    """The jobs are done: they are deleted for good."""
    return (yield from _lease_operation(engine, name, "ack", node, seqs, lease_ids))


def nack_operation(
    engine: TopicEngine,
    name: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None = None,
    delay_ms: int = 0,
) -> Operation[LeaseResult]:
    """The jobs are given back, to be delivered again at once or later."""
    if not 0 <= delay_ms <= limits.NACK_DELAY_MS_MAX:
        raise InvalidRequestError(f"delay_ms must be from 0 to {limits.NACK_DELAY_MS_MAX}")
    return (yield from _lease_operation(engine, name, "nack", node, seqs, lease_ids, delay_ms))


def extend_operation(
    engine: TopicEngine,
    name: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None = None,
    lease_ms: int | None = None,
) -> Operation[LeaseResult]:
    """The jobs are held longer."""
    return (yield from _lease_operation(engine, name, "extend", node, seqs, lease_ids, lease_ms))


def _lease_operation(
    engine: TopicEngine,
    name: str,
    verb: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None,
    *more: Any,
) -> Operation[LeaseResult]:
    check_lease_request(node, seqs, lease_ids)
    topic = yield from loaded_topic(engine, name)
    queues = Queues(engine)

    def start() -> Change:
        change: Change = getattr(queues, verb)(topic, node, seqs, lease_ids, *more)
        return change

    result: LeaseResult = yield Answered(start)
    yield from dead_letter_operation(engine, queues, topic)
    return result


def check_lease_request(node: str, seqs: Sequence[int], lease_ids: Sequence[int] | None) -> None:
    check_node(node)
    if not 1 <= len(seqs) <= limits.ACK_JOBS_MAX:
        raise InvalidRequestError(f"seqs must be 1 to {limits.ACK_JOBS_MAX} jobs")
    if lease_ids is not None and len(lease_ids) != len(seqs):
        raise InvalidRequestError("lease_ids must be as many as seqs, in the same order")


def queue_stats_operation(engine: TopicEngine, name: str) -> Operation[QueueStats]:
    topic = yield from loaded_topic(engine, name)
    queues = Queues(engine)
    stats: QueueStats = yield AsOwner(lambda: queues.stats(topic))
    return stats


def check_node(node: object) -> None:
    if not isinstance(node, str) or not 1 <= len(node.encode()) <= limits.NODE_BYTES_MAX:
        raise InvalidRequestError(f"node must be a name of 1 to {limits.NODE_BYTES_MAX} bytes")
