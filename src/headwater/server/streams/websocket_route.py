"""The path that speaks WebSocket, for a request without an upgrade.

By itself, because the library for WebSockets is loaded by the first who does upgrade.
"""

from __future__ import annotations

from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.wire.http_errors import HttpError


def open_websocket(_backend: Backend, _exchange: Exchange) -> None:
    raise HttpError(
        "upgrade_required",
        "this path speaks WebSocket",
        headers={"upgrade": "websocket", "connection": "upgrade"},
    )
