"""The messages of the WebSocket: what clients may say, as structs by `op`."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.wire.requests import RecordIn, Seq


class Operation(msgspec.Struct, forbid_unknown_fields=True, tag_field="op"):
    """Base of what a client says."""

    request_id: str | int | None = None


class Subscribe(Operation, tag="subscribe", kw_only=True):
    topic: str
    from_seq: Seq | None = None
    tail: bool = False
    limit: int = limits.READ_RECORDS_DEFAULT
    max_batch_bytes: int = 262_144
    node: str | list[str] | None = None
    match: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True


class Unsubscribe(Operation, tag="unsubscribe", kw_only=True):
    topic: str


class Publish(Operation, tag="publish", kw_only=True):
    topic: str
    records: list[RecordIn]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: dict[str, Any] | None = None
    disable_backpressure: bool = False
    expect_head_seq: Seq | None = None


class Ping(Operation, tag="ping"):
    pass


_decoder = msgspec.json.Decoder(Subscribe | Unsubscribe | Publish | Ping)


def decode_operation(message: bytes | str) -> Subscribe | Unsubscribe | Publish | Ping:
    try:
        operation: Subscribe | Unsubscribe | Publish | Ping = _decoder.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the message cannot be read: {error}") from error
    return operation
