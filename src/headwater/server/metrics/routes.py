"""The routes of the metrics."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.http.route_table import Route
from headwater.server.metrics.handlers import metrics
from headwater.server.metrics.samples import Scrape

METRICS_ROUTES: Final = (
    Route("GET", "/v0/metrics", metrics, "Metrics", Scope.READ, served_by=Scrape),
    Route("GET", "/metrics", metrics, "Metrics", Scope.READ, served_by=Scrape),
)  # fmt: skip
