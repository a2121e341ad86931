"""Every route there is. The contract as a table."""

from __future__ import annotations

from typing import Final

from headwater.server.dashboard import DASHBOARD_ROUTES
from headwater.server.health.handlers import HEALTH_ROUTES
from headwater.server.http.routes import HTTP_ROUTES
from headwater.server.kafka.listing import KAFKA_ROUTES
from headwater.server.machines.routes import MACHINE_ROUTES
from headwater.server.metrics import METRICS_ROUTES
from headwater.server.streams.routes import STREAM_ROUTES

ROUTES: Final = (
    *HTTP_ROUTES,
    *STREAM_ROUTES,
    *HEALTH_ROUTES,
    *METRICS_ROUTES,
    *MACHINE_ROUTES,
    *DASHBOARD_ROUTES,
    *KAFKA_ROUTES,
)
