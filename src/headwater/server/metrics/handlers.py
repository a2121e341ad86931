"""GET /v0/metrics, as text for Prometheus or as JSON."""

from __future__ import annotations

from typing import Final

from headwater.observe.metrics import metrics_as_json, metrics_as_text
from headwater.server.http.exchange import Exchange
from headwater.server.http.topic_handlers import answer
from headwater.server.metrics.samples import Scrape

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics(scrape: Scrape, exchange: Exchange) -> None:
    samples = scrape.collect(exchange.key)
    if b"application/json" in exchange.headers.get(b"accept", b""):
        answer(exchange, 200, {"metrics": metrics_as_json(samples)})
    else:
        exchange.answer(200, metrics_as_text(samples), {"content-type": _TEXT})
