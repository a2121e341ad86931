"""Machines over HTTP: define, get, draw; and their log."""

from __future__ import annotations

import re
from functools import partial
from typing import Final, TypeVar

import msgspec

from headwater.core.errors import InvalidRequestError
from headwater.engine.operation import Work
from headwater.model.machines.errors import bad_request
from headwater.server.backend import Backend
from headwater.server.http.exchange import GZIP_BYTES_MIN, Exchange
from headwater.server.http.operation import HttpOperation
from headwater.server.http.request_body import body_of
from headwater.server.machines import operations
from headwater.wire.answers import Spent
from headwater.wire.machine_answers import MachinePutAnswer, MachineResponse
from headwater.wire.machine_requests import CompactBody, PutMachineBody, WalReadBody
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
