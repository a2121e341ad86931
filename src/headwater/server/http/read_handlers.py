"""POST /v0/topics/:topic/diff and GET .../arrow: answers joined from stored bytes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from headwater.api.call_list import ARROW_ROWS_DEFAULT, ARROW_ROWS_MAX
from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.core.results import Tombstone
from headwater.engine.operation import Operation
from headwater.engine.routers.operations import caught_up_operation
from headwater.engine.topics.arrow import arrow_operation
from headwater.engine.topics.operations import ReadResult, diff_request, long_poll_operation
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange, body_of
from headwater.server.http.json_rows import take_pieces
from headwater.server.http.topic_handlers import number
from headwater.wire.frames import Projection
from headwater.wire.page import Piece
from headwater.wire.requests import DiffRequestBody, decode_request

ARROW_MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"


def diff(backend: Backend, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), DiffRequestBody)
    request = diff_request(
        body.from_seq, body.limit, body.max_batch_bytes, body.wait_ms, body.node, body.match
    )
    projection = Projection(body.include_tags, body.include_meta)
    take = take_pieces(projection, reads_files=exchange.connection.reads_files)
    name = exchange.parameters[0]
    operation = long_poll_operation(backend.space(name, exchange.head.key), name, request, take)
    if body.consistency == "strong":
        operation = _strong_read(backend, name, operation)
    elif body.consistency != "eventual":
        raise InvalidRequestError("consistency is eventual or strong")
    # Most reads are near the head and need no file: answered at once, without a task.
    result = backend.ready_database.driver.begin(operation)
    if isinstance(result, ReadResult):
        _answer(exchange, result)
    else:
        exchange.waits_for_event = request.wait_us > 0
        exchange.spawn(_answer_later(exchange, result))


def _strong_read(
    backend: Backend, name: str, reading: Operation[ReadResult[list[Piece]]]
) -> Operation[ReadResult[list[Piece]]]:
    topic = backend.engine.find(name)  # partitions of Kafka topics have no routers
    if topic is not None:
        yield from caught_up_operation(backend.engine, topic)
    return (yield from reading)


async def _answer_later(
    exchange: Exchange, reading: Coroutine[Any, Any, ReadResult[list[Piece]]]
) -> None:
    _answer(exchange, await reading)


def _answer(exchange: Exchange, result: ReadResult[list[Piece]]) -> None:
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
    exchange.answer_page(opening, *result.payload, rest)


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return msgspec.json.encode(tombstone)


async def read_arrow(backend: Backend, exchange: Exchange) -> None:
    """A range of records as an Arrow IPC stream."""
    database, name = backend.ready_database, exchange.parameters[0]
    from_seq = number(exchange, "from_seq", 0, 0, limits.INTEGER_MAX)
    to_seq = number(exchange, "to_seq", limits.INTEGER_MAX, 0, limits.INTEGER_MAX)
    rows_max = number(exchange, "limit", ARROW_ROWS_DEFAULT, 1, ARROW_ROWS_MAX)
    space = backend.space(name, exchange.head.key)
    page = await database.drive(arrow_operation(space, name, from_seq, to_seq, rows_max))
    tombstone = b"" if page.tombstone is None else encode_tombstone(page.tombstone)
    exchange.answer_parts(
        200,
        page.parts,
        {
            "content-type": ARROW_MEDIA_TYPE,
            "x-next-from-seq": str(page.next_from_seq),
            "x-epoch": str(page.epoch),
            "x-caught-up": "true" if page.caught_up else "false",
            "x-tombstone": tombstone.decode(),
        },
    )
