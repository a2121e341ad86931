"""Health, readiness, metrics, the OpenAPI document and the page that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_MS
from headwater.core.version import __version__
from headwater.observe.metrics import metrics_as_json, metrics_as_text
from headwater.server.access.keys import ANONYMOUS, ApiKey
from headwater.server.health.damage import damage_seen, ledgers_of, parts_seen
from headwater.server.health.log_states import poison_of, state_of
from headwater.server.health.retention import gaps_in_brief
from headwater.server.http.exchange import Exchange
from headwater.server.http.openapi import openapi_document
from headwater.server.http.topic_handlers import answer
from headwater.server.metrics.samples import collect
from headwater.wire.http_errors import HttpError
from headwater.wire.openapi_page import DOCS_PAGE

if TYPE_CHECKING:
    from headwater.server.app import App

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def health(app: App, exchange: Exchange) -> None:
    """The process lives. Says nothing about the disk."""
    uptime_ms = (app.now_us() - app.started_us) // US_PER_MS
    body = {"status": "ok", "version": __version__, "uptime_ms": uptime_ms}
    answer(exchange, 200, body)


def ready(app: App, exchange: Exchange) -> None:
    """Requests will be served; 503 with the reason otherwise. A part that is away does not make
    the rest unready: the answer lists it."""
    poison = poison_of(app)  # 503 with the progress while recovering
    if poison is not None:
        raise poison
    if app.draining:
        raise HttpError("shutting_down", "shutting down")
    body: dict[str, object] = {
        "status": state_of(app),
        "recovery_progress": 1.0,
        "wal_replay_complete": True,
    }
    key = _key_if_any(app, exchange)
    body |= {name: value for name, value in parts_seen(app, key).items() if value}
    gaps = gaps_in_brief(app)
    if gaps:
        body["gaps"] = gaps
    if any(ledger.count for ledger in ledgers_of(app)):
        body["damage"] = damage_seen(app, key)
    answer(exchange, 200, body)


def _key_if_any(app: App, exchange: Exchange) -> ApiKey:
    """Every client may ask whether requests are served; names and files are for a key that fits,
    and without keys for clients that are no page of another site."""
    try:
        if not len(app.keys):
            app.sites.check(exchange.headers, takes_proof=False)
        return app.keys.find(exchange.headers.get(b"authorization"))
    except HeadwaterError:
        return ANONYMOUS


def metrics(app: App, exchange: Exchange) -> None:
    samples = collect(app, app.key_of(exchange))
    if b"application/json" in exchange.headers.get(b"accept", b""):
        answer(exchange, 200, {"metrics": metrics_as_json(samples)})
    else:
        exchange.answer(200, metrics_as_text(samples), {"content-type": _TEXT})


def openapi(app: App, exchange: Exchange) -> None:
    exchange.answer_json(200, msgspec.json.encode(openapi_document(app.routes.routes)))


def docs(_app: App, exchange: Exchange) -> None:
    exchange.answer(
        200,
        DOCS_PAGE,
        {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'",
        },
    )
