"""Health and readiness, and the routes of the probes and of the status."""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.core.limits import INTEGER_MAX
from headwater.core.version import __version__
from headwater.server.access.access import Access
from headwater.server.access.keys import ANONYMOUS, ApiKey, Scope
from headwater.server.backend import Backend
from headwater.server.health.overview import Overview
from headwater.server.health.reports import damage_seen, gaps_in_brief, ledgers_of, parts_seen
from headwater.server.health.status import status
from headwater.server.health.watches import poison_of, state_of
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import Parameter, Route
from headwater.server.http.topic_handlers import answer, number
from headwater.wire.http_errors import HttpError
from headwater.wire.status_answers import StatusAnswer, TraceAnswer


def trace(backend: Backend, exchange: Exchange) -> None:
    after = number(exchange, "after", 0, 0, INTEGER_MAX)
    answer(exchange, 200, msgspec.structs.asdict(backend.engine.core.waits.trace(after)))


def health(overview: Overview, exchange: Exchange) -> None:
    """The process lives. Says nothing about the disk."""
    version, uptime_ms = __version__, overview.uptime_ms
    answer(exchange, 200, {"status": "ok", "version": version, "uptime_ms": uptime_ms})


def ready(overview: Overview, exchange: Exchange) -> None:
    """Requests will be served; 503 with the reason otherwise. A part that is away does not make
    the rest unready: the answer lists it."""
    backend = overview.backend
    poison = poison_of(backend)  # 503 with the progress while recovering
    if poison is not None:
        raise poison
    if backend.draining:
        raise HttpError("shutting_down", "shutting down")
    body: dict[str, object] = {
        "status": state_of(backend),
        "recovery_progress": 1.0,
        "wal_replay_complete": True,
    }
    key = _key_if_any(overview.access, exchange)
    body |= {name: value for name, value in parts_seen(backend, key).items() if value}
    gaps = gaps_in_brief(backend.engine, overview.webhooks)
    if gaps:
        body["gaps"] = gaps
    if any(ledger.count for ledger in ledgers_of(backend)):
        body["damage"] = damage_seen(backend, key)
    answer(exchange, 200, body)


def _key_if_any(access: Access, exchange: Exchange) -> ApiKey:
    """Every client may ask whether requests are served; names and files are for a key that fits,
    and without keys for clients that are no page of another site."""
    try:
        if not len(access.keys):
            access.sites.check(exchange.headers, takes_proof=False)
        return access.keys.find(exchange.headers.get(b"authorization"))
    except HeadwaterError:
        return ANONYMOUS


HEALTH_ROUTES: Final = (
    Route("GET", "/v0/health", health, "The process lives", is_open=True,
          served_by=Overview),
    Route("GET", "/healthz", health, "The process lives", is_open=True,
          served_by=Overview),
    Route("GET", "/v0/ready", ready, "Requests are served", is_open=True,
          errors=("not_ready",), served_by=Overview),
    Route("GET", "/readyz", ready, "Requests are served", is_open=True,
          errors=("not_ready",), served_by=Overview),
    Route(
        "GET", "/v0/status", status, "The server at a glance: log, pressure, totals",
        Scope.READ,
        answer=StatusAnswer, served_by=Overview,
    ),
    Route(
        "GET", "/v0/trace", trace, "What writes waited for, where that was long",
        Scope.ADMIN,
        query=(Parameter("after", "integer", "only waits with a higher number"),),
        answer=TraceAnswer,
    ),
)  # fmt: skip
