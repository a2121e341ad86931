"""POST /v0/topics/:topic/requeue: dead letters back to where they came from."""

from __future__ import annotations

from headwater.engine.queues.dead_letters import requeue_operation
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.queue_handlers import require_queue
from headwater.server.http.request_body import body_of
from headwater.server.http.topic_handlers import answer
from headwater.wire.requests import RequeueBody, decode_request


async def requeue(backend: Backend, exchange: Exchange) -> None:
    """A key gives letters back only to queues it may name."""
    body = decode_request(body_of(exchange), RequeueBody)
    require_queue(backend, exchange)
    may_name = exchange.key.may_name
    operation = requeue_operation(backend.engine, exchange.parameters[0], body.seqs, may_name)
    requeued = await backend.ready_database.drive(operation)
    answer(exchange, 200, {"requeued": len(requeued.seqs), "skipped": requeued.skipped})
