"""POST /v0/topics/:topic/diff and GET .../arrow: answers joined from stored bytes."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.core.results import Tombstone
from headwater.core.units import MIB
from headwater.engine.operation import InFiles, Operation
from headwater.engine.routers.operations import caught_up_operation
from headwater.engine.topics.operations import (
    ReadResult,
    diff_request,
    loaded_topic,
    long_poll_operation,
    read_as_operation,
)
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.json_rows import take_rendered
from headwater.server.http.request_body import body_of
from headwater.server.http.topic_handlers import number
from headwater.wire.render import Projection
from headwater.wire.requests import DiffRequestBody, decode_request

ARROW_ROWS_DEFAULT = 100_000
ARROW_ROWS_MAX = 1_000_000
ARROW_ROWS_AT_ONCE = 16_384
ARROW_BYTES_MAX = 64 * MIB
"""Payload of one answer; x-next-from-seq says where to go on."""


def diff(backend: Backend, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), DiffRequestBody)
    request = diff_request(
        body.from_seq, body.limit, body.max_batch_bytes, body.wait_ms, body.node, body.match
    )
    take = take_rendered(Projection(body.include_tags, body.include_meta))
    name = exchange.parameters[0]
    operation = long_poll_operation(backend.space(name, exchange.head.key), name, request, take)
    if body.consistency == "strong":
        operation = _strong_read(backend, name, operation)
    elif body.consistency != "eventual":
        raise InvalidRequestError("consistency is eventual or strong")
    # Most reads are near the head and need no file: answered at once, without a task.
    result = backend.ready_database.begin(operation)
    if isinstance(result, ReadResult):
        _answer(exchange, result)
    else:
        exchange.waits_for_event = request.wait_us > 0
        exchange.spawn(_answer_later(exchange, result))


def _strong_read(
    backend: Backend, name: str, reading: Operation[ReadResult[bytes]]
) -> Operation[ReadResult[bytes]]:
    topic = backend.engine.find(name)  # partitions of Kafka topics have no routers
    if topic is not None:
        yield from caught_up_operation(backend.engine, topic)
    return (yield from reading)


async def _answer_later(
    exchange: Exchange, reading: Coroutine[Any, Any, ReadResult[bytes]]
) -> None:
    _answer(exchange, await reading)


def _answer(exchange: Exchange, result: ReadResult[bytes]) -> None:
    tombstone = b"null" if result.tombstone is None else encode_tombstone(result.tombstone)
    rest = (
        b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,'
        b'"tombstone":%b,"lag":%d,"performance":{"server_total_ms":%.3f,"records_scanned":%d,'
        b'"cold_segments_read":%d}}'
        % (
            result.next_from_seq,
            result.head_seq,
            result.earliest_seq,
            b"true" if result.caught_up else b"false",
            tombstone,
            result.lag,
            exchange.elapsed_ms(),
            result.records_scanned,
            result.cold_segments_read,
        )
    )
    opening = b'{"topic":"%b","records":[' % exchange.parameters[0].encode()
    exchange.answer_json_parts(opening, result.payload, rest)


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return msgspec.json.encode(tombstone)


@cache
def _load_arrow() -> None:
    """Late, since Arrow takes as long to load as a small log takes to open."""
    import_module("headwater.server.http.arrow_rows")


def _load_arrow_in_files() -> Operation[None]:
    """On a thread that may wait: on the loop, all other requests would wait."""
    yield InFiles(_load_arrow)


async def read_arrow(backend: Backend, exchange: Exchange) -> None:
    """A range of records as an Arrow IPC stream."""
    database = backend.ready_database
    if not _load_arrow.cache_info().currsize:
        await database.drive(_load_arrow_in_files())
    from headwater.server.http.arrow_rows import ARROW_MEDIA_TYPE, arrow_stream, take_arrow

    from_seq = number(exchange, "from_seq", 0, 0, limits.INTEGER_MAX)
    to_seq = number(exchange, "to_seq", limits.INTEGER_MAX, 0, limits.INTEGER_MAX)
    most = number(exchange, "limit", ARROW_ROWS_DEFAULT, 1, ARROW_ROWS_MAX)
    space = backend.space(exchange.parameters[0], exchange.head.key)
    topic = await database.drive(loaded_topic(space, exchange.parameters[0]))
    take = take_arrow(topic.name, to_seq)
    batches: list[Any] = []
    rows, size, cursor, tombstone, caught_up = 0, 0, from_seq, None, False
    while rows < most and size < ARROW_BYTES_MAX and cursor < to_seq and not caught_up:
        request = replace(
            diff_request(cursor),
            limit=min(ARROW_ROWS_AT_ONCE, most - rows),
            bytes_max=limits.READ_BYTES_CLAMP,
        )
        result = await database.drive(read_as_operation(space, topic, request, take))
        if result.tombstone is not None and (rows or tombstone is not None):
            break  # an answer has one tombstone, and it comes before the records
        tombstone = result.tombstone or tombstone
        cursor, caught_up = result.next_from_seq, result.caught_up
        batches += result.payload
        rows += sum(batch.num_rows for batch in result.payload)
        size += sum(batch.nbytes for batch in result.payload)
    exchange.answer_parts(
        200,
        arrow_stream(batches),
        {
            "content-type": ARROW_MEDIA_TYPE,
            "x-next-from-seq": str(min(cursor, to_seq)),
            "x-epoch": str(topic.log.epoch),
            "x-caught-up": "true" if caught_up else "false",
            "x-tombstone": "" if tombstone is None else encode_tombstone(tombstone).decode(),
        },
    )
