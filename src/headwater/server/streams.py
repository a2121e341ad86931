"""GET /v0/watch/:wid: a watch as server-sent events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.engine.topic import Topic
from headwater.server.connection import HttpConnection
from headwater.server.delivery import Batch, Wish
from headwater.server.exchange import Exchange
from headwater.server.sessions import Watch
from headwater.wire import sse
from headwater.wire.http_errors import HttpError

if TYPE_CHECKING:
    from headwater.server.app import App


def open_stream(app: App, exchange: Exchange) -> None:
    accept = exchange.headers.get(b"accept", b"*/*").lower()
    if not any(kind in accept for kind in (b"text/event-stream", b"text/*", b"*/*")):
        raise HttpError("not_acceptable", "this is a stream of text/event-stream")
    key = app.key_of(exchange)
    watch = app.sessions.get(exchange.parameters[0], key)
    resume = exchange.header(b"last-event-id")
    cursors = dict(watch.cursors)
    if resume:
        # Only back: what was not sent yet cannot be skipped by a made-up id.
        for name, seq in sse.decode_cursor(resume).items():
            if name in cursors:
                cursors[name] = min(seq, cursors[name]) if watch.streams else seq
    app.quotas.open_stream(key)
    EventStream(app, exchange, watch, cursors).begin()


class EventStream:
    """One open stream. Sends only while the client takes what was sent before."""

    def __init__(self, app: App, exchange: Exchange, watch: Watch, cursors: dict[str, int]) -> None:
        self._app = app
        self._exchange = exchange
        self._watch = watch
        self._cursors = cursors
        self._wish = Wish(
            watch.projection, watch.limit, watch.bytes_max, watch.nodes, watch.matcher
        )
        self._reading: set[str] = set()
        self._caught_up: set[str] = set()
        self._sent_us = app.now_us()
        self._ended = False

    @property
    def connection(self) -> HttpConnection:
        return self._exchange.connection

    def begin(self) -> None:
        app = self._app
        self._watch.streams += 1
        self._exchange.on_gone = self._gone
        self._exchange.begin_stream(200, sse.HEADERS)
        self._send(sse.RETRY)
        app.delivery.add(self, list(self._cursors), watches_prefixes=bool(self._watch.prefixes))
        self.pump_all()

    def pump_all(self) -> None:
        for name in list(self._cursors):
            topic = self._app.engine.find(name)
            if topic is not None:
                self.pump(topic)

    def pump(self, topic: Topic) -> None:
        name = topic.name
        while not self._ended and name not in self._reading and not self.connection.paused:
            if topic.dropped:
                self._topic_gone(name)
                return
            cursor = self._cursors.get(name)
            if cursor is None or (cursor >= topic.log.visible_seq and name in self._caught_up):
                return
            batch = self._app.delivery.read(topic, cursor, self._wish)
            if batch is None:
                self._reading.add(name)
                self._app.spawn(self._exchange, self._read_later(topic, cursor))
                return
            self._take(name, batch)

    async def _read_later(self, topic: Topic, cursor: int) -> None:
        try:
            batch = await self._app.delivery.read_later(topic, cursor, self._wish)
            if not self._ended:
                self._take(topic.name, batch)
        except HeadwaterError as error:
            self._send(sse.json_event(b"error", {"code": error.code, "message": str(error)}))
            self.end()
        finally:
            self._reading.discard(topic.name)
        self.pump(topic)

    def _take(self, name: str, batch: Batch) -> None:
        self._cursors[name] = batch.next_from_seq
        self._watch.cursors[name] = batch.next_from_seq
        topic_json = msgspec.json.encode(name)
        if batch.tombstone is not None:
            gap = msgspec.json.encode(batch.tombstone)
            self._send(sse.event(b"tombstone", b'{"topic":%b,%b' % (topic_json, gap[1:])))
        if not batch.caught_up:
            self._caught_up.discard(name)
        if batch.count:
            data = b'{"topic":%b,"records":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d}' % (
                topic_json,
                batch.records,
                batch.from_seq,
                batch.next_from_seq,
                batch.head_seq,
            )
            self._send(sse.event(b"record", data, sse.encode_cursor(self._cursors)))
        if batch.caught_up and name not in self._caught_up:
            self._caught_up.add(name)
            data = b'{"topic":%b,"seq":%d,"head_seq":%d}' % (
                topic_json,
                batch.next_from_seq,
                batch.head_seq,
            )
            self._send(sse.event(b"caught-up", data, sse.encode_cursor(self._cursors)))

    def _topic_gone(self, name: str) -> None:
        self._cursors.pop(name, None)
        self._watch.cursors.pop(name, None)
        self._app.delivery.unfollow(self, name)
        self._send(sse.json_event(b"topic-deleted", {"topic": name}))

    def new_topic(self, topic: Topic) -> bool:
        watch = self._watch
        if topic.name in self._cursors or not topic.name.startswith(watch.prefixes):
            return False
        if not watch.key.may_name(topic.name):
            return False
        self._cursors[topic.name] = watch.cursors.setdefault(topic.name, 0)
        self._app.delivery.follow(self, topic.name)
        return True

    def beat(self, now_us: int) -> None:
        if now_us - self._sent_us >= self._watch.heartbeat_us and not self.connection.paused:
            self._send(sse.heartbeat(self._app.clock.wall_ms()))

    def _send(self, frame: bytes) -> None:
        self._sent_us = self._app.now_us()
        self.connection.send(frame)

    def end(self) -> None:
        """The server ends the stream; the client may come back with its cursor."""
        if not self._ended:
            self._close()
            self.connection.close()

    def _gone(self) -> None:
        if not self._ended:
            self._close()

    def _close(self) -> None:
        self._ended = True
        self._watch.streams -= 1
        self._app.sessions.touch(self._watch)
        self._app.delivery.remove(self, list(self._cursors))
        self._app.quotas.close_stream(self._watch.key)
