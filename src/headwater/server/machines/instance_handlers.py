"""Instances over HTTP: create, migrate, get, list, delete. `instance_stream` follows them."""

from __future__ import annotations

from headwater.api.machine_requests import ApplyEvent, Sees
from headwater.core.errors import HeadwaterError
from headwater.engine.machines.answers import Applied
from headwater.engine.machines.event_batcher import PendingEvent
from headwater.engine.machines.responses import applied
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.operation import HttpOperation
from headwater.server.http.request_body import body_of
from headwater.server.http.topic_handlers import number
from headwater.server.machines import operations
from headwater.server.machines.instance_names import full_request, own_answer
from headwater.server.machines.machine_handlers import begin, respond
from headwater.wire.machine_answers import InstanceMadeAnswer
from headwater.wire.machine_requests import (
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    ApplyEventBody,
    BatchBody,
    CreateInstanceBody,
    ListInstancesParams,
    MigrateBody,
    batch_params,
)
from headwater.wire.requests import decode_request

OFFSET_MAX = 10**12


def create_instance(backend: Backend, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), CreateInstanceBody)
    if body.idempotency_key is None:
        body.idempotency_key = exchange.header(b"idempotency-key")

    def answer(made: InstanceMadeAnswer) -> None:
        respond(exchange, made, 201 if made.applied else 200)

    operation = operations.create_instance(backend.engine, exchange.key, body)
    HttpOperation(backend, exchange, operation, answer).begin()


def get_instance(backend: Backend, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    begin(backend, exchange, operations.get_instance(backend.engine, exchange.key, name))


def list_instances(backend: Backend, exchange: Exchange) -> None:
    query = exchange.query()
    wanted = ListInstancesParams(
        query.get("machine"),
        query.get("state"),
        number(exchange, "limit", LIST_LIMIT_DEFAULT, 1, LIST_LIMIT_MAX),
        number(exchange, "offset", 0, 0, OFFSET_MAX),
    )
    begin(backend, exchange, operations.list_instances(backend.engine, exchange.key, wanted))


def delete_instance(backend: Backend, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    repeat = exchange.query().get("idempotency_key") or exchange.header(b"idempotency-key")
    key = exchange.key
    begin(backend, exchange, operations.delete_instance(backend.engine, key, name, repeat))


def apply_event(backend: Backend, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    body = decode_request(body_of(exchange), ApplyEventBody)
    if body.idempotency_key is None:
        body.idempotency_key = exchange.header(b"idempotency-key")
    engine, key = backend.engine, exchange.key
    store = engine.machines.store
    if store is None:
        begin(backend, exchange, operations.apply_event(engine, key, name, body))
    else:
        request = full_request(store, key, operations.event_request(name, body))
        store.submit_event(HttpEvent(exchange, request, operations.sees_of(key)))


class HttpEvent(PendingEvent):
    """An event, and the request that waits for its answer."""

    __slots__ = ("_exchange", "_usage")

    def __init__(self, exchange: Exchange, request: ApplyEvent, sees: Sees | None) -> None:
        super().__init__(request, sees)
        self._exchange = exchange
        self._usage = exchange.usage
        self._usage.begin()

    def succeed(self, answer: Applied) -> None:
        self._usage.end()
        try:
            respond(self._exchange, own_answer(self._exchange.key, applied(answer)))
        except Exception as error:
            self._exchange.broken(error)

    def fail(self, error: Exception) -> None:
        self._usage.end()
        if isinstance(error, HeadwaterError):
            self._exchange.fail(error)
        else:
            self._exchange.broken(error)


def run_batch(backend: Backend, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), BatchBody)
    batch = [batch_params(each, index) for index, each in enumerate(body.operations)]
    key = exchange.key
    begin(backend, exchange, operations.run_batch(backend.engine, key, batch, body.mode))


def history(backend: Backend, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    limit = number(exchange, "limit", LIST_LIMIT_DEFAULT, 1, LIST_LIMIT_MAX)
    begin(backend, exchange, operations.history(backend.engine, exchange.key, name, limit))


def migrate(backend: Backend, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    body = decode_request(body_of(exchange), MigrateBody)
    begin(backend, exchange, operations.migrate(backend.engine, exchange.key, name, body))


def snapshot_instance(backend: Backend, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    begin(backend, exchange, operations.snapshot_instance(backend.engine, exchange.key, name))
