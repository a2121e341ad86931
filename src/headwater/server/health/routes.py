"""The routes of the probes and of the status."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.health import handlers, status, trace
from headwater.server.health.overview import Overview
from headwater.server.http.route_table import Parameter, Route
from headwater.wire.status_answers import StatusAnswer, TraceAnswer

HEALTH_ROUTES: Final = (
    Route("GET", "/v0/health", handlers.health, "The process lives", is_open=True,
          served_by=Overview),
    Route("GET", "/healthz", handlers.health, "The process lives", is_open=True,
          served_by=Overview),
    Route("GET", "/v0/ready", handlers.ready, "Requests are served", is_open=True,
          errors=("not_ready",), served_by=Overview),
    Route("GET", "/readyz", handlers.ready, "Requests are served", is_open=True,
          errors=("not_ready",), served_by=Overview),
    Route(
        "GET", "/v0/status", status.status, "The server at a glance: log, pressure, totals",
        Scope.READ,
        answer=StatusAnswer, served_by=Overview,
    ),
    Route(
        "GET", "/v0/trace", trace.trace, "What writes waited for, where that was long",
        Scope.ADMIN,
        query=(Parameter("after", "integer", "only waits with a higher number"),),
        answer=TraceAnswer,
    ),
)  # fmt: skip
