"""Instances over HTTP: create, migrate, get, list, delete. `instance_stream` follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.api.machine_requests import ApplyEvent, Sees
from headwater.core.errors import HeadwaterError
from headwater.engine.machines.answers import Applied
from headwater.engine.machines.event_batcher import PendingEvent
from headwater.engine.machines.responses import applied
from headwater.server.http.exchange import Exchange
from headwater.server.http.request_body import body_of
from headwater.server.http.topic_handlers import number
from headwater.server.machines import operations
from headwater.server.machines.instance_names import full_request, own_answer
from headwater.server.machines.machine_handlers import begin, respond
from headwater.server.operation_runner import HttpOperation
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

if TYPE_CHECKING:
    from headwater.server.app import App

OFFSET_MAX = 10**12


def create_instance(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), CreateInstanceBody)
    if body.idempotency_key is None:
        body.idempotency_key = exchange.header(b"idempotency-key")

    def answer(made: InstanceMadeAnswer) -> None:
        respond(exchange, made, 201 if made.applied else 200)

    operation = operations.create_instance(app.engine, app.key_of(exchange), body)
    HttpOperation(app, exchange, operation, answer).begin()


def get_instance(app: App, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    begin(app, exchange, operations.get_instance(app.engine, app.key_of(exchange), name))


def list_instances(app: App, exchange: Exchange) -> None:
    query = exchange.query()
    wanted = ListInstancesParams(
        query.get("machine"),
        query.get("state"),
        number(exchange, "limit", LIST_LIMIT_DEFAULT, 1, LIST_LIMIT_MAX),
        number(exchange, "offset", 0, 0, OFFSET_MAX),
    )
    begin(app, exchange, operations.list_instances(app.engine, app.key_of(exchange), wanted))


def delete_instance(app: App, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    repeat = exchange.query().get("idempotency_key") or exchange.header(b"idempotency-key")
    key = app.key_of(exchange)
    begin(app, exchange, operations.delete_instance(app.engine, key, name, repeat))


def apply_event(app: App, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    body = decode_request(body_of(exchange), ApplyEventBody)
    if body.idempotency_key is None:
        body.idempotency_key = exchange.header(b"idempotency-key")
    engine, key = app.engine, app.key_of(exchange)
    store = engine.machines.store
    if store is None:
        begin(app, exchange, operations.apply_event(engine, key, name, body))
    else:
        request = full_request(store, key, operations.event_request(name, body))
        store.submit_event(HttpEvent(app, exchange, request, operations.sees_of(key)))


class HttpEvent(PendingEvent):
    """An event, and the request that waits for its answer."""

    __slots__ = ("_app", "_exchange", "_usage")

    def __init__(
        self, app: App, exchange: Exchange, request: ApplyEvent, sees: Sees | None
    ) -> None:
        super().__init__(request, sees)
        self._app = app
        self._exchange = exchange
        usage = exchange.head.usage
        assert usage is not None
        usage.begin()
        self._usage = usage

    def succeed(self, answer: Applied) -> None:
        self._usage.end()
        try:
            respond(self._exchange, own_answer(self._app.key_of(self._exchange), applied(answer)))
        except Exception as error:
            self._app.broken(self._exchange, error)

    def fail(self, error: Exception) -> None:
        self._usage.end()
        if isinstance(error, HeadwaterError):
            self._exchange.fail(error)
        else:
            self._app.broken(self._exchange, error)


def run_batch(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), BatchBody)
    batch = [batch_params(each, index) for index, each in enumerate(body.operations)]
    key = app.key_of(exchange)
    begin(app, exchange, operations.run_batch(app.engine, key, batch, body.mode))


def history(app: App, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    limit = number(exchange, "limit", LIST_LIMIT_DEFAULT, 1, LIST_LIMIT_MAX)
    begin(app, exchange, operations.history(app.engine, app.key_of(exchange), name, limit))


def migrate(app: App, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    body = decode_request(body_of(exchange), MigrateBody)
    begin(app, exchange, operations.migrate(app.engine, app.key_of(exchange), name, body))


def snapshot_instance(app: App, exchange: Exchange) -> None:
    (name,) = exchange.parameters
    begin(app, exchange, operations.snapshot_instance(app.engine, app.key_of(exchange), name))
