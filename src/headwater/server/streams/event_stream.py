"""GET /v0/watch/:wid: a watch as server-sent events."""

from __future__ import annotations

import msgspec

from headwater.core.errors import HeadwaterError, InvalidRequestError
from headwater.engine.partition import Partition
from headwater.server.http.exchange import Exchange
from headwater.server.streams.delivery import Batch, ReadOptions
from headwater.server.streams.topic_subscriptions import TopicSubscriptions
from headwater.server.streams.watch_sessions import Watch, WatchSessions
from headwater.wire import sse
from headwater.wire.http_errors import HttpError


def require_event_stream(exchange: Exchange) -> None:
    accept = exchange.headers.get(b"accept", b"*/*").lower()
    if not any(kind in accept for kind in (b"text/event-stream", b"text/*", b"*/*")):
        raise HttpError("not_acceptable", "this is a stream of text/event-stream")


def open_stream(sessions: WatchSessions, exchange: Exchange) -> None:
    require_event_stream(exchange)
    key = exchange.key
    watch = sessions.get(exchange.parameters[0], key)
    if exchange.method == b"HEAD":
        exchange.answer(200, b"", sse.HEADERS)
        return
    if exchange.connection.is_waiting:
        raise InvalidRequestError("a stream cannot stand behind requests that are not answered")
    resume = exchange.header(b"last-event-id")
    seen = sse.decode_cursor(resume) if resume else {}
    sessions.delivery.streams.admit(key)
    EventStream(sessions, exchange, watch).begin(seen)


class EventStream:
    """One open stream. Sends only while the client takes what was sent before."""

    def __init__(self, sessions: WatchSessions, exchange: Exchange, watch: Watch) -> None:
        self._sessions = sessions
        self._delivery = sessions.delivery
        self._streams = sessions.delivery.streams
        self._exchange = exchange
        self._watch = watch
        self._subscriptions = TopicSubscriptions(self._delivery, exchange, self)
        self._options = ReadOptions(
            watch.projection,
            watch.limit,
            watch.bytes_max,
            watch.nodes,
            watch.matcher,
            watch.strong,
        )
        self._connection = exchange.connection
        self._sent_us = self._streams.now_us()

    def begin(self, seen: dict[str, int]) -> None:
        watch = self._watch
        watch.streams += 1
        self._exchange.on_gone = self._close
        self._connection.on_resumed = self._subscriptions.pump_all
        self._exchange.begin_stream(200, sse.HEADERS)
        self._send(sse.RETRY)
        self._streams.add_sse(self, self._connection)
        self._resume(seen)
        if watch.prefixes:
            self._delivery.watch_prefixes(self._subscriptions)
        self._subscriptions.pump_all()

    def _resume(self, seen: dict[str, int]) -> None:
        """Put the client where it says it was, but never beyond what was sent to it.

        What it does not name begins where the watch began: nothing is skipped because it was lost
        on the way.
        """
        watch, backend = self._watch, self._delivery.backend
        for name, (topic_id, begin) in list(watch.start.items()):
            topic = backend.space(name, watch.key).find(name)
            if topic is None or topic.topic_id != topic_id:
                self.send_gone(name)
                continue
            sent = max(watch.sent.get(name, begin), begin)
            self._subscriptions.follow(topic, min(seen.get(name, begin), sent), self._options)
        for prefix in watch.prefixes:
            for topic in backend.engine.topics.list(prefix, None):
                self._subscriptions.appeared(topic)

    # -- what the subscriptions ask

    @property
    def has_room(self) -> bool:
        return not self._connection.paused

    def send_batch(self, name: str, batch: Batch, *, caught_up: bool) -> None:
        sent = self._watch.sent
        sent[name] = max(sent.get(name, 0), batch.next_from_seq)
        if batch.tombstone is not None:
            gap = msgspec.json.encode(batch.tombstone)
            data = b'{"topic":%b,%b' % (msgspec.json.encode(name), gap[1:])
            self._send(sse.event(b"tombstone", data))
            sent[name] = batch.next_from_seq  # a topic made again counts from its beginning
        if batch.count:
            self._send(self._record_event(name, batch))
        if caught_up:
            data = b'{"topic":%b,"seq":%d,"head_seq":%d}' % (
                msgspec.json.encode(name),
                batch.next_from_seq,
                batch.head_seq,
            )
            self._send(sse.event(b"caught-up", data, self._cursor()))

    def _record_event(self, name: str, batch: Batch) -> bytes:
        alone = len(self._subscriptions) == 1
        if alone and batch.event is not None:
            return batch.event
        if batch.message is None:
            batch.message = sse.data_lines(
                b'{"topic":%b,"records":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d}'
                % (
                    msgspec.json.encode(name),
                    batch.records,
                    batch.from_seq,
                    batch.next_from_seq,
                    batch.head_seq,
                )
            )
        event = sse.frame(b"record", batch.message, self._cursor())
        if alone:
            batch.event = event
        return event

    def send_gone(self, name: str) -> None:
        self._watch.start.pop(name, None)
        self._watch.sent.pop(name, None)
        self._send(sse.json_event(b"topic-deleted", {"topic": name}))

    def send_error(self, error: HeadwaterError) -> None:
        self._send(sse.json_event(b"error", {"code": error.code, "message": str(error)}))
        self.end()

    def adopt(self, topic: Partition) -> bool:
        """A topic made since the watch was opened is followed from its first record."""
        covered = self._watch.covers(topic)
        if covered:
            self._watch.start[topic.name] = (topic.topic_id, 0)
            self._subscriptions.follow(topic, 0, self._options)
        return covered

    def _cursor(self) -> bytes | None:
        """None when there are too many topics for a header: the client keeps an earlier one."""
        cursor = sse.encode_cursor(
            {name: seq for name, seq in self._subscriptions.cursors() if seq}
        )
        return cursor if len(cursor) <= sse.CURSOR_BYTES_MAX else None

    # -- silence, and the end

    def beat(self, now_us: int) -> None:
        if now_us - self._sent_us >= self._watch.heartbeat_us and self.has_room:
            self._send(sse.heartbeat(self._streams.wall_ms()))

    def _send(self, frame: bytes) -> None:
        self._sent_us = self._streams.now_us()
        self._connection.send(frame)

    def end(self) -> None:
        """The server ends the stream; the client may come back with its cursor."""
        self._close()
        self._connection.close()

    def _close(self) -> None:
        if self._subscriptions.ended:
            return
        self._subscriptions.end()
        self._watch.streams -= 1
        self._sessions.touch(self._watch)
        self._streams.remove_sse(self, self._watch.key)
