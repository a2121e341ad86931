"""Every route there is. The contract as a table."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.dashboard.routes import DASHBOARD_ROUTES
from headwater.server.health import handlers
from headwater.server.health.overview import Overview
from headwater.server.http import (
    openapi,
    queue_handlers,
    read_handlers,
    router_handlers,
    topic_handlers,
    write_batcher,
)
from headwater.server.http.route_table import TOKEN, Parameter, Route, RouteTable
from headwater.server.kafka.listing import KAFKA_ROUTES
from headwater.server.machines.routes import MACHINE_ROUTES
from headwater.server.metrics.handlers import metrics
from headwater.server.metrics.samples import Scrape
from headwater.server.streams import event_stream, job_pusher, watch_sessions, websocket_route
from headwater.wire import answers
from headwater.wire.requests import (
    AckBody,
    ClaimBody,
    DeleteRequest,
    DiffRequestBody,
    ExtendBody,
    NackBody,
    RouterBody,
    WatchRequest,
    WriteRequest,
)

TOPIC: Final = "/v0/topics/{topic}"
ROUTER: Final = "/v0/routers/{router}"
QUEUE_ERRORS: Final = (
    "topic_not_found", "not_a_queue", "unsupported_media_type", "payload_too_large",
)  # fmt: skip
STORAGE_ERRORS: Final = ("disk_full", "storage_failed")

ROUTES: Final = (
    Route(
        "POST", TOPIC, write_batcher.take_write, "Write records, all or nothing",
        Scope.WRITE, WriteRequest,
        goes_beside=True, served_by=write_batcher.WriteBatcher,
        answer=answers.WriteAnswer,
        query=(Parameter("return_seqs", "boolean", "false leaves out the list of seqs"),),
        answers={200: "written, or written before", 201: "written, and the topic made"},
        errors=(
            "batch_too_large", "record_too_large", "topic_not_found", "head_conflict",
            "payload_too_large", "unsupported_media_type", "topic_full", "disk_full",
            "storage_failed", "not_a_queue", "topic_exists_incompatible",
        ),
        names_topic=True,
    ),
    Route(
        "POST", TOPIC + "/diff", read_handlers.diff, "Read what came after a seq",
        Scope.READ, DiffRequestBody,
        answer=answers.DiffAnswer,
        errors=("topic_not_found", "unsupported_media_type", "payload_too_large"),
        names_topic=True,
    ),
    Route(
        "POST", TOPIC + "/delete", topic_handlers.delete_records, "Delete records for good",
        Scope.DELETE, DeleteRequest,
        answer=answers.DeleteAnswer,
        errors=("topic_not_found", "unsupported_media_type", "payload_too_large", "disk_full",
                "storage_failed"),
        names_topic=True,
    ),
    Route(
        "POST", TOPIC + "/claim", queue_handlers.claim, "Take jobs of a queue for a while",
        Scope.WORK, ClaimBody,
        answer=answers.ClaimAnswer, errors=(*QUEUE_ERRORS, *STORAGE_ERRORS), names_topic=True,
    ),
    Route(
        "POST", TOPIC + "/ack", queue_handlers.ack, "Jobs are done: delete them for good",
        Scope.WORK, AckBody,
        answer=answers.AckAnswer, errors=(*QUEUE_ERRORS, *STORAGE_ERRORS), names_topic=True,
        served_by=queue_handlers.WorkerLines,
    ),
    Route(
        "POST", TOPIC + "/nack", queue_handlers.nack, "Give jobs back, for now or for later",
        Scope.WORK, NackBody,
        answer=answers.NackAnswer, errors=(*QUEUE_ERRORS, *STORAGE_ERRORS), names_topic=True,
        served_by=queue_handlers.WorkerLines,
    ),
    Route(
        "POST", TOPIC + "/extend", queue_handlers.extend, "Hold jobs longer",
        Scope.WORK, ExtendBody,
        answer=answers.ExtendAnswer, errors=(*QUEUE_ERRORS, *STORAGE_ERRORS), names_topic=True,
        served_by=queue_handlers.WorkerLines,
    ),
    Route(
        "GET", TOPIC + "/work", job_pusher.open_work, "Be given jobs as server-sent events",
        Scope.WORK,
        query=(
            Parameter("node", "string", "who works"),
            Parameter("max", "integer", "jobs in hand at once, 1, at most 1000"),
            Parameter("lease_ms", "integer", "how long a job is held, as the queue says"),
            TOKEN,
        ),
        errors=("topic_not_found", "not_a_queue", "not_acceptable"),
        names_topic=True, takes_token=True, changes_by_get=True,
        served_by=job_pusher.JobPusher,
    ),
    Route(
        "GET", TOPIC + "/arrow", read_handlers.read_arrow, "Read records as an Arrow IPC stream",
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
        "PUT", TOPIC, topic_handlers.put_topic, "Make a topic or change its settings",
        Scope.OWN, answers={200: "changed", 201: "made"},
        answer=answers.TopicMade,
        errors=("topic_exists_incompatible", "unsupported_media_type", "payload_too_large",
                "disk_full", "storage_failed"),
        names_topic=True, takes_settings=True,
    ),
    Route(
        "GET", TOPIC, topic_handlers.get_topic, "Look at a topic",
        Scope.READ,
        answer=answers.TopicAnswer,
        query=(Parameter("touch", "boolean", "false does not count as reading"),),
        errors=("topic_not_found",),
        names_topic=True,
    ),
    Route(
        "DELETE", TOPIC, topic_handlers.drop_topic, "Drop a topic and everything in it",
        Scope.OWN,
        answer=answers.TopicDropped,
        query=(Parameter("if_empty", "boolean", "refuse when it holds records"),),
        errors=("topic_not_empty", "disk_full", "storage_failed"),
        names_topic=True,
    ),
    Route(
        "GET", "/v0/topics", topic_handlers.list_topics, "List topics",
        Scope.READ,
        answer=answers.TopicList,
        query=(
            Parameter("prefix", "string", "names that begin with it"),
            Parameter("contains", "string", "names that have it anywhere"),
            Parameter("type", "string", "log or queue"),
            Parameter("page_size", "integer", "100, at most 1000"),
            Parameter("cursor", "string", "next_cursor of the page before"),
        ),
    ),
    Route(
        "PUT", ROUTER, router_handlers.put_router, "Copy what comes into one topic to another",
        Scope.OWN, RouterBody,
        answer=answers.RouterMade,
        answers={200: "it is there already", 201: "made"},
        errors=("topic_not_found", "router_cycle", "topic_exists_incompatible",
                "unsupported_media_type", "payload_too_large", *STORAGE_ERRORS),
        names_topic=True,
    ),
    Route(
        "GET", ROUTER, router_handlers.get_router, "Look at a router: how far it has come",
        Scope.READ,
        answer=answers.RouterAnswer, errors=("router_not_found",), names_topic=True,
    ),
    Route(
        "DELETE", ROUTER, router_handlers.delete_router,
        "Remove a router; what it has copied stays",
        Scope.OWN,
        answer=answers.RouterRemoved, errors=STORAGE_ERRORS, names_topic=True,
    ),
    Route(
        "GET", "/v0/routers", router_handlers.list_routers, "List routers",
        Scope.READ,
        answer=answers.RouterList,
        query=(
            Parameter("prefix", "string", "names that begin with it"),
            Parameter("source", "string", "copies from this topic"),
            Parameter("dest", "string", "copies to this topic"),
            Parameter("page_size", "integer", "100, at most 1000"),
            Parameter("cursor", "string", "next_cursor of the page before"),
        ),
    ),
    Route(
        "POST", "/v0/watch", watch_sessions.open_watch, "Open a watch over topics",
        Scope.READ, WatchRequest,
        answer=answers.WatchAnswer,
        query=(Parameter("lenient", "boolean", "leave out topics that are not there"),),
        errors=("topic_not_found", "unsupported_media_type", "payload_too_large"),
        served_by=watch_sessions.WatchSessions,
    ),
    Route(
        "GET", "/v0/watch/{wid}", event_stream.open_stream, "Follow a watch as server-sent events",
        Scope.READ, query=(TOKEN,), errors=("not_found", "not_acceptable"), takes_token=True,
        served_by=watch_sessions.WatchSessions,
    ),
    Route(
        "GET", "/v0/ws", websocket_route.open_websocket, "Subscribe and publish over a WebSocket",
        query=(TOKEN,), takes_token=True,
        answers={101: "upgraded", 426: "ask for an upgrade"},
    ),
    Route("GET", "/v0/health", handlers.health, "The process lives", is_open=True,
          served_by=Overview),
    Route("GET", "/healthz", handlers.health, "The process lives", is_open=True,
          served_by=Overview),
    Route("GET", "/v0/ready", handlers.ready, "Requests are served", is_open=True,
          errors=("not_ready",), served_by=Overview),
    Route("GET", "/readyz", handlers.ready, "Requests are served", is_open=True,
          errors=("not_ready",), served_by=Overview),
    Route("GET", "/v0/metrics", metrics, "Metrics", Scope.READ, served_by=Scrape),
    Route("GET", "/metrics", metrics, "Metrics", Scope.READ, served_by=Scrape),
    Route("GET", "/openapi.json", openapi.openapi, "This document", is_open=True,
          served_by=RouteTable),
    Route("GET", "/docs", openapi.docs, "This document for people", is_open=True,
          served_by=RouteTable),
    *MACHINE_ROUTES,
    *DASHBOARD_ROUTES,
    *KAFKA_ROUTES,
)  # fmt: skip
