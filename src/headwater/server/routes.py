"""Every route there is. The contract as a table."""

from __future__ import annotations

from typing import Final

from headwater.server import admin, reading, sessions, streams, topics, websocket, writing
from headwater.server.keys import Scope
from headwater.server.routing import Parameter, Route
from headwater.wire import answers
from headwater.wire.requests import DeleteRequest, DiffRequestBody, WatchRequest, WriteRequest

TOPIC: Final = "/v0/topics/{topic}"

ROUTES: Final = (
    Route(
        "POST", TOPIC, writing.write_records, "Write records, all or nothing",
        Scope.WRITE, WriteRequest,
        answer=answers.WriteAnswer,
        query=(Parameter("return_seqs", "boolean", "false leaves out the list of seqs"),),
        answers={200: "written, or written before", 201: "written, and the topic made"},
        errors=(
            "batch_too_large", "record_too_large", "topic_not_found", "head_conflict",
            "payload_too_large", "unsupported_media_type", "topic_full", "disk_full",
            "storage_failed",
        ),
        names_topic=True,
    ),
    Route(
        "POST", TOPIC + "/diff", reading.diff, "Read what came after a seq",
        Scope.READ, DiffRequestBody,
        answer=answers.DiffAnswer,
        errors=("topic_not_found", "unsupported_media_type", "payload_too_large"),
        names_topic=True,
    ),
    Route(
        "POST", TOPIC + "/delete", topics.delete_records, "Delete records for good",
        Scope.DELETE, DeleteRequest,
        answer=answers.DeleteAnswer,
        errors=("topic_not_found", "unsupported_media_type", "payload_too_large", "disk_full",
                "storage_failed"),
        names_topic=True,
    ),
    Route(
        "GET", TOPIC + "/arrow", reading.read_arrow, "Read records as an Arrow IPC stream",
        Scope.READ,
        query=(
            Parameter("from_seq", "integer", "exclusive, 0"),
            Parameter("to_seq", "integer", "inclusive, the head"),
            Parameter("limit", "integer", "rows, 100000"),
        ),
        errors=("topic_not_found",),
        names_topic=True,
    ),
    Route(
        "PUT", TOPIC, topics.put_topic, "Make a topic or change its settings",
        Scope.WRITE, answers={200: "changed", 201: "made"},
        answer=answers.TopicMade,
        errors=("topic_exists_incompatible", "unsupported_media_type", "payload_too_large",
                "disk_full", "storage_failed"),
        names_topic=True, takes_settings=True,
    ),
    Route(
        "GET", TOPIC, topics.get_topic, "Look at a topic",
        Scope.READ,
        answer=answers.TopicAnswer,
        query=(Parameter("touch", "boolean", "false does not count as reading"),),
        errors=("topic_not_found",),
        names_topic=True,
    ),
    Route(
        "DELETE", TOPIC, topics.drop_topic, "Drop a topic and everything in it",
        Scope.ADMIN,
        answer=answers.TopicDropped,
        query=(Parameter("if_empty", "boolean", "refuse when it holds records"),),
        errors=("topic_not_empty", "disk_full", "storage_failed"),
        names_topic=True,
    ),
    Route(
        "GET", "/v0/topics", topics.list_topics, "List topics",
        Scope.READ,
        answer=answers.TopicList,
        query=(
            Parameter("prefix", "string", "names that begin with it"),
            Parameter("page_size", "integer", "100, at most 1000"),
            Parameter("cursor", "string", "next_cursor of the page before"),
        ),
    ),
    Route(
        "POST", "/v0/watch", sessions.open_watch, "Open a watch over topics",
        Scope.READ, WatchRequest,
        answer=answers.WatchAnswer,
        query=(Parameter("lenient", "boolean", "leave out topics that are not there"),),
        errors=("topic_not_found", "unsupported_media_type", "payload_too_large"),
    ),
    Route(
        "GET", "/v0/watch/{wid}", streams.open_stream, "Follow a watch as server-sent events",
        Scope.READ, errors=("not_found", "not_acceptable"),
    ),
    Route(
        "GET", "/v0/ws", websocket.open_websocket, "Subscribe and publish over a WebSocket",
        answers={101: "upgraded", 426: "ask for an upgrade"},
    ),
    Route("GET", "/v0/health", admin.health, "The process lives", is_open=True),
    Route("GET", "/healthz", admin.health, "The process lives", is_open=True),
    Route("GET", "/v0/ready", admin.ready, "Requests are served", is_open=True,
          errors=("not_ready",)),
    Route("GET", "/readyz", admin.ready, "Requests are served", is_open=True,
          errors=("not_ready",)),
    Route("GET", "/v0/metrics", admin.metrics, "Metrics", Scope.READ),
    Route("GET", "/metrics", admin.metrics, "Metrics", Scope.READ),
    Route("GET", "/openapi.json", admin.openapi, "This document", is_open=True),
    Route("GET", "/docs", admin.docs, "This document for people", is_open=True),
)  # fmt: skip
