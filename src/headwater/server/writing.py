"""POST /v0/topics/:topic. The hot path: no task, the answer waits on the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.core import limits
from headwater.core.errors import BatchTooLargeError, InvalidRequestError, RecordTooLargeError
from headwater.engine.input import EncodedRecords
from headwater.engine.pending import Appended, Pending, Write
from headwater.engine.steps import loaded_steps
from headwater.format.frame import FrameFlag, join_data
from headwater.server.body import body_of
from headwater.server.exchange import Exchange
from headwater.server.topics import flag, require_named
from headwater.wire.requests import WriteRequest, decode_request

if TYPE_CHECKING:
    from headwater.engine.topic import Topic
    from headwater.server.app import App

_HAS_TAG = int(FrameFlag.HAS_TAG)
_HAS_NODE = int(FrameFlag.HAS_NODE)
_HAS_META = int(FrameFlag.HAS_META)
_meta_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def write_records(app: App, exchange: Exchange) -> None:
    engine = app.engine
    name = exchange.parameters[0]
    request = decode_request(body_of(exchange), WriteRequest)
    require_named(app.key_of(exchange), request.config)
    records = encode_request(request)
    topic = engine.find(name)
    if topic is not None and not topic.loaded:
        app.spawn(exchange, _write_after_loading(app, exchange, topic, name, request, records))
        return
    _append(app, exchange, name, request, records)


async def _write_after_loading(
    app: App,
    exchange: Exchange,
    topic: Topic,
    name: str,
    request: WriteRequest,
    records: EncodedRecords,
) -> None:
    await app.ready_database.drive(loaded_steps(app.engine, topic))
    _append(app, exchange, name, request, records)


def _append(
    app: App, exchange: Exchange, name: str, request: WriteRequest, records: EncodedRecords
) -> None:
    key = request.idempotency_key
    if key is None and b"idempotency-key" in exchange.headers:
        key = exchange.header(b"idempotency-key")
    with_seqs = not exchange.query_bytes or flag(exchange, "return_seqs", True)
    quota_key = app.key_of(exchange)
    app.quotas.begin(quota_key)
    try:
        write = app.engine.append(
            name,
            records,
            idempotency_key=key,
            expect_head_seq=request.expect_head_seq,
            create=request.create,
            settings=request.config,
        )
    except BaseException:
        app.quotas.end(quota_key)
        raise

    def answer(done: Pending[Appended]) -> None:
        app.quotas.end(quota_key)
        if done.error is not None:
            exchange.fail(done.error)
        else:
            assert isinstance(done, Write)
            _answer(exchange, done, with_seqs=with_seqs)

    if write.done:
        answer(write)
    else:
        write.on_done = answer


def _answer(exchange: Exchange, write: Write, *, with_seqs: bool) -> None:
    result = write.answer()
    total_ms = exchange.elapsed_ms()
    fsync_ms = write.sync_us / 1_000
    seqs = b""
    if with_seqs:
        seqs = b'"seqs":[%b],' % b",".join([b"%d" % seq for seq in result.seqs])
    body = (
        b'{"first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,"deduped":%b,'
        b'"performance":{"server_total_ms":%.3f,"wal_append_ms":%.3f,"fsync_ms":%.3f,'
        b'"throttle_wait_ms":0}}'
        % (
            result.first_seq,
            result.last_seq,
            seqs,
            result.head_seq,
            result.records,
            b"true" if result.created else b"false",
            b"true" if result.deduped else b"false",
            total_ms,
            max(total_ms - fsync_ms, 0.0),
            fsync_ms,
        )
    )
    exchange.answer_json(201 if result.created and not result.deduped else 200, body)


def encode_request(request: WriteRequest) -> EncodedRecords:
    """Records as they came, checked against the limits; payloads stay the bytes they were."""
    records = request.records
    if not records:
        raise InvalidRequestError("a write takes at least one record")
    if len(records) > limits.BATCH_RECORDS_MAX:
        raise BatchTooLargeError(
            f"a write takes at most {limits.BATCH_RECORDS_MAX} records, not {len(records)}"
        )
    batch_node = _checked(request.node, "node", limits.NODE_BYTES_MAX) if request.node else b""
    encoded = EncodedRecords([], [], [], [])
    for position, record in enumerate(records):
        flags = 0
        tag, node = b"", batch_node
        if record.tag is not None:
            tag = _checked(record.tag, "tag", limits.TAG_BYTES_MAX)
            flags = _HAS_TAG
        if record.node is not None:
            node = _checked(record.node, "node", limits.NODE_BYTES_MAX)
            flags |= _HAS_NODE
        elif node:
            flags |= _HAS_NODE
        data = bytes(record.data)
        meta = bytes(record.meta)
        if meta and meta != b"null":
            data = join_data(data, _checked_meta(meta, position))
            flags |= _HAS_META
        if len(data) > limits.RECORD_BYTES_MAX:
            raise RecordTooLargeError(
                f"record {position} has {len(data)} bytes; "
                f"at most {limits.RECORD_BYTES_MAX} are taken"
            )
        encoded.nodes.append(node)
        encoded.tags.append(tag)
        encoded.datas.append(data)
        encoded.flags.append(flags)
    return encoded


def _checked(text: str, field: str, bytes_max: int) -> bytes:
    encoded = text.encode()
    if len(encoded) > bytes_max:
        raise InvalidRequestError(f"{field} has over {bytes_max} bytes")
    return encoded


def _checked_meta(meta: bytes, position: int) -> bytes:
    if len(meta) > limits.META_BYTES_MAX:
        raise RecordTooLargeError(f"record {position}: meta has over {limits.META_BYTES_MAX} bytes")
    try:
        keys = _meta_decoder.decode(meta)
    except msgspec.MsgspecError as error:
        raise InvalidRequestError(f"record {position}: meta must be an object") from error
    if len(keys) > limits.META_KEYS_MAX:
        raise InvalidRequestError(f"record {position}: meta has over {limits.META_KEYS_MAX} keys")
    return meta
