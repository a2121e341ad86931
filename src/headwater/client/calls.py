"""Each call of the contract as data: what to send, how to read the answer, whether to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from headwater.api.call_list import (
    AckCall,
    AppendCall,
    ArrowCall,
    ClaimCall,
    CreateCall,
    DeleteCall,
    DeleteRouterCall,
    DiffCall,
    DropCall,
    ExtendCall,
    MetricsCall,
    NackCall,
    NodeFilter,
    PutRouterCall,
    QueueStatsCall,
    ReadyCall,
    RequeueCall,
    RouterCall,
    RoutersCall,
    StateCall,
    TopicsCall,
    TraceCall,
)
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
    RouterState,
    TopicState,
    Trace,
)
from headwater.model.router import check_router_name

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


# -- topics


def put_topic(call: CreateCall) -> HttpCall[None]:
    body = json_text(call.settings, "settings")
    return HttpCall("PUT", _path(call.topic), answers.nothing, body=body)


def get_topic(call: StateCall) -> HttpCall[TopicState]:
    return HttpCall("GET", _path(call.topic), answers.topic_state, query={"touch": "false"})


def list_topics(call: TopicsCall, cursor: str | None) -> HttpCall[answers.ListPage[TopicState]]:
    query = _given(prefix=call.prefix, page_size=str(limits.PAGE_SIZE_MAX), cursor=cursor)
    return HttpCall("GET", "/v0/topics", answers.topics_page, query=query)


def append(call: AppendCall) -> HttpCall[Appended]:
    """With a key, so that it can be sent again."""
    records: object = call.records
    if not isinstance(records, msgspec.Raw):
        records = [records] if isinstance(records, Mapping) else list(call.records)
    body = _given(
        records=records,
        idempotency_key=call.idempotency_key,
        node=call.node,
        expect_head_seq=call.expect_head_seq,
        create=call.create,
        config=None if call.settings is None else dict(call.settings),
        disable_backpressure=call.disable_backpressure or None,
    )
    return HttpCall(
        "POST",
        _path(call.topic),
        answers.appended,
        RepeatRule.WITH_KEY,
        query={"return_seqs": "false"},
        body=json_text(body, "the write"),
        topic=call.topic,
    )


def diff(call: DiffCall) -> HttpCall[Diff]:
    body: dict[str, Any] = {
        "from_seq": call.from_seq,
        "limit": call.limit,
        "max_batch_bytes": call.max_batch_bytes,
        "wait_ms": call.wait_ms,
        "include_tags": True,
        **_filters(call.node, call.match),
    }
    return HttpCall(
        "POST",
        _path(call.topic, "/diff"),
        answers.diff,
        body=json_text(body, "the read"),
        wait_s=_wait_s(call.wait_ms),
    )


def arrow(call: ArrowCall) -> HttpCall[ArrowPage]:
    query = {name: str(getattr(call, name)) for name in ("from_seq", "to_seq", "limit")}
    return HttpCall(
        "GET",
        _path(call.topic, "/arrow"),
        answers.no_page,
        query=query,
        read_answer=answers.arrow_page,
    )


def delete(call: DeleteCall) -> HttpCall[Deleted]:
    """By tag alone it is not repeated: it would also take what was written meanwhile."""
    body: dict[str, Any] = {"before_seq": call.before_seq, **_filters(None, call.match)}
    return HttpCall(
        "POST",
        _path(call.topic, "/delete"),
        answers.reader(Deleted),
        RepeatRule.NEVER if call.before_seq is None else RepeatRule.ALWAYS,
        body=json_text(body, "the delete"),
    )


def drop(call: DropCall) -> HttpCall[bool]:
    """Not repeated: another client may have created a topic of this name again."""
    query = {"if_empty": "true" if call.if_empty else "false"}
    return HttpCall("DELETE", _path(call.topic), answers.was_deleted, RepeatRule.NEVER, query=query)


# -- queues


def claim(call: ClaimCall) -> HttpCall[Claimed]:
    """Sent again when no answer came: what that answer held comes back when its lease is over."""
    body = {
        "node": call.node,
        "max": call.limit,
        "lease_ms": call.lease_ms,
        "wait_ms": call.wait_ms,
    }
    return HttpCall(
        "POST",
        _path(call.topic, "/claim"),
        answers.claimed,
        body=json_text(body, "claim"),
        wait_s=_wait_s(call.wait_ms),
    )


def ack(call: AckCall) -> HttpCall[LeaseResult]:
    return _lease_call("ack", call, {})


def nack(call: NackCall) -> HttpCall[LeaseResult]:
    return _lease_call("nack", call, {"delay_ms": call.delay_ms})


def extend(call: ExtendCall) -> HttpCall[LeaseResult]:
    return _lease_call("extend", call, {"lease_ms": call.lease_ms})


def _lease_call(
    verb: str, call: AckCall | NackCall | ExtendCall, more: Mapping[str, Any]
) -> HttpCall[LeaseResult]:
    """Twice is the same as once; the second time the jobs are among the skipped."""
    seq_list = list(call.seqs)
    body = {"node": call.node, "seqs": seq_list, **more}
    if call.lease_ids is not None:
        body["lease_ids"] = list(call.lease_ids)
    return HttpCall(
        "POST",
        _path(call.topic, f"/{verb}"),
        partial(answers.ack_result, seq_list),
        body=json_text(body, verb),
    )


def requeue(call: RequeueCall) -> HttpCall[Requeued]:
    """Twice is the same as once; the second time the letters are among the skipped."""
    seq_list = list(call.seqs)
    body = json_text({"seqs": seq_list}, "requeue")
    return HttpCall(
        "POST", _path(call.topic, "/requeue"), partial(answers.requeued, seq_list), body=body
    )


def queue_stats(call: QueueStatsCall) -> HttpCall[QueueStats]:
    return HttpCall("GET", _path(call.topic), answers.queue_stats, query={"touch": "false"})


# -- routers


def put_router(call: PutRouterCall) -> HttpCall[None]:
    body = json_text(dict(call.settings), "a router")
    return HttpCall("PUT", _router_path(call.router), answers.nothing, body=body)


def get_router(call: RouterCall) -> HttpCall[RouterState]:
    return HttpCall("GET", _router_path(call.router), answers.reader(RouterState))


def list_routers(call: RoutersCall, cursor: str | None) -> HttpCall[answers.ListPage[RouterState]]:
    query = _given(
        prefix=call.prefix,
        source=call.source,
        dest=call.dest,
        cursor=cursor,
        page_size=str(limits.PAGE_SIZE_MAX),
    )
    return HttpCall("GET", "/v0/routers", answers.routers_page, query=query)


def delete_router(call: DeleteRouterCall) -> HttpCall[bool]:
    return HttpCall("DELETE", _router_path(call.router), answers.was_deleted)


# -- watching


def open_watch(
    topics: Mapping[str, Mapping[str, Any]],
    node: NodeFilter,
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
        answers.reader(answers.WatchOpened),
        query={"lenient": "true" if lenient else "false"},
        body=json_text(body, "the watch"),
    )


def follow_watch(wid: str, last_event_id: str | None) -> HttpCall[bytes]:
    return follow_stream(f"/v0/watch/{quote(wid, safe='')}", {}, last_event_id)


def follow_stream(
    path: str, query: Mapping[str, str], last_event_id: str | None
) -> HttpCall[bytes]:
    """Server-sent events, from behind the one that was received last."""
    headers = {"accept": "text/event-stream", "cache-control": "no-store"}
    if last_event_id is not None:
        headers["last-event-id"] = last_event_id
    return HttpCall("GET", path, bytes, query=query, headers=headers)


# -- the whole


def metrics(_call: MetricsCall) -> HttpCall[dict[str, Any]]:
    headers = {"accept": "application/json"}
    return HttpCall("GET", "/v0/metrics", answers.metrics, headers=headers)


def trace(call: TraceCall) -> HttpCall[Trace]:
    return HttpCall("GET", "/v0/trace", answers.trace, query={"after": str(call.after)})


def ready(_call: ReadyCall) -> HttpCall[str]:
    return HttpCall("GET", "/v0/ready", answers.status)


def _path(topic: str, rest: str = "") -> str:
    return f"/v0/topics/{quote(check_topic_name(topic), safe='')}{rest}"


def _router_path(router: str) -> str:
    return f"/v0/routers/{quote(check_router_name(router), safe='')}"


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _wait_s(wait_ms: int) -> float:
    return min(max(wait_ms, 0), limits.READ_WAIT_MS_CLAMP) / 1_000


def _filters(node: NodeFilter, match: object | None) -> dict[str, Any]:
    nodes = node if node is None or isinstance(node, str) else list(node)
    return _given(node=nodes, match=match)
