"""The routes of streams: watches, jobs for workers, WebSockets."""

from __future__ import annotations

from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.route_table import TOKEN, Parameter, Route
from headwater.server.http.routes import TOPIC
from headwater.server.streams import job_pusher, watch_sessions
from headwater.wire import answers
from headwater.wire.http_errors import HttpError
from headwater.wire.requests import WatchRequest


def open_websocket(_backend: Backend, _exchange: Exchange) -> None:
    """Without an upgrade. Here, because the library for WebSockets is loaded by the first who does
    upgrade."""
    raise HttpError(
        "upgrade_required",
        "this path speaks WebSocket",
        headers={"upgrade": "websocket", "connection": "upgrade"},
    )


STREAM_ROUTES: Final = (
    Route(
        "GET", TOPIC + "/work", job_pusher.open_work, "Be given jobs as server-sent events",
        Scope.WORK,
        query=(
            Parameter("node", "string", "who works"),
            Parameter("max", "integer", "jobs in hand at once, 1, at most 1000"),
            Parameter("lease_ms", "integer", "how long a job is held, as the queue says"),
            TOKEN,
        ),
        errors=("topic_not_found", "not_a_queue", "not_acceptable"),
        names_topic=True, takes_token=True, changes_by_get=True,
        served_by=job_pusher.JobPusher,
    ),
    Route(
        "POST", "/v0/watch", watch_sessions.open_watch, "Open a watch over topics",
        Scope.READ, WatchRequest,
        answer=answers.WatchAnswer,
        query=(Parameter("lenient", "boolean", "leave out topics that are not there"),),
        errors=("topic_not_found", "unsupported_media_type", "payload_too_large"),
        served_by=watch_sessions.WatchSessions,
    ),
    Route(
        "GET", "/v0/watch/{wid}", watch_sessions.open_stream,
        "Follow a watch as server-sent events",
        Scope.READ, query=(TOKEN,), errors=("not_found", "not_acceptable"), takes_token=True,
        served_by=watch_sessions.WatchSessions,
    ),
    Route(
        "GET", "/v0/ws", open_websocket, "Subscribe and publish over a WebSocket",
        query=(TOKEN,), takes_token=True,
        answers={101: "upgraded", 426: "ask for an upgrade"},
    ),
)  # fmt: skip
