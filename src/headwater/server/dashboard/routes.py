"""The routes of the dashboard's files and of the maintenance reports."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.dashboard import files, maintenance_reports
from headwater.server.health import status
from headwater.server.health.overview import Overview
from headwater.server.http import requeue_handler
from headwater.server.http.route_table import Route
from headwater.wire.requests import RequeueBody
from headwater.wire.status_answers import JobsAnswer, RequeueAnswer, StatusAnswer

_FILE: Final = {200: "the file", 304: "the one that is known already"}

DASHBOARD_ROUTES: Final = (
    Route("GET", "/", files.front, "The dashboard", is_open=True, answers=_FILE),
    Route(
        "GET", "/ui/{file}", files.file, "A file of the dashboard",
        is_open=True, answers=_FILE, errors=("not_found",),
    ),
    Route(
        "GET", "/v0/status", status.status, "The server at a glance: log, pressure, totals",
        Scope.READ,
        answer=StatusAnswer, served_by=Overview,
    ),
    Route(
        "GET", "/v0/jobs", maintenance_reports.list_jobs,
        "The last reports of verify, doctor and pipeline jobs",
        Scope.ADMIN,
        answer=JobsAnswer,
    ),
    Route(
        "POST", "/v0/topics/{topic}/requeue", requeue_handler.requeue,
        "Give dead letters back to the queues they came from",
        Scope.READ | Scope.WRITE | Scope.DELETE, RequeueBody,
        answer=RequeueAnswer,
        errors=("topic_not_found", "not_a_queue", "unsupported_media_type", "payload_too_large",
                "topic_full", "record_too_large", "disk_full", "storage_failed"),
        names_topic=True,
    ),
)  # fmt: skip
