"""The path that speaks WebSocket, for a request without an upgrade.

By itself, because the library for WebSockets is loaded by the first who does upgrade.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.server.http.exchange import Exchange
from headwater.wire.http_errors import HttpError

if TYPE_CHECKING:
    from headwater.server.app import App


def open_websocket(_app: App, _exchange: Exchange) -> None:
    raise HttpError(
        "upgrade_required",
        "this path speaks WebSocket",
        headers={"upgrade": "websocket", "connection": "upgrade"},
    )
