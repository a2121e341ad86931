"""The routes of state machines; `routes` joins them to the others."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from headwater.core.errors import InvalidRequestError
from headwater.model.machines.errors import BAD_REQUEST, MachineError
from headwater.server.access.keys import Scope
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import TOKEN, Handler, Parameter, Route
from headwater.server.machines import handlers, instance_stream
from headwater.wire import machine_answers as answers
from headwater.wire.machine_requests import (
    ApplyEventBody,
    BatchBody,
    CompactBody,
    CreateInstanceBody,
    MigrateBody,
    PutMachineBody,
    WalReadBody,
)

VERSION: Final = "/v0/machines/{machine}/versions/{version}"
INSTANCE: Final = "/v0/instances/{instance_id}"
BODY: Final = ("unsupported_media_type", "payload_too_large", "BAD_REQUEST")
STORAGE: Final = ("disk_full", "storage_failed")
CHANGING: Final = (*BODY, *STORAGE)

_ROUTES: Final = (
    Route(
        "PUT", VERSION, handlers.put_machine,
        "Define a version of a machine; it never changes",
        Scope.WRITE, PutMachineBody,
        answer=answers.MachinePutAnswer,
        answers={200: "it is there already", 201: "made"},
        errors=(*CHANGING, "MACHINE_VERSION_EXISTS", "MACHINE_VERSION_LIMIT_EXCEEDED"),
        names_topic=True,
    ),
    Route(
        "GET", VERSION, handlers.get_machine, "Look at a version of a machine, or `latest`",
        Scope.READ,
        answer=answers.MachineAnswer, errors=("BAD_REQUEST", "MACHINE_NOT_FOUND"),
        names_topic=True,
    ),
    Route(
        "GET", VERSION + "/drawing", handlers.draw_machine, "A picture of a machine",
        Scope.READ,
        query=(
            Parameter("format", "string", "svg, or mermaid for text"),
            Parameter("instance", "string", "mark the state this instance is in"),
        ),
        errors=("BAD_REQUEST", "MACHINE_NOT_FOUND", "INSTANCE_NOT_FOUND"), names_topic=True,
    ),
    Route(
        "GET", "/v0/machines", handlers.list_machines, "List machines and their versions",
        Scope.READ, answer=answers.MachineListAnswer,
    ),
    Route(
        "POST", "/v0/machines/wal/read", handlers.read_wal, "Read the log of the machines",
        Scope.ADMIN, WalReadBody,
        answer=answers.WalReadAnswer, errors=(*BODY, "storage_failed"),
    ),
    Route(
        "GET", "/v0/machines/wal/stats", handlers.wal_stats,
        "How large the machines' log is",
        Scope.READ, answer=answers.WalStatsAnswer,
    ),
    Route(
        "POST", "/v0/machines/compact", handlers.compact,
        "Take a snapshot and drop the log before it",
        Scope.ADMIN, CompactBody, answer=answers.CompactedAnswer, errors=CHANGING,
    ),
    Route(
        "POST", "/v0/instances", handlers.create_instance, "Make an instance",
        Scope.WRITE, CreateInstanceBody,
        answer=answers.InstanceMadeAnswer,
        answers={200: "made before, under the same key", 201: "made"},
        errors=(*CHANGING, "MACHINE_NOT_FOUND", "INSTANCE_EXISTS", "CONFLICT"),
    ),
    Route(
        "GET", "/v0/instances", handlers.list_instances, "List instances, by id",
        Scope.READ,
        answer=answers.InstanceListAnswer,
        query=(
            Parameter("machine", "string", "only of this machine"),
            Parameter("state", "string", "only in this state"),
            Parameter("limit", "integer", "100, at most 1000"),
            Parameter("offset", "integer", "pass over so many"),
        ),
        errors=("BAD_REQUEST",),
    ),
    Route(
        "POST", "/v0/instances/batch", handlers.run_batch,
        "Several operations, whole or each",
        Scope.WRITE, BatchBody,
        answer=answers.BatchAnswer,
        errors=(
            *CHANGING, "MACHINE_NOT_FOUND", "INSTANCE_NOT_FOUND", "INSTANCE_EXISTS",
            "INVALID_TRANSITION", "GUARD_FAILED", "CONFLICT",
        ),
    ),
    Route(
        "GET", "/v0/instances/watch", instance_stream.open_watch,
        "Follow transitions as server-sent events",
        Scope.READ,
        query=(
            Parameter("instance_id", "string", "only of this instance"),
            Parameter("machines", "string", "only of these machines, with commas between"),
            Parameter("events", "string", "only by these events"),
            Parameter("from_states", "string", "only from these states"),
            Parameter("to_states", "string", "only to these states"),
            Parameter("from_offset", "string", "begin with history from here"),
            Parameter("include_ctx", "boolean", "false leaves out the contexts"),
            Parameter("idle_ms", "integer", "end when nothing came for so long"),
            TOKEN,
        ),
        errors=("BAD_REQUEST", "INSTANCE_NOT_FOUND", "not_acceptable"), takes_token=True,
        served_by=instance_stream.InstanceStreams,
    ),
    Route(
        "GET", INSTANCE, handlers.get_instance, "Look at an instance",
        Scope.READ, answer=answers.InstanceAnswer, errors=("INSTANCE_NOT_FOUND",),
    ),
    Route(
        "DELETE", INSTANCE, handlers.delete_instance, "Delete an instance",
        Scope.DELETE,
        answer=answers.InstanceDeletedAnswer,
        query=(Parameter("idempotency_key", "string", "a repeat does nothing"),),
        errors=("BAD_REQUEST", "INSTANCE_NOT_FOUND", *STORAGE),
    ),
    Route(
        "POST", INSTANCE + "/events", handlers.apply_event,
        "Apply an event to an instance",
        Scope.WRITE, ApplyEventBody,
        answer=answers.EventAppliedAnswer,
        errors=(
            *CHANGING, "INSTANCE_NOT_FOUND", "INVALID_TRANSITION", "GUARD_FAILED", "CONFLICT",
        ),
    ),
    Route(
        "GET", INSTANCE + "/history", handlers.history, "What happened to an instance",
        Scope.READ,
        answer=answers.HistoryAnswer,
        query=(Parameter("limit", "integer", "the newest so many; 100, at most 1000"),),
        errors=("BAD_REQUEST", "INSTANCE_NOT_FOUND", "storage_failed"),
    ),
    Route(
        "POST", INSTANCE + "/migrate", handlers.migrate,
        "Move an instance to another version of its machine",
        Scope.WRITE, MigrateBody,
        answer=answers.MigratedAnswer,
        errors=(*CHANGING, "INSTANCE_NOT_FOUND", "MACHINE_NOT_FOUND", "CONFLICT"),
    ),
    Route(
        "POST", INSTANCE + "/snapshot", handlers.snapshot_instance,
        "A snapshot of one instance",
        Scope.WRITE,
        answer=answers.InstanceSnapshotAnswer, errors=("INSTANCE_NOT_FOUND", *STORAGE),
    ),
)  # fmt: skip


def _with_their_codes(handler: Handler) -> Handler:
    """What cannot be read is BAD_REQUEST here, as over RCPX: one list of codes for machines."""

    @wraps(handler)
    def handle(service: object, exchange: Exchange) -> Coroutine[Any, Any, None] | None:
        try:
            return handler(service, exchange)
        except InvalidRequestError as error:
            raise MachineError(BAD_REQUEST, str(error), details=error.detail) from error

    return handle


MACHINE_ROUTES: Final = tuple(
    replace(route, handler=_with_their_codes(route.handler)) for route in _ROUTES
)
