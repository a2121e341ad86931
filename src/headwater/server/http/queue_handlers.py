"""Queues over HTTP: claim, ack, nack, extend. `streams.job_pusher` pushes them instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from headwater.core.errors import NotAQueueError
from headwater.core.results import LeaseResult
from headwater.engine.operation import AsOwner, OneStep, Operation, Work
from headwater.engine.queues.claims import Queues
from headwater.engine.queues.dead_letters import requeue_operation
from headwater.engine.queues.operations import (
    ClaimOptions,
    PendingClaim,
    ack_operation,
    check_lease_request,
    claim_as_operation,
    extend_operation,
    nack_operation,
    run_claim,
)
from headwater.engine.state.topic import ClaimRequest, Topic
from headwater.engine.topics.protocols import TopicEngine
from headwater.server.backend import Backend
from headwater.server.http.exchange import GZIP_BYTES_MIN, Exchange, body_of
from headwater.server.http.json_rows import JobsText, fetch_jobs_text, jobs_text_at_hand
from headwater.server.http.operation import HttpOperation
from headwater.server.http.topic_handlers import answer
from headwater.wire.requests import (
    AckBody,
    ClaimBody,
    ExtendBody,
    NackBody,
    RequeueBody,
    decode_request,
)

_encode = msgspec.json.Encoder().encode


class WorkerLines(Protocol):
    """The workers that jobs are pushed to: one who settled jobs may have room for more."""

    @property
    def backend(self) -> Backend: ...

    def nudge(self, name: str) -> None:
        """Jobs of this queue were acked, given back or extended."""


def require_queue(backend: Backend, exchange: Exchange) -> None:
    """Of a name that is none of the engine's topics: what Kafka clients have is no queue."""
    name, key = exchange.head.parameters[0], exchange.head.key
    backend.refuse_kafkas(name, key, NotAQueueError, "claims need a queue")


def claim(backend: Backend, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), ClaimBody)
    exchange.waits_for_event = True  # a client that leaves meanwhile must not get jobs
    options = ClaimOptions(
        body.node, body.max, body.lease_ms, body.wait_ms, goes_on=lambda: not backend.draining
    )
    engine, name = backend.engine, exchange.head.parameters[0]
    topic = engine.find(name)
    if topic is None:
        require_queue(backend, exchange)
    if topic is None or not topic.loaded:
        operation = claim_as_operation(engine, name, options, _rendered)
    else:
        claiming = PendingClaim(engine, topic, options)
        claimed = _claimed_at_once(engine, exchange, claiming)
        if claimed is not None:
            _answer_claim(exchange, claimed)
            return
        operation = run_claim(engine, claiming, _rendered)
    HttpOperation(backend, exchange, operation, partial(_answer_claim, exchange)).begin(quits=True)


def _claimed_at_once(
    engine: TopicEngine, exchange: Exchange, claiming: PendingClaim
) -> JobsText | None:
    """What most claims get, without a step between: jobs that lie in memory, or none. None when
    there is more to it; the claim is begun then, and goes on from there."""
    exchange.usage.begin()
    try:
        claiming.begin()
        if not claiming.is_over:
            return None
        grant = claiming.request.grant
        if grant is None:
            return JobsText(b"", 0, claiming.queues.ready(claiming.topic))
        return jobs_text_at_hand(engine, claiming.queues, claiming.topic, grant)
    except BaseException:
        claiming.abandon()
        raise
    finally:
        exchange.usage.end()


def _rendered(
    engine: TopicEngine, queues: Queues, topic: Topic, request: ClaimRequest
) -> Operation[JobsText]:
    if request.grant is None:
        ready: int = yield AsOwner(lambda: queues.ready(topic))
        return JobsText(b"", 0, ready)
    grant = request.grant
    at_hand: JobsText | None = yield AsOwner(
        lambda: jobs_text_at_hand(engine, queues, topic, grant)
    )
    if at_hand is not None:
        return at_hand
    return (yield from fetch_jobs_text(engine, queues, topic, grant))


