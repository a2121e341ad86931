"""Machines over HTTP: define, get, draw; and their log. Instances: create, migrate, get, list,
delete; `instance_stream` follows them."""

from __future__ import annotations

import re
from functools import partial
from typing import Final, TypeVar

import msgspec

from headwater.api.machine_requests import ApplyEvent, Sees
from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.engine.machines.answers import Applied
from headwater.engine.machines.event_batcher import PendingEvent
from headwater.engine.machines.responses import applied
from headwater.engine.operation import Work
from headwater.model.machines.errors import bad_request
from headwater.server.backend import Backend
from headwater.server.http.exchange import GZIP_BYTES_MIN, Exchange, body_of
from headwater.server.http.operation import HttpOperation
from headwater.server.http.topic_handlers import number
from headwater.server.machines import operations
from headwater.server.machines.operations import full_request, own_answer
from headwater.wire.answers import Spent
from headwater.wire.machine_answers import InstanceMadeAnswer, MachinePutAnswer, MachineResponse
from headwater.wire.machine_requests import (
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    ApplyEventBody,
    BatchBody,
    CompactBody,
    CreateInstanceBody,
    ListInstancesParams,
    MigrateBody,
    PutMachineBody,
    WalReadBody,
    batch_params,
)
from headwater.wire.requests import decode_request

T = TypeVar("T", bound=MachineResponse)
DRAWINGS: Final = {"svg": "image/svg+xml", "mermaid": "text/plain; charset=utf-8"}
SAFE: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
"""A drawing is opened in browsers: nothing in it may run, whatever states are called."""
OK: Final = 200
_VERSION: Final = re.compile(r"[1-9][0-9]{0,15}")
_encode = msgspec.json.Encoder().encode
OFFSET_MAX = 10**12


def respond(exchange: Exchange, response: MachineResponse, status: int = 200) -> None:
    response.performance = Spent(round(exchange.elapsed_ms(), 3))
    body = _encode(response)
    if status == OK and exchange.takes_short_answer and len(body) < GZIP_BYTES_MIN:
        exchange.answer_short(body)
    else:
        exchange.answer_json(status, body)


def begin(backend: Backend, exchange: Exchange, operation: Work[T]) -> None:
    HttpOperation(backend, exchange, operation, partial(respond, exchange)).begin()


def put_machine(backend: Backend, exchange: Exchange) -> None:
    machine, version = exchange.parameters
    body = decode_request(body_of(exchange), PutMachineBody)

    def answer(made: MachinePutAnswer) -> None:
        respond(exchange, made, 201 if made.created else 200)

    number = _number(version)
    operation = operations.put_machine(
        backend.engine, exchange.key, machine, number, body.definition
    )
    HttpOperation(backend, exchange, operation, answer).begin()


def get_machine(backend: Backend, exchange: Exchange) -> None:
    machine, version = exchange.parameters
    key = exchange.key
    begin(
        backend, exchange, operations.get_machine(backend.engine, key, machine, _or_latest(version))
    )


def list_machines(backend: Backend, exchange: Exchange) -> None:
    begin(backend, exchange, operations.list_machines(backend.engine, exchange.key))


def draw_machine(backend: Backend, exchange: Exchange) -> None:
    machine, version = exchange.parameters
    query = exchange.query()
    form = query.get("format", "svg")
    if form not in DRAWINGS:
        raise InvalidRequestError(f"format must be one of {', '.join(DRAWINGS)}")

    def answer(drawn: str) -> None:
        exchange.answer(200, drawn.encode(), {"content-type": DRAWINGS[form], **SAFE})

    operation = operations.draw(
        backend.engine,
        exchange.key,
        machine,
        _or_latest(version),
        form=form,
        instance_id=query.get("instance"),
    )
    HttpOperation(backend, exchange, operation, answer).begin()


def read_wal(backend: Backend, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), WalReadBody)
    begin(backend, exchange, operations.read_wal(backend.engine, exchange.key, body))


def wal_stats(backend: Backend, exchange: Exchange) -> None:
    begin(backend, exchange, operations.wal_stats(backend.engine, exchange.key))


def compact(backend: Backend, exchange: Exchange) -> None:
    decode_request(body_of(exchange), CompactBody)
    begin(backend, exchange, operations.compact(backend.engine, exchange.key))


def _number(version: str) -> int:
    if _VERSION.fullmatch(version) is None:
        raise bad_request("a version is a whole number, 1 or more")
    return int(version)


def _or_latest(version: str) -> int | None:
    return None if version == "latest" else _number(version)


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
