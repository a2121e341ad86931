"""GET /v0/trace: what writes waited for, where that was long."""

from __future__ import annotations

import msgspec

from headwater.core.limits import INTEGER_MAX
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.topic_handlers import answer, number


def trace(backend: Backend, exchange: Exchange) -> None:
    after = number(exchange, "after", 0, 0, INTEGER_MAX)
    answer(exchange, 200, msgspec.structs.asdict(backend.engine.core.waits.trace(after)))
