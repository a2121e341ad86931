"""Records as callers give them, checked and encoded once, before the owner sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core import limits
from headwater.core.errors import BatchTooLargeError, InvalidRequestError, RecordTooLargeError
from headwater.core.json_text import json_text
from headwater.format.frame import FrameFlag, join_data

_FIELDS: Final = frozenset({"data", "tag", "node", "meta", "deliver_at"})
# Plain numbers: the operators of an IntFlag are written in Python, and stay with every record.
_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)
_HAS_META: Final = int(FrameFlag.HAS_META)


class KeyedPart(NamedTuple):
    """The records of one write among others, which its idempotency key stands for."""

    key: bytes
    position: int
    """Of the first of them."""
    records: int


class EncodedRecords(msgspec.Struct):
    """One list per field, so that a batch is handled as a batch."""

    nodes: list[bytes]
    tags: list[bytes]
    datas: list[bytes]
    flags: list[int]
    size: int = 0
    """Bytes of nodes, tags and datas."""
    deliver_at: dict[int, int] | None = None
    """When a job may be delivered, wall clock ms, by its position; jobs of a queue only."""
    keys: list[KeyedPart] | None = None
    """Idempotency keys of writes among these; none of them stands for a write already."""
    writers: int = 1
    """How many clients wait for the answer: a batch of a turn has several."""

    def __len__(self) -> int:
        return len(self.datas)


def plain_records(datas: list[bytes], tags: list[bytes], size: int | None = None) -> EncodedRecords:
    """Records with a payload and maybe a tag each; `size` when it is known."""
    flags = [_HAS_TAG if tag else 0 for tag in tags] if any(tags) else [0] * len(tags)
    if size is None:
        size = sum(map(len, datas)) + sum(map(len, tags))
    return EncodedRecords([b""] * len(datas), tags, datas, flags, size)


def encode_records(
    records: Sequence[Mapping[str, Any]],
    node: str | None = None,
    *,
    bytes_max: int = limits.RECORD_BYTES_MAX,
) -> EncodedRecords:
    """Check and encode a batch. One bad record refuses all of them; the message says which."""
    if not 1 <= len(records) <= limits.BATCH_RECORDS_MAX:
        raise BatchTooLargeError(
            f"a write takes 1 to {limits.BATCH_RECORDS_MAX} records, not {len(records)}"
        )
    batch_node = _text(node, "node", limits.NODE_BYTES_MAX, "the write") if node else b""
    encoded = EncodedRecords([], [], [], [])
    for position, record in enumerate(records):
        _encode_one(encoded, record, batch_node, position, bytes_max)
    return encoded


def _encode_one(
    encoded: EncodedRecords,
    record: Mapping[str, Any],
    batch_node: bytes,
    position: int,
    bytes_max: int,
) -> None:
    where = f"record {position}"
    if "data" not in record:
        raise InvalidRequestError(f"{where} must be a mapping with a field 'data'")
    if not _FIELDS.issuperset(record):
        unknown = sorted(set(record) - _FIELDS)
        raise InvalidRequestError(f"{where} has unknown fields: {', '.join(map(str, unknown))}")
    flags = 0
    tag = node = b""
    if record.get("tag") is not None:
        tag = _text(record["tag"], "tag", limits.TAG_BYTES_MAX, where)
        flags |= _HAS_TAG
    if record.get("node") is not None:
        node = _text(record["node"], "node", limits.NODE_BYTES_MAX, where)
        flags |= _HAS_NODE
    elif batch_node:
        node = batch_node
        flags |= _HAS_NODE
    data = _json(record["data"], "data", where)
    if record.get("meta") is not None:
        meta = _meta(record["meta"], where)
        data = join_data(data, meta)
        flags |= _HAS_META
    if len(data) > bytes_max:
        raise RecordTooLargeError(f"{where} has {len(data)} bytes; at most {bytes_max} are taken")
    if record.get("deliver_at") is not None:
        at = record["deliver_at"]
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= limits.INTEGER_MAX:
            raise InvalidRequestError(f"{where}: deliver_at must be milliseconds since 1970")
        if encoded.deliver_at is None:
            encoded.deliver_at = {}
        encoded.deliver_at[position] = at
    encoded.nodes.append(node)
    encoded.tags.append(tag)
    encoded.datas.append(data)
    encoded.flags.append(flags)
    encoded.size += len(node) + len(tag) + len(data)


def _json(value: Any, field: str, where: str) -> bytes:
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    return json_text(value, f"{where}: {field}")


def _meta(value: Any, where: str) -> bytes:
    if not isinstance(value, Mapping) or len(value) > limits.META_KEYS_MAX:
        raise InvalidRequestError(
            f"{where}: meta must be a mapping of at most {limits.META_KEYS_MAX} keys"
        )
    meta = _json(dict(value), "meta", where)
    if len(meta) > limits.META_BYTES_MAX:
        raise RecordTooLargeError(
            f"{where}: meta has {len(meta)} bytes; at most {limits.META_BYTES_MAX} are taken"
        )
    return meta


def _text(value: Any, field: str, bytes_max: int, where: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidRequestError(f"{where}: {field} must be text")
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{where}: {field} is not valid Unicode") from error
    if len(encoded) > bytes_max:
        raise InvalidRequestError(f"{where}: {field} has over {bytes_max} bytes")
    return encoded


def checked_key(key: str) -> bytes:
    encoded = key.encode("utf-8", "surrogatepass")
    if not 1 <= len(encoded) <= limits.IDEMPOTENCY_KEY_BYTES_MAX:
        raise InvalidRequestError(
            f"an idempotency key has 1 to {limits.IDEMPOTENCY_KEY_BYTES_MAX} bytes"
        )
    return encoded
