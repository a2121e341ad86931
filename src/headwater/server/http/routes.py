"""The routes of topics, queues and routers, and of the document that describes all routes."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.http import (
    openapi,
    queue_handlers,
    read_handlers,
    router_handlers,
    topic_handlers,
    write_batcher,
)
from headwater.server.http.route_table import Parameter, Route, RouteTable
from headwater.wire import answers
from headwater.wire.requests import (
    AckBody,
    ClaimBody,
    DeleteRequest,
    DiffRequestBody,
    ExtendBody,
    NackBody,
    RequeueBody,
    RouterBody,
    WriteRequest,
)
from headwater.wire.status_answers import RequeueAnswer

TOPIC: Final = "/v0/topics/{topic}"
ROUTER: Final = "/v0/routers/{router}"
QUEUE_ERRORS: Final = (
    "topic_not_found", "not_a_queue", "unsupported_media_type", "payload_too_large",
)  # fmt: skip
STORAGE_ERRORS: Final = ("disk_full", "storage_failed")

HTTP_ROUTES: Final = (
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
    Route("GET", "/openapi.json", openapi.openapi, "This document", is_open=True,
          served_by=RouteTable),
    Route("GET", "/docs", openapi.docs, "This document for people", is_open=True,
          served_by=RouteTable),
    Route(
        "POST", "/v0/topics/{topic}/requeue", queue_handlers.requeue,
        "Give dead letters back to the queues they came from",
        Scope.READ | Scope.WRITE | Scope.DELETE, RequeueBody,
        answer=RequeueAnswer,
        errors=("topic_not_found", "not_a_queue", "unsupported_media_type", "payload_too_large",
                "topic_full", "record_too_large", "disk_full", "storage_failed"),
        names_topic=True,
    ),
)  # fmt: skip
