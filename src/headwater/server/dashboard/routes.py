"""The routes of the dashboard's files and of the maintenance reports."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.dashboard import files, maintenance_reports
from headwater.server.http.route_table import Route
from headwater.wire.status_answers import JobsAnswer

_FILE: Final = {200: "the file", 304: "the one that is known already"}

DASHBOARD_ROUTES: Final = (
    Route("GET", "/", files.front, "The dashboard", is_open=True, answers=_FILE),
    Route(
        "GET", "/ui/{file}", files.file, "A file of the dashboard",
        is_open=True, answers=_FILE, errors=("not_found",),
    ),
    Route(
        "GET", "/v0/jobs", maintenance_reports.list_jobs,
        "The last reports of verify, doctor and pipeline jobs",
        Scope.ADMIN,
        answer=JobsAnswer,
    ),
)  # fmt: skip
