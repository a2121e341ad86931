"""The rows of Metadata: a hundred thousand in one answer, without delaying other clients.

What a row says beside its topic's name and id follows from the number of partitions. It is written
by the table once for each version and number; names and ids are put in between.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.codec import encode_row
from headwater.wire.kafka.encoding import text_bytes
from headwater.wire.kafka.error_codes import ErrorCode
from headwater.wire.kafka.messages import MESSAGES

if TYPE_CHECKING:
    from headwater.engine.partition import BatchTopic

NODE_ID: Final = 1
LEADER_EPOCH: Final = 0
_FORMS_MAX: Final = 64
"""Kept at a time; the longest, of ten thousand partitions, has a quarter of a MiB."""
_NAME: Final = "?"
_ID: Final = b"?" * 16


class _Form(NamedTuple):
    """A row without its topic."""

    before: bytes
    between: bytes
    after: bytes
    has_id: bool
    flexible: bool


def topic_row(topic: BatchTopic, version: int) -> bytes:
    """A topic as a row of Metadata of this version, encoded."""
    before, between, after, has_id, flexible = _form(version, len(topic.partitions))
    name = text_bytes(topic.name, flexible=flexible)
    if has_id:
        return b"".join((before, name, between, topic.topic_id, after))
    return b"".join((before, name, between))


@lru_cache(maxsize=_FORMS_MAX)
def _form(version: int, partitions: int) -> _Form:
    flexible = MESSAGES[ApiKey.METADATA].is_flexible(version)
    rows = [
        {
            "error_code": ErrorCode.NONE,
            "partition_index": index,
            "leader_id": NODE_ID,
            "leader_epoch": LEADER_EPOCH,
            "replica_nodes": [NODE_ID],
            "isr_nodes": [NODE_ID],
        }
        for index in range(partitions)
    ]
    values = {
        "error_code": ErrorCode.NONE,
        "name": _NAME,
        "topic_id": _ID,
        "partitions": rows,
    }
    written = encode_row(ApiKey.METADATA, version, "topics", values)
    before, _, rest = written.partition(text_bytes(_NAME, flexible=flexible))
    # Versions without ids have nothing to put in there: the rest is all between.
    between, separator, after = rest.partition(_ID)
    return _Form(before, between, after, bool(separator), flexible)
