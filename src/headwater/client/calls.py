"""Each call of the contract as data: what to send, how to read the answer, whether to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from headwater.api.call_list import Records
from headwater.client import answers
from headwater.config.topic import check_topic_name
from headwater.core import limits
from headwater.core.json_text import json_text
from headwater.core.results import (
    Appended,
    ArrowPage,
    Claimed,
    Deleted,
    Diff,
    LeaseResult,
    QueueStats,
    Requeued,
    TopicState,
    Trace,
)

T = TypeVar("T")
HEARTBEAT_MS: Final = 10_000
"""How often a silent stream shows that it lives; a client gives it a little over twice that."""


class RepeatRule(Enum):
    """May a request be sent again when its answer never came?"""

    ALWAYS = "twice is the same as once"
    WITH_KEY = "as long as the server remembers its key"
    NEVER = "twice may be more than once"


@dataclass(frozen=True, slots=True)
class HttpCall(Generic[T]):
    method: str
    path: str
    read: Callable[[bytes], T]
    repeat: RepeatRule = RepeatRule.ALWAYS
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    """How long the server may take on purpose."""
    topic: str | None = None
    read_answer: Callable[[Mapping[str, str], bytes], T] | None = None
    """In place of `read`, for an answer that has values in its headers too."""

    def result(self, headers: Mapping[str, str], body: bytes) -> T:
        return self.read(body) if self.read_answer is None else self.read_answer(headers, body)


def put_topic(topic: str, settings: Mapping[str, Any]) -> HttpCall[None]:
    return HttpCall("PUT", _path(topic), answers.nothing, body=json_text(settings, "settings"))


def get_topic(topic: str) -> HttpCall[TopicState]:
    return HttpCall("GET", _path(topic), answers.topic_state, query={"touch": "false"})


def list_topics(prefix: str, cursor: str | None) -> HttpCall[answers.TopicsPage]:
    query = {"prefix": prefix, "page_size": str(limits.PAGE_SIZE_MAX)}
    if cursor is not None:
        query["cursor"] = cursor
    return HttpCall("GET", "/v0/topics", answers.topics_page, query=query)


def append(
    topic: str,
    records: Records,
    idempotency_key: str,
    *,
    node: str | None = None,
    expect_head_seq: int | None = None,
    create: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    disable_backpressure: bool = False,
) -> HttpCall[Appended]:
    given: object = records
    if not isinstance(records, msgspec.Raw):
        given = [records] if isinstance(records, Mapping) else list(records)
    body: dict[str, Any] = {"records": given, "idempotency_key": idempotency_key}
    optional = {
        "node": node,
        "expect_head_seq": expect_head_seq,
        "create": create,
        "config": None if settings is None else dict(settings),
        "disable_backpressure": True if disable_backpressure else None,
    }
    body |= {name: value for name, value in optional.items() if value is not None}
    return HttpCall(
        "POST",
        _path(topic),
        answers.appended,
        RepeatRule.WITH_KEY,
        query={"return_seqs": "false"},
        body=json_text(body, "the write"),
        topic=topic,
    )


def diff(
    topic: str,
    from_seq: int = 0,
    limit: int = limits.READ_RECORDS_DEFAULT,
    max_batch_bytes: int = limits.READ_BYTES_DEFAULT,
    wait_ms: int = 0,
    node: str | Iterable[str] | None = None,
    match: object | None = None,
) -> HttpCall[Diff]:
    body: dict[str, Any] = {
        "from_seq": from_seq,
        "limit": limit,
        "max_batch_bytes": max_batch_bytes,
        "wait_ms": wait_ms,
        "include_tags": True,
        **_filters(node, match),
    }
    wait_s = min(max(wait_ms, 0), limits.READ_WAIT_MS_CLAMP) / 1_000
    return HttpCall(
        "POST", _path(topic, "/diff"), answers.diff, body=json_text(body, "the read"), wait_s=wait_s
    )


def arrow(topic: str, from_seq: int, to_seq: int, limit: int) -> HttpCall[ArrowPage]:
    query = {"from_seq": str(from_seq), "to_seq": str(to_seq), "limit": str(limit)}
    return HttpCall(
        "GET",
        _path(topic, "/arrow"),
        answers.no_page,
        query=query,
        read_answer=answers.arrow_page,
    )


def delete(topic: str, before_seq: int | None, match: object | None) -> HttpCall[Deleted]:
    """By tag alone it is not repeated: it would also take what was written meanwhile."""
    body: dict[str, Any] = {"before_seq": before_seq, **_filters(None, match)}
    return HttpCall(
        "POST",
        _path(topic, "/delete"),
        answers.deleted,
        RepeatRule.NEVER if before_seq is None else RepeatRule.ALWAYS,
        body=json_text(body, "the delete"),
    )


def drop(topic: str, *, if_empty: bool) -> HttpCall[bool]:
    """Not repeated: another client may have created a topic of this name again."""
    query = {"if_empty": "true" if if_empty else "false"}
    return HttpCall("DELETE", _path(topic), answers.was_deleted, RepeatRule.NEVER, query=query)


def claim(
    topic: str, node: str, limit: int, lease_ms: int | None, wait_ms: int
) -> HttpCall[Claimed]:
    """Sent again when no answer came: what that answer held comes back when its lease is over."""
    body = {"node": node, "max": limit, "lease_ms": lease_ms, "wait_ms": wait_ms}
    wait_s = min(max(wait_ms, 0), limits.READ_WAIT_MS_CLAMP) / 1_000
    return HttpCall(
        "POST",
        _path(topic, "/claim"),
        answers.claimed,
        body=json_text(body, "claim"),
        wait_s=wait_s,
    )


def ack(
    topic: str, node: str, seqs: Sequence[int], lease_ids: Sequence[int] | None
) -> HttpCall[LeaseResult]:
    return _lease_call(topic, "ack", node, seqs, lease_ids, {})


def nack(
    topic: str, node: str, seqs: Sequence[int], lease_ids: Sequence[int] | None, delay_ms: int
) -> HttpCall[LeaseResult]:
    return _lease_call(topic, "nack", node, seqs, lease_ids, {"delay_ms": delay_ms})


def extend(
    topic: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None,
    lease_ms: int | None,
) -> HttpCall[LeaseResult]:
    return _lease_call(topic, "extend", node, seqs, lease_ids, {"lease_ms": lease_ms})


def _lease_call(
    topic: str,
    verb: str,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int] | None,
    more: Mapping[str, Any],
) -> HttpCall[LeaseResult]:
    """Twice is the same as once; the second time the jobs are among the skipped."""
    seq_list = list(seqs)
    body = {"node": node, "seqs": seq_list, **more}
    if lease_ids is not None:
        body["lease_ids"] = list(lease_ids)
    return HttpCall(
        "POST",
        _path(topic, f"/{verb}"),
        partial(answers.ack_result, seq_list),
        body=json_text(body, verb),
    )


def requeue(topic: str, seqs: Sequence[int]) -> HttpCall[Requeued]:
    """Twice is the same as once; the second time the letters are among the skipped."""
    seq_list = list(seqs)
    body = json_text({"seqs": seq_list}, "requeue")
    return HttpCall(
        "POST", _path(topic, "/requeue"), partial(answers.requeued, seq_list), body=body
    )


def queue_stats(topic: str) -> HttpCall[QueueStats]:
    return HttpCall("GET", _path(topic), answers.queue_stats, query={"touch": "false"})


def open_watch(
    topics: Mapping[str, Mapping[str, Any]],
    node: str | Iterable[str] | None,
    match: object | None,
    *,
    lenient: bool,
) -> HttpCall[answers.WatchOpened]:
    body = {
        "topics": topics,
        "include_tags": True,
        "heartbeat_ms": HEARTBEAT_MS,
        "limit": limits.READ_RECORDS_CLAMP,
        **_filters(node, match),
    }
    return HttpCall(
        "POST",
        "/v0/watch",
        answers.watch_opened,
        query={"lenient": "true" if lenient else "false"},
        body=json_text(body, "the watch"),
    )


def follow_watch(wid: str, last_event_id: str | None) -> HttpCall[bytes]:
    headers = {"accept": "text/event-stream", "cache-control": "no-store"}
    if last_event_id is not None:
        headers["last-event-id"] = last_event_id
    return HttpCall("GET", f"/v0/watch/{quote(wid, safe='')}", bytes, headers=headers)


def metrics() -> HttpCall[dict[str, Any]]:
    headers = {"accept": "application/json"}
    return HttpCall("GET", "/v0/metrics", answers.metrics, headers=headers)


def trace(after: int) -> HttpCall[Trace]:
    return HttpCall("GET", "/v0/trace", answers.trace, query={"after": str(after)})


def ready() -> HttpCall[str]:
    return HttpCall("GET", "/v0/ready", answers.status)


def _path(topic: str, rest: str = "") -> str:
    return f"/v0/topics/{quote(check_topic_name(topic), safe='')}{rest}"


def _filters(node: str | Iterable[str] | None, match: object | None) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    if node is not None:
        filters["node"] = node if isinstance(node, str) else list(node)
    if match is not None:
        filters["match"] = match
    return filters
