"""GET /v0/instances/watch: transitions as server-sent events.

The id of each event is its offset in the log, so a client that comes back with Last-Event-ID goes
on with the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.api import machine_requests as requests
from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.engine.machines import operations as engine_operations
from headwater.engine.operation import AsOwner, Operation
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.operation import HttpOperation
from headwater.server.http.topic_handlers import flag, number
from headwater.server.machines import operations
from headwater.server.machines.transition_follower import TransitionFeed, TransitionFollower
from headwater.server.streams.open_streams import (
    OpenStreams,
    SseStream,
    answers_head,
    require_event_stream,
)
from headwater.wire import sse

if TYPE_CHECKING:
    from headwater.engine.machines.log_reader import GapReason
    from headwater.engine.machines.watchers import TransitionEvent, Watcher
    from headwater.server.access.keys import ApiKey

HEARTBEAT_US: Final = 15_000_000
NEVER_IDLE: Final = -1
LISTS: Final = ("machines", "events", "from_states", "to_states")
_OFFSET: Final = re.compile(r"[0-9]{1,20}")


class InstanceStreams(NamedTuple):
    """What following instances takes of the server."""

    feed: TransitionFeed
    streams: OpenStreams


def open_watch(service: InstanceStreams, exchange: Exchange) -> None:
    require_event_stream(exchange)
    if answers_head(exchange):
        return
    query, key, backend = exchange.query(), exchange.key, service.feed.backend
    lists = {name: query[name].split(",") for name in LISTS if query.get(name)}
    wanted = requests.watch_filter(query.get("instance_id") or None, **lists)
    with_ctx = flag(exchange, "include_ctx", True)
    start = _start(exchange, query.get("from_offset"))
    idle_us = number(exchange, "idle_ms", NEVER_IDLE, 0, 86_400_000) * 1_000

    def begin(opened: tuple[Watcher, int]) -> None:
        watcher, position = opened
        try:
            service.streams.admit(key)
        except HeadwaterError:
            watcher.close()
            raise
        stream = WatchStream(service, exchange, watcher, with_ctx=with_ctx, idle_us=idle_us)
        stream.begin(position)

    opening = _open_watcher(backend, key, wanted, start)
    HttpOperation(backend, exchange, opening, begin).begin()


def _open_watcher(
    backend: Backend, key: ApiKey, wanted: requests.WatchFilter, start: int | None
) -> Operation[tuple[Watcher, int]]:
    seen = yield from operations.seen_by(backend.engine, key, wanted)
    store = yield from engine_operations.open_store(backend.engine)
    opened: tuple[Watcher, int] = yield AsOwner(
        lambda: (store.watch(seen, start), store.committed_offset if start is None else start)
    )
    return opened


def _start(exchange: Exchange, from_offset: str | None) -> int | None:
    """Behind the last event a client has seen; else where it asks to begin; else now."""
    seen = exchange.header(b"last-event-id")
    given = seen or from_offset
    if not given:
        return None
    if _OFFSET.fullmatch(given) is None:
        raise InvalidRequestError("an offset is a whole number")
    return int(given) + 1 if seen else int(given)


class WatchStream(SseStream):
    """One open stream."""

    heartbeat_us = HEARTBEAT_US

    def __init__(
        self,
        service: InstanceStreams,
        exchange: Exchange,
        watcher: Watcher,
        *,
        with_ctx: bool,
        idle_us: int,
    ) -> None:
        super().__init__(service.streams, exchange)
        self._transition_cache = service.feed.cache
        self._with_ctx = with_ctx
        self._idle_us = idle_us
        self._follower = TransitionFollower(service.feed, watcher, self)
        self._event_us = self._sent_us

    def begin(self, position: int) -> None:
        begin = {"wal_offset": position, "wal_offset_text": str(position)}
        # A client that loses the connection before a first event comes back to where it was.
        self._open(self._follower.pump, sse.json_event(b"begin", begin, b"%d" % (position - 1)))
        self._event_us = self._sent_us
        self._follower.begin()

    def send_events(self, events: Sequence[TransitionEvent]) -> None:
        transition_cache = self._transition_cache
        self._send(
            b"".join(
                sse.event(
                    b"transition",
                    transition_cache.of(event, with_ctx=self._with_ctx),
                    b"%d" % event.wal_offset,
                )
                for event in (operations.own_event(self._key, each) for each in events)
            )
        )

    def send_missed(
        self, first_offset: int, last_offset: int, count: int | None, reason: GapReason
    ) -> None:
        gap = {
            "first_offset": first_offset,
            "last_offset": last_offset,
            "first_offset_text": str(first_offset),
            "last_offset_text": str(last_offset),
            "missed": count,
            "reason": reason.value,
        }
        self._send(sse.json_event(b"gap", gap))

    def beat(self, now_us: int) -> None:
        if self._is_idle(now_us):
            # Said, because a server that stops ends its streams too, and those go on elsewhere.
            self._send(sse.json_event(b"idle", {"idle_ms": self._idle_us // 1_000}))
            self.end()
        else:
            super().beat(now_us)

    def _is_idle(self, now_us: int) -> bool:
        """Nothing came for as long as the client waits. While the past is still read there is
        something to come, however long that takes."""
        waited = 0 <= self._idle_us <= now_us - self._event_us
        return waited and self._follower.is_up_to_date

    def _send(self, frames: bytes) -> None:
        self._say(frames)
        self._event_us = self._sent_us

    def _let_go(self) -> None:
        self._follower.close()
