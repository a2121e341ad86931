"""The routes of the probes and of the status."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.health import handlers, status
from headwater.server.health.overview import Overview
from headwater.server.http.route_table import Route
from headwater.wire.status_answers import StatusAnswer

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
)  # fmt: skip
