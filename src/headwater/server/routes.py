"""Every route there is. The contract as a table, in two parts: what a server has when it starts,
and what it loads when the first request comes whose path begins so."""

from __future__ import annotations

from typing import Final

from headwater.server import dashboard
from headwater.server.health.handlers import HEALTH_ROUTES
from headwater.server.http.route_table import LateRoutes, Route
from headwater.server.http.routes import HTTP_ROUTES
from headwater.server.kafka import listing
from headwater.server.machines import routes as machine_routes
from headwater.server.metrics import METRICS_ROUTES
from headwater.server.streams.routes import STREAM_ROUTES

ROUTES: Final = (*HTTP_ROUTES, *STREAM_ROUTES, *HEALTH_ROUTES, *METRICS_ROUTES)
LATE_ROUTES: Final = (
    LateRoutes(("/v0/machines", "/v0/instances", "/v0/wal"), lambda: machine_routes.MACHINE_ROUTES),
    LateRoutes(("/", "/ui", "/v0/jobs"), lambda: dashboard.DASHBOARD_ROUTES),
    LateRoutes(("/v0/kafka",), lambda: listing.KAFKA_ROUTES),
)


def every_route() -> tuple[Route, ...]:
    """For what describes all of them."""
    return (*ROUTES, *(route for late in LATE_ROUTES for route in late.load()))
