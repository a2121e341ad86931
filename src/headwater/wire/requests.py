"""The bodies of requests, as structs. What is not declared here is refused with 400."""

from __future__ import annotations

from itertools import repeat
from typing import Annotated, Any, Final, TypeVar

import msgspec

from headwater.core import limits
from headwater.core.errors import InvalidRequestError

Seq = Annotated[int, msgspec.Meta(ge=0, le=limits.INTEGER_MAX)]


def _schema(**schema: Any) -> msgspec.Meta:
    """For the document only: what is checked elsewhere, with an error of its own."""
    return msgspec.Meta(extra_json_schema=schema)


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all request bodies."""


NO_META = msgspec.Raw()
"""Stands for none at all: msgspec takes no bytes as they are for `Raw | None`."""


class RecordIn(Body):
    """One record. `data` and `meta` are kept as the bytes that were sent."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    # Always the same one. A plain default would have to stand in the OpenAPI document.
    meta: msgspec.Raw = msgspec.field(default_factory=repeat(NO_META).__next__)
    deliver_at: Seq | None = None
    """Of a job: not to be claimed before, milliseconds since 1970."""


class WriteRequest(Body):
    records: Annotated[list[RecordIn], _schema(minItems=1, maxItems=limits.BATCH_RECORDS_MAX)]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: dict[str, Any] | None = None
    disable_backpressure: bool = False
    expect_head_seq: Seq | None = None
    return_seqs: bool | None = None


class DiffRequestBody(Body):
    from_seq: Seq = 0
    limit: int = limits.READ_RECORDS_DEFAULT
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: int = 0
    max_batch_bytes: int = limits.READ_BYTES_DEFAULT
    match: str | list[str] | None = None
    consistency: Annotated[str, _schema(enum=["eventual", "strong"])] = "eventual"
    """strong: what is written now has come here through routers before the topic is read."""


class DeleteRequest(Body):
    before_seq: Seq | None = None
    match: str | list[str] | None = None


Seqs = Annotated[list[Seq], msgspec.Meta(min_length=1, max_length=limits.ACK_JOBS_MAX)]


class ClaimBody(Body):
    node: str
    max: int = 1
    lease_ms: int | None = None
    wait_ms: int = 0


class AckBody(Body):
    node: str
    seqs: Seqs
    lease_ids: list[Seq] | None = None


class NackBody(AckBody):
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=limits.NACK_DELAY_MS_MAX)] = 0


class ExtendBody(AckBody):
    lease_ms: int | None = None


class RequeueBody(Body):
    seqs: Seqs


class RouterBody(Body):
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_source: bool = True
    create_dest: bool = True
    filter: str | list[str] | None = None
    allow_cycle: bool = False
    guarantee: Annotated[str, _schema(enum=["at_least_once", "exactly_once"])] = "at_least_once"


class WatchTopic(Body):
    from_seq: Seq | None = None
    tail: bool = False


class WatchRequest(Body):
    topics: Annotated[
        dict[str, WatchTopic], _schema(minProperties=1, maxProperties=limits.WATCH_TOPICS_MAX)
    ]
    node: str | list[str] | None = None
    limit: int = limits.READ_RECORDS_DEFAULT
    max_batch_bytes: int = 262_144
    heartbeat_ms: int = 15_000
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: str = "eventual"
    match: str | list[str] | None = None


B = TypeVar("B", bound=Body)
_decoders: dict[type[Body], msgspec.json.Decoder[Any]] = {}


def decode_request(body: bytes | bytearray, kind: type[B]) -> B:
    """The body as a struct; one clear message when it cannot be one."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        parsed: B = decoder.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        known = without_extensions(body) if _EXTENSION in body else None
        if known is not None:
            return decode_request(known, kind)
        raise InvalidRequestError(f"the body cannot be read: {error}") from error
    return parsed


_EXTENSION: Final = b'"x_'
_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])


def without_extensions(body: bytes | bytearray) -> bytes | None:
    """The body without the fields that begin with `x_`, its own and those of its records, which
    anybody may add and nobody here reads. What is kept is the bytes that were sent. None when there
    are none, or it is no object."""
    try:
        fields = _raw.decode(body)
        records = [_raw.decode(each) for each in _items.decode(fields.get("records", b"[]"))]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not any(name.startswith("x_") for each in (fields, *records) for name in each):
        return None
    if records:
        fields["records"] = msgspec.Raw(b"[%b]" % b",".join(map(_object, records)))
    return _object(fields)


def _object(fields: dict[str, msgspec.Raw]) -> bytes:
    kept = (item for item in fields.items() if not item[0].startswith("x_"))
    return b"{%b}" % b",".join(
        b"%b:%b" % (msgspec.json.encode(name), bytes(value)) for name, value in kept
    )
