"""Answers as the types the embedded library gives. Fields this version does not know are ignored.

Payloads stay the bytes that came: a record's `data` is parsed when the caller reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headwater.client.errors import UnexpectedAnswerError
from headwater.core.errors import NotAQueueError
from headwater.core.records import Record
from headwater.core.results import (
    Appended,
    ArrowPage,
    Claimed,
    ClaimedJob,
    Diff,
    LeaseResult,
    QueueStats,
    Requeued,
    RouterState,
    Tombstone,
    TopicState,
    Trace,
)

T = TypeVar("T")


class ReceivedRecord(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw
    node: str | None = msgspec.field(name="$node", default=None)
    tag: str | None = msgspec.field(name="$tag", default=None)
    meta: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)

    def record(self) -> Record:
        meta = bytes(self.meta) or None
        return Record(self.seq, self.ts, self.node, self.tag, bytes(self.data), meta)


class _Appended(msgspec.Struct):
    first_seq: int
    last_seq: int
    head_seq: int
    created: bool = False
    deduped: bool = False


class _Diff(msgspec.Struct):
    records: list[ReceivedRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None = None
    performance: dict[str, Any] = {}


class _State(msgspec.Struct):
    topic: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: dict[str, Any]
    type: str = "log"
    evict_floor: int = 0
    epoch: int = 0
    last_write_ts: int | None = None
    last_read_ts: int | None = None

    def state(self) -> TopicState:
        return TopicState(**{name: getattr(self, name) for name in TopicState.__struct_fields__})


class ReceivedJob(ReceivedRecord, kw_only=True):
    lease_id: int
    deadline: int
    deliveries: int

    def job(self) -> ClaimedJob:
        return ClaimedJob(self.record(), self.lease_id, self.deadline, self.deliveries)


class _Claimed(msgspec.Struct):
    claimed: list[ReceivedJob]
    ready: int


class _Requeued(msgspec.Struct):
    requeued: int
    skipped: list[int]


class _AckAnswer(msgspec.Struct):
    skipped: list[int]
    ready: int
    in_flight: int
    deadlines: dict[int, int] = {}


class _Queue(msgspec.Struct):
    ready: int
    in_flight: int
    delayed: int = 0
    dead_lettered: int = 0
    blocked: int = 0


class _QueueState(msgspec.Struct):
    topic: str
    queue: _Queue | None = None


class _TopicsPage(msgspec.Struct):
    topics: list[_State]
    next_cursor: str | None = None


class _RoutersPage(msgspec.Struct):
    routers: list[RouterState]
    next_cursor: str | None = None


class ListPage(NamedTuple, Generic[T]):
    """Part of a list, and where the next part begins; None after the last."""

    items: list[T]
    next_cursor: str | None


class _Gone(msgspec.Struct):
    deleted: bool


class _Cursor(msgspec.Struct):
    from_seq: int


class WatchOpened(msgspec.Struct):
    wid: str
    topics: dict[str, _Cursor]
    missing: list[str] = []


class _Metrics(msgspec.Struct):
    metrics: dict[str, Any]


class _Status(msgspec.Struct):
    status: str = "ok"


class RecordsEvent(msgspec.Struct):
    topic: str
    records: list[ReceivedRecord]
    to_seq: int
    head_seq: int


class CaughtUpEvent(msgspec.Struct):
    topic: str
    seq: int


class TopicEvent(msgspec.Struct):
    """Whose event it is: a tombstone, or that the topic is gone."""

    topic: str


class ErrorEvent(msgspec.Struct):
    code: str
    message: str


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(body: bytes, kind: type[T]) -> T:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        answer: T = decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnexpectedAnswerError(
            f"the server's answer is not one of the contract ({error}); check the address"
        ) from error
    return answer


def reader(kind: type[T]) -> Callable[[bytes], T]:
    return partial(decode, kind=kind)


def nothing(_body: bytes) -> None:
    """The status said it all."""


def appended(body: bytes) -> Appended:
    return Appended(*msgspec.structs.astuple(decode(body, _Appended)))


def diff(body: bytes) -> Diff:
    answer = decode(body, _Diff)
    return Diff(
        [record.record() for record in answer.records],
        answer.next_from_seq,
        answer.head_seq,
        answer.earliest_seq,
        answer.caught_up,
        answer.tombstone,
        answer.performance.get("records_scanned", 0),
        answer.performance.get("cold_segments_read", 0),
    )


def claimed(body: bytes) -> Claimed:
    answer = decode(body, _Claimed)
    return Claimed([each.job() for each in answer.claimed], answer.ready)


def ack_result(seqs: Sequence[int], body: bytes) -> LeaseResult:
    """The server lists what it passed over; of a job named twice, the second time."""
    answer = decode(body, _AckAnswer)
    passed = Counter(answer.skipped)
    times = Counter(seqs)
    taken = [seq for seq in times if passed[seq] < times[seq]]
    return LeaseResult(taken, answer.skipped, answer.ready, answer.in_flight, answer.deadlines)


def requeued(seqs: Sequence[int], body: bytes) -> Requeued:
    skipped = decode(body, _Requeued).skipped
    return Requeued([seq for seq in dict.fromkeys(seqs) if seq not in frozenset(skipped)], skipped)


def queue_stats(body: bytes) -> QueueStats:
    answer = decode(body, _QueueState)
    if answer.queue is None:
        raise NotAQueueError(f"{answer.topic!r} is a log; claims need a queue")
    return QueueStats(*msgspec.structs.astuple(answer.queue))


def topic_state(body: bytes) -> TopicState:
    return decode(body, _State).state()


def topics_page(body: bytes) -> ListPage[TopicState]:
    answer = decode(body, _TopicsPage)
    return ListPage([state.state() for state in answer.topics], answer.next_cursor)


def routers_page(body: bytes) -> ListPage[RouterState]:
    answer = decode(body, _RoutersPage)
    return ListPage(answer.routers, answer.next_cursor)


def no_page(_body: bytes) -> ArrowPage:
    raise UnexpectedAnswerError("the server's answer lacks the headers of the contract")


def arrow_page(headers: Mapping[str, str], body: bytes) -> ArrowPage:
    tombstone = headers.get("x-tombstone", "")
    try:
        return ArrowPage(
            body,
            int(headers["x-next-from-seq"]),
            headers["x-caught-up"] == "true",
            decode(tombstone.encode(), Tombstone) if tombstone else None,
            int(headers.get("x-epoch", "0")),
        )
    except (KeyError, ValueError) as error:
        raise UnexpectedAnswerError(
            f"the server's answer lacks the headers of the contract ({error}); check the address"
        ) from error


def was_deleted(body: bytes) -> bool:
    return decode(body, _Gone).deleted


def metrics(body: bytes) -> dict[str, Any]:
    return decode(body, _Metrics).metrics


def trace(body: bytes) -> Trace:
    return decode(body, Trace)


def status(body: bytes) -> str:
    return decode(body, _Status).status
