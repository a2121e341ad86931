"""Machines over HTTP: define, get, draw; and their log."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from headwater.core.errors import InvalidRequestError
from headwater.model.machines.errors import bad_request
from headwater.server.http.exchange import GZIP_BYTES_MIN, Exchange
from headwater.server.http.request_body import body_of
from headwater.server.machines import operations
from headwater.server.operation_runner import HttpOperation, Work
from headwater.wire.answers import Spent
from headwater.wire.machine_answers import MachinePutAnswer, MachineResponse
from headwater.wire.machine_requests import CompactBody, PutMachineBody, WalReadBody
from headwater.wire.requests import decode_request

if TYPE_CHECKING:
    from headwater.server.app import App

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


def respond(exchange: Exchange, response: MachineResponse, status: int = 200) -> None:
    response.performance = Spent(round(exchange.elapsed_ms(), 3))
    body = _encode(response)
    if status == OK and exchange.takes_short_answer and len(body) < GZIP_BYTES_MIN:
        exchange.answer_short(body)
    else:
        exchange.answer_json(status, body)


def begin(app: App, exchange: Exchange, operation: Work[T]) -> None:
    HttpOperation(app, exchange, operation, partial(respond, exchange)).begin()


def put_machine(app: App, exchange: Exchange) -> None:
    machine, version = exchange.parameters
    body = decode_request(body_of(exchange), PutMachineBody)

    def answer(made: MachinePutAnswer) -> None:
        respond(exchange, made, 201 if made.created else 200)

    number = _number(version)
    operation = operations.put_machine(
        app.engine, app.key_of(exchange), machine, number, body.definition
    )
    HttpOperation(app, exchange, operation, answer).begin()


def get_machine(app: App, exchange: Exchange) -> None:
    machine, version = exchange.parameters
    key = app.key_of(exchange)
    begin(app, exchange, operations.get_machine(app.engine, key, machine, _or_latest(version)))


def list_machines(app: App, exchange: Exchange) -> None:
    begin(app, exchange, operations.list_machines(app.engine, app.key_of(exchange)))


def draw_machine(app: App, exchange: Exchange) -> None:
    machine, version = exchange.parameters
    query = exchange.query()
    form = query.get("format", "svg")
    if form not in DRAWINGS:
        raise InvalidRequestError(f"format must be one of {', '.join(DRAWINGS)}")

    def answer(drawn: str) -> None:
        exchange.answer(200, drawn.encode(), {"content-type": DRAWINGS[form], **SAFE})

    operation = operations.draw(
        app.engine,
        app.key_of(exchange),
        machine,
        _or_latest(version),
        form=form,
        instance_id=query.get("instance"),
    )
    HttpOperation(app, exchange, operation, answer).begin()


def read_wal(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), WalReadBody)
    begin(app, exchange, operations.read_wal(app.engine, app.key_of(exchange), body))


def wal_stats(app: App, exchange: Exchange) -> None:
    begin(app, exchange, operations.wal_stats(app.engine, app.key_of(exchange)))


def compact(app: App, exchange: Exchange) -> None:
    decode_request(body_of(exchange), CompactBody)
    begin(app, exchange, operations.compact(app.engine, app.key_of(exchange)))


def _number(version: str) -> int:
    if _VERSION.fullmatch(version) is None:
        raise bad_request("a version is a whole number, 1 or more")
    return int(version)


def _or_latest(version: str) -> int | None:
    return None if version == "latest" else _number(version)
