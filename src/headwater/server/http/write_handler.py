"""One write by itself: no task, the answer waits on the commit. See `write_batcher` for many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from headwater.core import limits
from headwater.core.errors import BatchTooLargeError, InvalidRequestError, RecordTooLargeError
from headwater.core.results import Appended
from headwater.engine.owner import Pending
from headwater.engine.topics.operations import ensure_loaded
from headwater.engine.topics.publisher import PendingAppend
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.format.frame import FrameFlag, join_data
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange, body_of
from headwater.server.http.topic_handlers import flag, require_named
from headwater.wire.answers import Performance, WriteAnswer
from headwater.wire.requests import NO_META, RecordIn, WriteRequest, decode_request

if TYPE_CHECKING:
    from headwater.engine.partition import Partition
    from headwater.server.access.quotas import Usage

_HAS_TAG = int(FrameFlag.HAS_TAG)
_HAS_NODE = int(FrameFlag.HAS_NODE)
_HAS_META = int(FrameFlag.HAS_META)
_encode = msgspec.json.Encoder().encode
_meta_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def write_records(backend: Backend, exchange: Exchange) -> None:
    write_request(backend, exchange, decode_request(body_of(exchange), WriteRequest))


def write_request(backend: Backend, exchange: Exchange, request: WriteRequest) -> None:
    """One write by itself."""
    name = exchange.head.parameters[0]
    if request.config is not None:
        require_named(backend, exchange.key, request.config)
    records = encode_request(request, exchange.limits.record_bytes)
    topic = backend.space(name, exchange.head.key).find(name)
    if topic is not None and not topic.loaded:
        exchange.spawn(_write_after_loading(backend, exchange, topic, name, request, records))
        return
    _append(backend, exchange, name, request, records)


async def _write_after_loading(
    backend: Backend,
    exchange: Exchange,
    topic: Partition,
    name: str,
    request: WriteRequest,
    records: EncodedRecords,
) -> None:
    await backend.ready_database.drive(ensure_loaded(topic))
    _append(backend, exchange, name, request, records)


def _append(
    backend: Backend, exchange: Exchange, name: str, request: WriteRequest, records: EncodedRecords
) -> None:
    head = exchange.head
    key = request.idempotency_key
    if key is None and b"idempotency-key" in head.headers:
        key = exchange.header(b"idempotency-key")
    with_seqs = request.return_seqs
    if with_seqs is None:
        with_seqs = not head.query_bytes or flag(exchange, "return_seqs", True)
    usage = exchange.usage
    usage.begin()
    try:
        write = backend.space(name, head.key).append(
            name,
            records,
            idempotency_key=key,
            expect_head_seq=request.expect_head_seq,
            create=request.create,
            settings=request.config,
            disable_backpressure=request.disable_backpressure,
        )
    except BaseException:
        usage.end()
        raise
    answer = partial(_answer, exchange, usage, with_seqs)
    if write.done:
        answer(write)
    else:
        write.on_done = answer


def _answer(exchange: Exchange, usage: Usage, with_seqs: bool, write: Pending[Appended]) -> None:
    usage.end()
    if write.error is not None:
        exchange.not_written(write.error)
        return
    assert isinstance(write, PendingAppend)
    first, last, head, created, deduped = write.answer()
    total_ms = exchange.elapsed_ms()
    fsync_ms = write.sync_us / 1_000
    append_ms = max(round(total_ms - fsync_ms, 3), 0.0)
    throttle_ms = min(write.throttle_us / 1_000, append_ms)
    spent = Performance(total_ms, append_ms, fsync_ms, throttle_ms)
    seqs = list(range(first, last + 1)) if with_seqs else msgspec.UNSET
    name = exchange.head.parameters[0]
    body = _encode(
        WriteAnswer(name, first, last, head, last - first + 1, created, deduped, spent, seqs)
    )
    exchange.answer_json(201 if created and not deduped else 200, body)


def encode_request(request: WriteRequest, record_bytes_max: int) -> EncodedRecords:
    """Records as they came, checked against the limits; payloads stay the bytes they were."""
    records = request.records
    if not records:
        raise InvalidRequestError("a write takes at least one record")
    if len(records) > limits.BATCH_RECORDS_MAX:
        raise BatchTooLargeError(
            f"a write takes at most {limits.BATCH_RECORDS_MAX} records, not {len(records)}"
        )
    datas = [bytes(record.data) for record in records]
    if request.node is None and not _have_extras(records):
        none = [b""] * len(datas)
        encoded = EncodedRecords(none, none, datas, [0] * len(datas), sum(map(len, datas)))
    else:
        encoded = _with_extras(request, datas)
    if encoded.size > record_bytes_max:
        _refuse_large(datas, record_bytes_max)
    return encoded


def _have_extras(records: Sequence[RecordIn]) -> bool:
    for record in records:
        if (
            record.tag is not None
            or record.node is not None
            or record.meta is not NO_META
            or record.deliver_at is not None
        ):
            return True
    return False


def _refuse_large(datas: Sequence[bytes], bytes_max: int) -> None:
    for position, data in enumerate(datas):
        if len(data) > bytes_max:
            raise RecordTooLargeError(
                f"record {position} has {len(data)} bytes; at most {bytes_max} are taken"
            )


def _with_extras(request: WriteRequest, datas: list[bytes]) -> EncodedRecords:
    """Records of which some have more than a payload; `datas` takes the joined ones."""
    batch_node = _checked(request.node, "node", limits.NODE_BYTES_MAX) if request.node else b""
    encoded = EncodedRecords([], [], datas, [])
    for position, record in enumerate(request.records):
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
        meta = bytes(record.meta)
        if meta and meta != b"null":
            datas[position] = join_data(datas[position], _checked_meta(meta, position))
            flags |= _HAS_META
        if record.deliver_at is not None:
            if encoded.deliver_at is None:
                encoded.deliver_at = {}
            encoded.deliver_at[position] = record.deliver_at
        encoded.nodes.append(node)
        encoded.tags.append(tag)
        encoded.flags.append(flags)
        encoded.size += len(node) + len(tag) + len(datas[position])
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
