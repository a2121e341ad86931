"""GET /v0/ws: subscribe and publish over a WebSocket.

The protocol itself is the sans-I/O one of `websockets`; here are the operations. At most a few
messages wait for the socket: a record is rendered only when there is room for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
from websockets.exceptions import InvalidState, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from headwater.core.errors import HeadwaterError, InvalidRequestError, TopicNotFoundError
from headwater.engine.pending import Appended, Pending
from headwater.engine.steps import diff_request, loaded_steps
from headwater.engine.topic import Topic
from headwater.model.match import parse_match
from headwater.server.connection import HttpConnection
from headwater.server.delivery import Batch, Wish
from headwater.server.exchange import Exchange
from headwater.server.keys import ApiKey, Scope
from headwater.server.writing import encode_request
from headwater.wire.render import Projection
from headwater.wire.requests import WriteRequest
from headwater.wire.websocket import Ping, Publish, Subscribe, Unsubscribe, decode_operation

if TYPE_CHECKING:
    from headwater.server.app import App

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
_GOING_AWAY: Final = 1001
_TOO_MUCH: Final = 1008


def open_websocket(_app: App, exchange: Exchange) -> None:
    """A plain GET of this path, without an upgrade."""
    exchange.answer(426, b"", {"upgrade": "websocket", "connection": "upgrade"})


def upgrade(app: App, exchange: Exchange, rest: bytes) -> None:
    """Answer the handshake and hand the connection over."""
    app.quotas.open_stream(app.key_of(exchange))
    socket = WebSocket(app, exchange)
    if socket.handshake():
        exchange.connection.upgraded = socket
        app.delivery.add(socket, [], watches_prefixes=False)
        if rest:
            socket.data_received(rest)
    else:
        app.quotas.close_stream(app.key_of(exchange))


class WebSocket(asyncio.Protocol):
    def __init__(self, app: App, exchange: Exchange) -> None:
        self._app = app
        self._exchange = exchange
        self._key: ApiKey = app.key_of(exchange)
        self._protocol = ServerProtocol(max_size=MESSAGE_BYTES_MAX)
        self._cursors: dict[str, int] = {}
        self._wishes: dict[str, Wish] = {}
        self._caught_up: set[str] = set()
        self._reading: set[str] = set()
        self._parts: list[bytes] = []
        self._ended = False

    @property
    def connection(self) -> HttpConnection:
        return self._exchange.connection

    # -- the protocol

    def handshake(self) -> bool:
        """Let the library read the request once more and answer it. True when it agreed."""
        exchange = self._exchange
        target = exchange.path + (b"?" + exchange.query_bytes if exchange.query_bytes else b"")
        lines = [b"GET %b HTTP/1.1" % target]
        lines += [b"%b: %b" % item for item in exchange.headers.items()]
        self._protocol.receive_data(b"\r\n".join(lines) + b"\r\n\r\n")
        for found in self._protocol.events_received():
            if isinstance(found, Request):
                self._protocol.send_response(self._protocol.accept(found))
        self._flush()
        agreed = self._protocol.handshake_exc is None
        if not agreed:
            self.connection.close()
        return agreed

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        try:
            for found in self._protocol.events_received():
                if isinstance(found, Frame):
                    self._frame(found)
        finally:
            self._flush()
        if self._protocol.close_expected() and not self._ended:
            self._close()
            self.connection.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._close()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return  # pings and closes are answered by the library
        self._parts.append(bytes(frame.data))
        if sum(map(len, self._parts)) > MESSAGE_BYTES_MAX:
            self._protocol.fail(1009, "message too big")
            return
        if frame.fin:
            message, self._parts = b"".join(self._parts), []
            self._message(message)

    def _send(self, message: bytes) -> None:
        if self._ended:
            return
        try:
            self._protocol.send_text(message)
        except (InvalidState, ProtocolError):
            return  # closing already
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.connection.send(data)
            else:
                self.connection.close()  # the library's sign for the end

    # -- operations

    def _message(self, message: bytes) -> None:
        request_id: Any = None
        try:
            operation = decode_operation(message)
            request_id = operation.request_id
            if isinstance(operation, Subscribe):
                self._subscribe(operation)
            elif isinstance(operation, Unsubscribe):
                self._unsubscribe(operation)
            elif isinstance(operation, Publish):
                self._publish(operation)
            elif isinstance(operation, Ping):
                self._say("pong", request_id, ts=self._app.clock.wall_ms())
        except HeadwaterError as error:
            self._say_error(error, request_id)

    def _say(self, op: str, request_id: Any = None, **fields: Any) -> None:
        said = {"op": op, **fields}
        if request_id is not None:
            said["request_id"] = request_id
        self._send(msgspec.json.encode(said))

    def _say_error(self, error: HeadwaterError, request_id: Any = None) -> None:
        self._say("error", request_id, code=error.code, message=str(error))

    def _subscribe(self, wish: Subscribe) -> None:
        self._key.require(Scope.READ)
        self._key.require_name(wish.topic)
        topic = self._app.engine.find(wish.topic)
        if topic is None:
            raise TopicNotFoundError(f"there is no topic {wish.topic!r}")
        read = diff_request(0, wish.limit, wish.max_batch_bytes, node=wish.node)
        self._wishes[wish.topic] = Wish(
            Projection(wish.include_tags, wish.include_meta, wish.include_data),
            read.limit,
            read.bytes_max,
            read.nodes,
            None if wish.match is None else parse_match(wish.match),
        )
        cursor = topic.log.visible_seq if wish.tail else wish.from_seq or 0
        self._cursors[wish.topic] = cursor
        self._caught_up.discard(wish.topic)
        self._app.delivery.follow(self, wish.topic)
        self._say(
            "subscribed",
            wish.request_id,
            topic=wish.topic,
            from_seq=cursor,
            head_seq=topic.log.visible_seq,
        )
        self.pump(topic)

    def _unsubscribe(self, wish: Unsubscribe) -> None:
        if self._cursors.pop(wish.topic, None) is None:
            raise InvalidRequestError(f"not subscribed to {wish.topic!r}")
        del self._wishes[wish.topic]
        self._app.delivery.unfollow(self, wish.topic)
        self._say("unsubscribed", wish.request_id, topic=wish.topic)

    def _publish(self, wish: Publish) -> None:
        self._key.require(Scope.WRITE)
        self._key.require_name(wish.topic)
        topic = self._app.engine.find(wish.topic)
        if topic is not None and not topic.loaded:
            self._app.spawn(self._exchange, self._publish_after_loading(topic, wish))
            return
        records = encode_request(WriteRequest(records=wish.records, node=wish.node))
        write = self._app.engine.append(
            wish.topic,
            records,
            idempotency_key=wish.idempotency_key,
            expect_head_seq=wish.expect_head_seq,
            create=wish.create,
            settings=wish.config,
        )

        def answer(done: Pending[Appended]) -> None:
            if done.error is not None:
                self._say_error(done.error, wish.request_id)
                return
            result = done.answer()
            self._say(
                "ack",
                wish.request_id,
                topic=wish.topic,
                first_seq=result.first_seq,
                last_seq=result.last_seq,
                head_seq=result.head_seq,
                count=result.records,
                created=result.created,
                deduped=result.deduped,
            )

        if write.done:
            answer(write)
        else:
            write.on_done = answer

    async def _publish_after_loading(self, topic: Topic, wish: Publish) -> None:
        try:
            await self._app.ready_database.drive(loaded_steps(self._app.engine, topic))
            self._publish(wish)
        except HeadwaterError as error:
            self._say_error(error, wish.request_id)

    # -- delivery

    def _has_room(self) -> bool:
        """Room for a message is asked for before a record is rendered."""
        waiting = self.connection.transport.get_write_buffer_size()
        queue = self._app.settings.websocket_queue_messages
        return not self.connection.paused and waiting < queue * 262_144

    def pump_all(self) -> None:
        for name in list(self._cursors):
            topic = self._app.engine.find(name)
            if topic is not None:
                self.pump(topic)

    def pump(self, topic: Topic) -> None:
        name = topic.name
        while not self._ended and name not in self._reading and self._has_room():
            if topic.dropped:
                self._topic_gone(name)
                return
            cursor = self._cursors.get(name)
            if cursor is None or (cursor >= topic.log.visible_seq and name in self._caught_up):
                return
            batch = self._app.delivery.read(topic, cursor, self._wishes[name])
            if batch is None:
                self._reading.add(name)
                self._app.spawn(self._exchange, self._read_later(topic, cursor))
                return
            self._take(name, batch)

    async def _read_later(self, topic: Topic, cursor: int) -> None:
        try:
            batch = await self._app.delivery.read_later(topic, cursor, self._wishes[topic.name])
            if not self._ended and topic.name in self._cursors:
                self._take(topic.name, batch)
        except HeadwaterError as error:
            self._say_error(error)
        finally:
            self._reading.discard(topic.name)
        self.pump(topic)

    def _take(self, name: str, batch: Batch) -> None:
        self._cursors[name] = batch.next_from_seq
        topic = msgspec.json.encode(name)
        if batch.tombstone is not None:
            gap = msgspec.json.encode(batch.tombstone)
            self._send(b'{"op":"tombstone","topic":%b,%b' % (topic, gap[1:]))
        if not batch.caught_up:
            self._caught_up.discard(name)
        if batch.count:
            self._send(
                b'{"op":"record","topic":%b,"records":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d}'
                % (topic, batch.records, batch.from_seq, batch.next_from_seq, batch.head_seq)
            )
        if batch.caught_up and name not in self._caught_up:
            self._caught_up.add(name)
            self._send(b'{"op":"caught_up","topic":%b,"seq":%d}' % (topic, batch.next_from_seq))

    def _topic_gone(self, name: str) -> None:
        self._cursors.pop(name, None)
        self._app.delivery.unfollow(self, name)
        self._say("topic_deleted", topic=name)

    def new_topic(self, topic: Topic) -> bool:
        return False

    def beat(self, now_us: int) -> None:
        """The library's pings are enough for a WebSocket."""

    def end(self) -> None:
        if not self._ended:
            self._protocol.send_close(_GOING_AWAY, "shutting down")
            self._flush()
            self._close()
            self.connection.close()

    def _close(self) -> None:
        if not self._ended:
            self._ended = True
            self._app.delivery.remove(self, list(self._cursors))
            self._app.quotas.close_stream(self._key)
