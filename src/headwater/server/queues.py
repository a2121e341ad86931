"""Queues over HTTP: claim, ack, nack, extend. Who they are pushed to instead is in `pushing`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from headwater.engine.engine import Engine
from headwater.engine.queue_answers import Settled
from headwater.engine.queue_state import ClaimRequest
from headwater.engine.queue_steps import (
    ClaimWish,
    ack_steps,
    claim_as_steps,
    extend_steps,
    nack_steps,
)
from headwater.engine.queues import Queues
from headwater.engine.steps import AsOwner, Steps
from headwater.engine.topic import Topic
from headwater.server.body import body_of
from headwater.server.exchange import Exchange
from headwater.server.jobs import JobsText, jobs_text_steps
from headwater.server.stepping import Operation
from headwater.wire.requests import AckBody, ClaimBody, ExtendBody, NackBody, decode_request

if TYPE_CHECKING:
    from headwater.server.app import App

_encode = msgspec.json.Encoder().encode


def claim(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), ClaimBody)
    exchange.waits_for_news = True  # whoever leaves meanwhile shall not be given jobs
    wish = ClaimWish(
        body.node, body.max, body.lease_ms, body.wait_ms, goes_on=lambda: not app.draining
    )
    steps = claim_as_steps(app.engine, exchange.parameters[0], wish, _rendered)
    Operation(app, exchange, steps, partial(_answer_claim, exchange)).begin(quits=True)


def _rendered(
    engine: Engine, queues: Queues, topic: Topic, request: ClaimRequest
) -> Steps[JobsText]:
    if request.grant is None:
        ready: int = yield AsOwner(lambda: queues.ready(topic))
        return JobsText(b"", 0, ready)
    return (yield from jobs_text_steps(engine, queues, topic, request.grant))


def _answer_claim(exchange: Exchange, claimed: JobsText) -> None:
    rest = b'],"count":%d,"ready":%d,"performance":{"server_total_ms":%.3f}}' % (
        claimed.jobs,
        claimed.ready,
        exchange.elapsed_ms(),
    )
    exchange.answer_json_parts(b'{"claimed":[', claimed.text, rest)


def ack(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), AckBody)
    name = exchange.parameters[0]
    steps = ack_steps(app.engine, name, body.node, body.seqs, body.lease_ids)
    _settle(app, exchange, steps, _say_acked)


def nack(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), NackBody)
    name = exchange.parameters[0]
    steps = nack_steps(app.engine, name, body.node, body.seqs, body.lease_ids, body.delay_ms)
    _settle(app, exchange, steps, _say_nacked)


def extend(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), ExtendBody)
    name = exchange.parameters[0]
    steps = extend_steps(app.engine, name, body.node, body.seqs, body.lease_ids, body.lease_ms)
    _settle(app, exchange, steps, _say_extended)


def _settle(
    app: App, exchange: Exchange, steps: Steps[Settled], say: Callable[[Settled], bytes]
) -> None:
    def answer(settled: Settled) -> None:
        exchange.answer_json(
            200,
            b'{%b,"skipped":%b,"ready":%d,"in_flight":%d,"performance":{"server_total_ms":%.3f}}'
            % (
                say(settled),
                _encode(settled.skipped),
                settled.ready,
                settled.in_flight,
                exchange.elapsed_ms(),
            ),
        )
        app.pushing.nudge(exchange.parameters[0])  # a worker may have room for more

    Operation(app, exchange, steps, answer).begin()


def _say_acked(settled: Settled) -> bytes:
    return b'"acked":%d' % len(settled.seqs)


def _say_nacked(settled: Settled) -> bytes:
    return b'"nacked":%d' % len(settled.seqs)


def _say_extended(settled: Settled) -> bytes:
    return b'"extended":%d,"deadlines":%b' % (len(settled.seqs), _encode(settled.deadlines))
