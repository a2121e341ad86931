"""Opening watches, for tests of streams."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.server.raw_http import Events, RawHttp
from tests.server.running_server import RunningServer


def open_watch(http: RawHttp, topics: Mapping[str, Any], **options: Any) -> str:
    answer = http.ask("POST", "/v0/watch", {"topics": topics, **options})
    assert answer.status == 200, answer
    wid: str = answer.json["wid"]
    return wid


@contextmanager
def stream(
    server: RunningServer, wid: str, last_event_id: str | None = None, **options: Any
) -> Iterator[Events]:
    with server.talk(**options) as connection:
        events = Events(connection, wid, last_event_id)
        assert events.status == 200
        yield events


@contextmanager
def watching(server: RunningServer, topics: Mapping[str, Any], **options: Any) -> Iterator[Events]:
    """A stream of a watch of its own."""
    with server.talk() as connection:
        wid = open_watch(connection, topics, **options)
    with stream(server, wid) as events:
        yield events


def cursor(event_id: str | None) -> Any:
    """The map in an id."""
    assert event_id is not None
    return json.loads(base64.urlsafe_b64decode(event_id + "=" * (-len(event_id) % 4)))


def as_id(cursors: Mapping[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursors).encode()).rstrip(b"=").decode()
