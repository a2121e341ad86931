"""What workers can do with a queue, written once for threads and for event loops.

Claims that come within `claim_jitter_ms` of each other are served in one pass; whoever is there
when the window closes makes it, for all of them. A queue with `fifo_key` must read the keys of the
jobs it hands out, which may need files: there one pass follows the other, so that no later job of
a key overtakes an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.core.records import Record
from headwater.core.units import US_PER_MS
from headwater.engine.dead_letters import dead_letter_steps
from headwater.engine.engine import Engine
from headwater.engine.job_records import records_steps
from headwater.engine.pending import Change
from headwater.engine.queue_state import ClaimRequest
from headwater.engine.queues import Claimed, Queues, QueueStats, Settled
from headwater.engine.steps import EMPTY_ROUNDS_MAX, Answered, AsOwner, Steps, Woken, topic_steps
from headwater.engine.topic import Topic


def claim_steps(
    engine: Engine,
    name: str,
    node: str,
    wanted: int = 1,
    lease_ms: int | None = None,
    connection: int | None = None,
) -> Steps[Claimed]:
    """Jobs for a worker: at most so many, for so long."""
    _check_node(node)
    low, high = limits.CLAIM_JOBS_CLAMP
    wanted = min(max(wanted, low), high)
    topic = yield from topic_steps(engine, name)
    queues = Queues(engine)
    request: ClaimRequest = yield AsOwner(
        lambda: queues.request(topic, node, wanted, lease_ms, connection)
    )
    try:
        yield from _served_steps(engine, queues, topic, request)
        records: dict[int, Record] = {}
        if request.grant is not None:
            yield Answered(lambda: queues.confirm(topic, request))
            records = yield from records_steps(engine, topic, request.grant.seqs)
        claimed: Claimed = yield AsOwner(lambda: queues.claimed(topic, request, records))
        yield from dead_letter_steps(engine, queues, topic)
    except BaseException:
        # Nobody is told of these jobs: they are free for others.
        engine.core.owner.post(lambda: queues.abandon(topic, request))
        raise
    return claimed


def _served_steps(
    engine: Engine, queues: Queues, topic: Topic, request: ClaimRequest
) -> Steps[None]:
    """Until a pass has looked at the request."""
    jitter_us = topic.log.settings.claim_jitter_ms * US_PER_MS
    if not jitter_us:
        yield from _pass_steps(engine, queues, topic, [request])
        return
    assert topic.queue is not None
    clock, window = engine.core.clock, topic.queue.window

    def join() -> None:
        window.join(request, request.wanted, clock.monotonic_us(), jitter_us)

    def is_due() -> bool:
        closes_us = window.closes_us
        return request in window and closes_us is not None and clock.monotonic_us() >= closes_us

    def due() -> list[ClaimRequest]:
        """Everyone, for the first who comes when the window is over."""
        return window.close() if is_due() else []

    def closes_us() -> int | None:
        """None while somebody else is at it."""
        return window.closes_us if request in window else None

    yield AsOwner(join)
    while not request.served:
        until_us: int | None = yield AsOwner(closes_us)
        yield Woken(topic, until_us, lambda: request.served or is_due())
        together: list[ClaimRequest] = yield AsOwner(due)
        if together:
            yield from _pass_steps(engine, queues, topic, together)


def _pass_steps(
    engine: Engine, queues: Queues, topic: Topic, requests: Sequence[ClaimRequest]
) -> Steps[None]:
    """Serve these requests together."""
    wanted = sum(request.wanted for request in requests)
    if topic.log.settings.fifo_key is not None:
        yield from _keyed_pass_steps(engine, queues, topic, requests, wanted)
        return

    def serve() -> None:
        queues.sweep(topic)
        queues.deal(topic, requests, queues.draw(topic, wanted))
        if len(requests) > 1:
            topic.wake()

    yield AsOwner(serve)


def _keyed_pass_steps(
    engine: Engine,
    queues: Queues,
    topic: Topic,
    requests: Sequence[ClaimRequest],
    wanted: int,
) -> Steps[None]:
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

    def admit(records: dict[int, Record]) -> None:
        """Those whose record cannot be read have no key that could be waited for."""
        leases = queue.leases
        admitted.extend([seq for seq in drawn if leases.admit(seq, _key(records.get(seq)))])
        drawn.clear()

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
            known = yield from records_steps(engine, topic, seqs)
            keys = {seq: _key(record) for seq, record in known.items()}
            yield AsOwner(partial(queue.leases.learn_keys, keys))
        for _ in range(EMPTY_ROUNDS_MAX):
            drawn += yield AsOwner(lambda: queues.draw(topic, wanted - len(admitted)))
            if not drawn:
                break
            records = yield from records_steps(engine, topic, list(drawn))
            yield AsOwner(partial(admit, records))
            if len(admitted) == wanted:
                break
        yield AsOwner(end)
    finally:
        # Whoever gives up half way leaves nothing in its hands.
        engine.core.owner.post(end)


def _key(record: Record | None) -> bytes | None:
    return None if record is None or record.tag is None else record.tag.encode()


def ack_steps(
    engine: Engine,
    name: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None = None,
) -> Steps[Settled]:
    """The jobs are done: they are deleted for good."""
    return (yield from _settle_steps(engine, name, "ack", node, seqs, lease_ids))


def nack_steps(
    engine: Engine,
    name: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None = None,
    delay_ms: int = 0,
) -> Steps[Settled]:
    """The jobs are given back, to be delivered again at once or later."""
    if not 0 <= delay_ms <= limits.NACK_DELAY_MS_MAX:
        raise InvalidRequestError(f"delay_ms must be from 0 to {limits.NACK_DELAY_MS_MAX}")
    return (yield from _settle_steps(engine, name, "nack", node, seqs, lease_ids, delay_ms))


def extend_steps(
    engine: Engine,
    name: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None = None,
    lease_ms: int | None = None,
) -> Steps[Settled]:
    """The jobs are held longer."""
    return (yield from _settle_steps(engine, name, "extend", node, seqs, lease_ids, lease_ms))


def _settle_steps(
    engine: Engine,
    name: str,
    verb: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None,
    *more: Any,
) -> Steps[Settled]:
    _check_node(node)
    if not 1 <= len(seqs) <= limits.SETTLE_JOBS_MAX:
        raise InvalidRequestError(f"seqs must be 1 to {limits.SETTLE_JOBS_MAX} jobs")
    if lease_ids is not None and len(lease_ids) != len(seqs):
        raise InvalidRequestError("lease_ids must be as many as seqs, in the same order")
    topic = yield from topic_steps(engine, name)
    queues = Queues(engine)

    def start() -> Change:
        change: Change = getattr(queues, verb)(topic, node, seqs, lease_ids, *more)
        return change

    settled: Settled = yield Answered(start)
    yield from dead_letter_steps(engine, queues, topic)
    return settled


def queue_stats_steps(engine: Engine, name: str) -> Steps[QueueStats]:
    topic = yield from topic_steps(engine, name)
    queues = Queues(engine)
    stats: QueueStats = yield AsOwner(lambda: queues.stats(topic))
    return stats


def _check_node(node: object) -> None:
    if not isinstance(node, str) or not 1 <= len(node.encode()) <= limits.NODE_BYTES_MAX:
        raise InvalidRequestError(f"node must be a name of 1 to {limits.NODE_BYTES_MAX} bytes")
