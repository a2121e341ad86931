"""The messages of the WebSocket: what clients may say, as structs by `op`."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.wire.requests import RecordIn, Seq, WatchTopic, without_extensions


class ClientMessage(msgspec.Struct, forbid_unknown_fields=True, tag_field="op"):
    """Base of what a client says."""

    request_id: str | int | None = None


class Subscribe(ClientMessage, tag="subscribe", kw_only=True):
    """To one topic, or to several, each with where to begin."""

    topic: str | None = None
    topics: dict[str, WatchTopic] | None = None
    from_seq: Seq | None = None
    tail: bool = False
    limit: int = limits.READ_RECORDS_DEFAULT
    max_batch_bytes: int = 262_144
    node: str | list[str] | None = None
    match: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True

    def starts(self) -> dict[str, WatchTopic]:
        """Where to begin, by topic."""
        if (self.topic is None) == (self.topics is None):
            raise InvalidRequestError("subscribe names a topic, or has topics, and not both")
        if self.topics is None:
            assert self.topic is not None
            return {self.topic: WatchTopic(self.from_seq, self.tail)}
        if self.from_seq is not None or self.tail:
            raise InvalidRequestError("from_seq and tail stand with each of the topics")
        if not 1 <= len(self.topics) <= limits.WATCH_TOPICS_MAX:
            raise InvalidRequestError(f"topics are 1 to {limits.WATCH_TOPICS_MAX}")
        return self.topics


class Unsubscribe(ClientMessage, tag="unsubscribe", kw_only=True):
    topic: str


class Publish(ClientMessage, tag="publish", kw_only=True):
    topic: str
    records: list[RecordIn]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: dict[str, Any] | None = None
    disable_backpressure: bool = False
    expect_head_seq: Seq | None = None


class WebSocketPing(ClientMessage, tag="ping"):
    pass


_decoder = msgspec.json.Decoder(Subscribe | Unsubscribe | Publish | WebSocketPing)


def decode_message(message: bytes | str) -> Subscribe | Unsubscribe | Publish | WebSocketPing:
    try:
        operation: Subscribe | Unsubscribe | Publish | WebSocketPing = _decoder.decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        known = without_extensions(message) if isinstance(message, bytes) else None
        if known is not None:
            return decode_message(known)
        raise InvalidRequestError(f"the message cannot be read: {error}") from error
    return operation
