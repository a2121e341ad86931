"""The bodies of answers, as structs. The document is made from them, and the most frequent one is
encoded from its struct too; the tests hold what is really answered against them."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from headwater.native import compiled
from headwater.wire.http_response import SHORT_HEAD, short_json_answer

_native: Final = compiled("answers")


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """Base of all answers: a field that is not declared is a mistake in the document."""


class Spent(Answer):
    """Where the time went, in milliseconds."""

    server_total_ms: float


class Performance(Answer):
    """The same for a write."""

    server_total_ms: float
    wal_append_ms: float
    fsync_ms: float
    throttle_wait_ms: float = 0


class ReadSpent(Answer):
    """The same for a read, with what it had to scan."""

    server_total_ms: float
    records_scanned: int
    cold_segments_read: int


class WriteAnswer(Answer):
    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    performance: Performance
    seqs: list[int] | msgspec.UnsetType = msgspec.UNSET
    """Left out when the request asked for that."""


def write_opening(topic: str) -> bytes:
    """How the answers to plain writes to one topic begin. Names need no escapes."""
    return b'{"topic":"%b","first_seq":' % topic.encode()


def write_answer(
    opening: bytes,
    first_seq: int,
    count: int,
    head_seq: int,
    total_us: int,
    sync_us: int,
    throttle_us: int,
) -> bytes:
    """The `WriteAnswer` to a write to a topic that was there, printed at once."""
    last_seq = first_seq + count - 1
    append_us = max(total_us - sync_us, 0)
    return _WRITTEN % (
        *(opening, first_seq, last_seq, head_seq, count),
        *(total_us // 1_000, total_us % 1_000),
        *(append_us // 1_000, append_us % 1_000, sync_us // 1_000, sync_us % 1_000),
        *divmod(min(throttle_us, append_us), 1_000),
        b",".join([b"%d" % seq for seq in range(first_seq, last_seq + 1)]),
    )


_WRITTEN: Final = (
    b'%b%d,"last_seq":%d,"head_seq":%d,"count":%d,"created":false,"deduped":false,'
    b'"performance":{"server_total_ms":%d.%03d,"wal_append_ms":%d.%03d,"fsync_ms":%d.%03d,'
    b'"throttle_wait_ms":%d.%03d},"seqs":[%b]}'
)


def write_reply(
    prefix: bytes,
    opening: bytes,
    number: int,
    first_seq: int,
    count: int,
    head_seq: int,
    total_us: int,
    sync_us: int,
    throttle_us: int,
) -> bytes:
    """The same with its head: the whole answer to this request of a connection that stays open."""
    told = first_seq, count, head_seq, total_us, sync_us, throttle_us
    if _native is not None:
        encoded: bytes = _native.write_reply(SHORT_HEAD, prefix, opening, number, *told)
        return encoded
    return short_json_answer(write_answer(opening, *told), prefix, number)


class RecordOut(Answer):
    """One record. What it does not have is left out."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: Any = msgspec.UNSET
    node: str | msgspec.UnsetType = msgspec.field(name="$node", default=msgspec.UNSET)
    tag: str | msgspec.UnsetType = msgspec.field(name="$tag", default=msgspec.UNSET)
    meta: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


GapReason = Literal[
    "cap", "ttl", "lost_tail", "source_trim", "mixed", "log_start", "recreated", "damaged"
]


class Gap(Answer):
    """What a reader can no longer get, and why: a limit (cap, ttl, or mixed), a crash in a class
    that does not wait for the disk (lost_tail), a router whose source had lost it (source_trim),
    the start of a Kafka partition that moved on (log_start), a topic that was made anew
    (recreated), or bytes on the server's disk that are wrong (damaged)."""

    gap_from: int
    gap_to: int
    reason: GapReason
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffAnswer(Answer):
    topic: str
    records: list[RecordOut]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Gap | None
    lag: int
    performance: ReadSpent


class DeleteAnswer(Answer):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Spent


class TopicMade(Answer):
    topic: str
    created: bool
    config: dict[str, Any]
    performance: Spent


class QueueSeen(Answer):
    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int
    blocked: int
    blocked_reason: str | msgspec.UnsetType = msgspec.UNSET


class JobOut(RecordOut, kw_only=True):
    """One job: a record, and the terms on which a worker has it."""

    lease_id: int
    deadline: int
    deliveries: int


class ClaimAnswer(Answer):
    topic: str
    claimed: list[JobOut]
    count: int
    ready: int
    performance: Spent


class AckAnswer(Answer):
    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Spent


class NackAnswer(Answer):
    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Spent


class ExtendAnswer(Answer):
    topic: str
    extended: int
    skipped: list[int]
    ready: int
    in_flight: int
    deadlines: dict[str, int]
    """By seq."""
    performance: Spent


class TopicSeen(msgspec.Struct):
    """A topic from outside. A queue has more fields."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    evict_floor: int
    epoch: int
    config: dict[str, Any]
    effective_priority: float
    last_write_ts: int | msgspec.UnsetType = msgspec.UNSET
    last_read_ts: int | msgspec.UnsetType = msgspec.UNSET
    queue: QueueSeen | msgspec.UnsetType = msgspec.UNSET


class TopicAnswer(TopicSeen, kw_only=True):
    performance: Spent


class TopicList(Answer):
    topics: list[TopicSeen]
    performance: Spent
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET


class TopicDropped(Answer):
    topic: str
    deleted: bool
    routers_removed: list[str]
    performance: Spent


class RouterDefined(Answer):
    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: str | None
    allow_cycle: bool
    guarantee: str


class RouterMade(RouterDefined):
    created: bool
    performance: Spent


class RouterListed(RouterDefined):
    source_seq: int
    lag: int
    held: bool
    forwarded_total: int


class RouterAnswer(RouterListed):
    performance: Spent


class RouterList(Answer):
    routers: list[RouterListed]
    performance: Spent
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET


class RouterRemoved(Answer):
    deleted: bool
    performance: Spent


class WatchPlace(Answer):
    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchAnswer(msgspec.Struct):
    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchPlace]
    performance: Spent
