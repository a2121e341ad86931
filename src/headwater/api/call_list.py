"""The calls on topics, queues and routers, as data: what they take and what they give.

A face makes them from the arguments of its methods. Who carries them out finds in a table, by their
kind, how that is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from headwater.config.topic import check_topic_name
from headwater.core.errors import InvalidRequestError
from headwater.core.records import Record
from headwater.core.results import (
    Appended,
    ArrowPage,
    Claimed,
    Deleted,
    Diff,
    LeaseResult,
    QueueStats,
    Requeued,
    RouterState,
    Tombstone,
    TopicState,
    Trace,
    Watched,
)

T = TypeVar("T")
Records = Mapping[str, Any] | Sequence[Mapping[str, Any]] | msgspec.Raw
"""One record, a list of them, or a list that is JSON already."""
NodeFilter = str | Iterable[str] | None
"""Records of this node, or of these, are left out."""
Topics = str | Iterable[str] | Mapping[str, int | None]
"""A name, several, or where to begin by name. A star at the end means all that begin so."""
ARROW_ROWS_DEFAULT: Final = 100_000
ARROW_ROWS_MAX: Final = 1_000_000


class ApiCall(msgspec.Struct, Generic[T], frozen=True):
    """A call with one answer."""


class WatchingCall(msgspec.Struct, Generic[T], frozen=True):
    """A call whose answers come one by one, until the caller has enough."""


# -- topics


class CreateCall(ApiCall[TopicState], frozen=True):
    topic: str
    settings: Mapping[str, Any]


class AppendCall(ApiCall[Appended], frozen=True):
    topic: str
    records: Records
    node: str | None
    idempotency_key: str | None
    expect_head_seq: int | None
    create: bool | None
    settings: Mapping[str, Any] | None
    disable_backpressure: bool


class DiffCall(ApiCall[Diff], frozen=True):
    topic: str
    from_seq: int
    limit: int
    max_batch_bytes: int
    wait_ms: int
    node: NodeFilter
    match: object | None


class ArrowCall(ApiCall[ArrowPage], frozen=True):
    topic: str
    from_seq: int
    to_seq: int
    limit: int


class DeleteCall(ApiCall[Deleted], frozen=True):
    topic: str
    before_seq: int | None
    match: object | None


class StateCall(ApiCall[TopicState], frozen=True):
    topic: str


class TopicsCall(ApiCall[list[TopicState]], frozen=True):
    prefix: str


class DropCall(ApiCall[bool], frozen=True):
    topic: str
    if_empty: bool


class WatchCall(WatchingCall[Record | Tombstone], frozen=True):
    topic: str
    from_seq: int
    tail: bool
    idle_ms: int | None
    node: NodeFilter
    match: object | None


class WatchTopicsCall(WatchingCall[Watched], frozen=True):
    topics: Topics
    tail: bool
    node: NodeFilter
    match: object | None


# -- routers


class PutRouterCall(ApiCall[RouterState], frozen=True):
    router: str
    settings: Mapping[str, Any]


class RouterCall(ApiCall[RouterState], frozen=True):
    router: str


class RoutersCall(ApiCall[list[RouterState]], frozen=True):
    prefix: str
    source: str | None
    dest: str | None


class DeleteRouterCall(ApiCall[bool], frozen=True):
    router: str


# -- queues


class ClaimCall(ApiCall[Claimed], frozen=True):
    topic: str
    node: str
    limit: int
    lease_ms: int | None
    wait_ms: int


class AckCall(ApiCall[LeaseResult], frozen=True):
    topic: str
    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int] | None


class NackCall(ApiCall[LeaseResult], frozen=True):
    topic: str
    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int] | None
    delay_ms: int


class ExtendCall(ApiCall[LeaseResult], frozen=True):
    topic: str
    node: str
    seqs: Sequence[int]
    lease_ids: Sequence[int] | None
    lease_ms: int | None


class RequeueCall(ApiCall[Requeued], frozen=True):
    topic: str
    seqs: Sequence[int]


class QueueStatsCall(ApiCall[QueueStats], frozen=True):
    topic: str


# -- the whole


class MetricsCall(ApiCall[dict[str, Any]], frozen=True):
    pass


class TraceCall(ApiCall[Trace], frozen=True):
    after: int


class ReadyCall(ApiCall[str], frozen=True):
    pass


def watch_starts(topics: Topics, from_seq: int | None) -> dict[str, int | None]:
    """By name, or by a prefix and a star: the seq that is known, or None for the end."""
    if isinstance(topics, str):
        topics = [topics]
    starts: dict[str, int | None] = {}
    if isinstance(topics, Mapping):
        starts.update(topics)
    else:
        starts.update(dict.fromkeys(topics, from_seq))
    if not starts:
        raise InvalidRequestError("name at least one topic to watch")
    for name, start in starts.items():
        if name != "*":
            check_topic_name(name.removesuffix("*"))
        if start is not None and start < 0:
            raise InvalidRequestError("from_seq must be a whole number, 0 or more")
    return starts