def _answer_claim(exchange: Exchange, claimed: JobsText) -> None:
    rest = b'],"count":%d,"ready":%d,"performance":{"server_total_ms":%.3f}}' % (
        claimed.jobs,
        claimed.ready,
        exchange.elapsed_ms(),
    )
    opening = b'{"topic":"%b","claimed":[' % exchange.head.parameters[0].encode()
    exchange.answer_json_parts(opening, claimed.text, rest)


def ack(lines: WorkerLines, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), AckBody)
    engine, name = lines.backend.engine, exchange.head.parameters[0]
    topic = engine.find(name)
    if topic is None:
        require_queue(lines.backend, exchange)
    if topic is None or not topic.loaded or _has_dying(topic):
        operation = ack_operation(engine, name, body.node, body.seqs, body.lease_ids)
        _begin_change(lines, exchange, operation, _say_acked)
        return
    check_lease_request(body.node, body.seqs, body.lease_ids)
    start = partial(Queues(engine).ack, topic, body.node, body.seqs, body.lease_ids)
    _begin_change(lines, exchange, OneStep(start, _identity), _say_acked)


def _has_dying(topic: Topic) -> bool:
    """The next ack or nack moves them to the dead letters."""
    return topic.queue is not None and topic.queue.leases.has_exhausted


def _identity(result: LeaseResult) -> LeaseResult:
    return result


def nack(lines: WorkerLines, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), NackBody)
    require_queue(lines.backend, exchange)
    name = exchange.parameters[0]
    operation = nack_operation(
        lines.backend.engine, name, body.node, body.seqs, body.lease_ids, body.delay_ms
    )
    _begin_change(lines, exchange, operation, _say_nacked)


def extend(lines: WorkerLines, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), ExtendBody)
    require_queue(lines.backend, exchange)
    name = exchange.parameters[0]
    operation = extend_operation(
        lines.backend.engine, name, body.node, body.seqs, body.lease_ids, body.lease_ms
    )
    _begin_change(lines, exchange, operation, _say_extended)


def _begin_change(
    lines: WorkerLines,
    exchange: Exchange,
    work: Work[LeaseResult],
    say: Callable[[LeaseResult], bytes],
) -> None:
    topic = exchange.head.parameters[0].encode()

    def answer(result: LeaseResult) -> None:
        body = (
            b'{"topic":"%b",%b,"skipped":%b,"ready":%d,"in_flight":%d,'
            b'"performance":{"server_total_ms":%.3f}}'
        )
        body %= (
            topic,
            say(result),
            _encode(result.skipped) if result.skipped else b"[]",
            result.ready,
            result.in_flight,
            exchange.elapsed_ms(),
        )
        if len(body) < GZIP_BYTES_MIN and exchange.takes_short_answer:
            exchange.answer_short(body)
        else:
            exchange.answer_json(200, body)
        lines.nudge(exchange.head.parameters[0])  # a worker may have room for more

    HttpOperation(lines.backend, exchange, work, answer).begin()


def _say_acked(result: LeaseResult) -> bytes:
    return b'"acked":%d' % len(result.seqs)


def _say_nacked(result: LeaseResult) -> bytes:
    return b'"nacked":%d' % len(result.seqs)


def _say_extended(result: LeaseResult) -> bytes:
    return b'"extended":%d,"deadlines":%b' % (len(result.seqs), _encode(result.deadlines))


async def requeue(backend: Backend, exchange: Exchange) -> None:
    """A key gives letters back only to queues it may name."""
    body = decode_request(body_of(exchange), RequeueBody)
    require_queue(backend, exchange)
    may_name = exchange.key.may_name
    operation = requeue_operation(backend.engine, exchange.parameters[0], body.seqs, may_name)
    requeued = await backend.ready_database.drive(operation)
    answer(exchange, 200, {"requeued": len(requeued.seqs), "skipped": requeued.skipped})
