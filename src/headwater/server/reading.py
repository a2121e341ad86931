"""POST /v0/topics/:topic/diff and GET .../arrow: answers joined from stored bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.core import limits
from headwater.core.records import Record
from headwater.engine.reading import Diff
from headwater.engine.steps import (
    DiffRequest,
    diff_request,
    diff_steps,
    read_steps,
    topic_steps,
)
from headwater.model.loss import Tombstone
from headwater.server.body import body_of
from headwater.server.exchange import Exchange
from headwater.server.topics import number
from headwater.wire.arrow import ARROW_MEDIA_TYPE, records_to_arrow
from headwater.wire.render import Projection, render_records
from headwater.wire.requests import DiffRequestBody, decode_request

if TYPE_CHECKING:
    from headwater.server.app import App

ARROW_ROWS_DEFAULT = 100_000
ARROW_ROWS_MAX = 1_000_000


def diff(app: App, exchange: Exchange) -> None:
    body = decode_request(body_of(exchange), DiffRequestBody)
    request = diff_request(
        body.from_seq, body.limit, body.max_batch_bytes, body.wait_ms, body.node, body.match
    )
    projection = Projection(body.include_tags, body.include_meta)
    topic = app.engine.topic(exchange.parameters[0])
    if topic.loaded:
        # Most reads are near the head and need no file: answered at once, without a task.
        found = app.ready_database.drive_at_once(read_steps(app.engine, topic, request))
        if found is not None and not (request.wait_us and _is_empty(found)):
            _answer(exchange, found, projection)
            return
    app.spawn(exchange, _diff_later(app, exchange, request, projection))


def _is_empty(found: Diff) -> bool:
    return found.caught_up and not found.records and found.tombstone is None


async def _diff_later(
    app: App, exchange: Exchange, request: DiffRequest, projection: Projection
) -> None:
    steps = diff_steps(app.engine, exchange.parameters[0], request)
    found = await app.ready_database.drive(steps)
    _answer(exchange, found, projection)


def _answer(exchange: Exchange, found: Diff, projection: Projection) -> None:
    tombstone = b"null" if found.tombstone is None else encode_tombstone(found.tombstone)
    body = (
        b'{"records":%b,"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,'
        b'"tombstone":%b,"lag":%d,"performance":{"server_total_ms":%.3f,"records_scanned":%d,'
        b'"cold_segments_read":%d}}'
        % (
            render_records(found.records, projection),
            found.next_from_seq,
            found.head_seq,
            found.earliest_seq,
            b"true" if found.caught_up else b"false",
            tombstone,
            found.lag,
            exchange.elapsed_ms(),
            found.records_scanned,
            found.cold_segments_read,
        )
    )
    exchange.answer_json(200, body)


def encode_tombstone(tombstone: Tombstone) -> bytes:
    return msgspec.json.encode(tombstone)


async def read_arrow(app: App, exchange: Exchange) -> None:
    """A range of records as an Arrow IPC stream."""
    from_seq = number(exchange, "from_seq", 0, 0, limits.INTEGER_MAX)
    to_seq = number(exchange, "to_seq", limits.INTEGER_MAX, 0, limits.INTEGER_MAX)
    most = number(exchange, "limit", ARROW_ROWS_DEFAULT, 1, ARROW_ROWS_MAX)
    database = app.ready_database
    topic = await database.drive(topic_steps(app.engine, exchange.parameters[0]))
    records: list[Record] = []
    cursor, tombstone, caught_up = from_seq, None, False
    while len(records) < most and cursor < to_seq and not caught_up:
        request = diff_request(
            cursor, min(limits.READ_RECORDS_CLAMP, most - len(records)), limits.READ_BYTES_CLAMP
        )
        found = await database.drive(read_steps(app.engine, topic, request))
        tombstone = tombstone or found.tombstone
        cursor, caught_up = found.next_from_seq, found.caught_up
        records += [record for record in found.records if record.seq <= to_seq]
    stream = await app.loop.run_in_executor(None, records_to_arrow, topic.name, records)
    exchange.answer(
        200,
        stream,
        {
            "content-type": ARROW_MEDIA_TYPE,
            "x-next-from-seq": str(min(cursor, to_seq)),
            "x-caught-up": "true" if caught_up else "false",
            "x-tombstone": "" if tombstone is None else encode_tombstone(tombstone).decode(),
        },
    )
