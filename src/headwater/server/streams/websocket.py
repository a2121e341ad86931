"""GET /v0/ws: subscribe and publish over a WebSocket.

The protocol itself is the sans-I/O one of `websockets`; here are the operations. At most a few
messages wait for the socket: a record is rendered only when there is room for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

import msgspec
from websockets.exceptions import InvalidState, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from headwater.core.errors import HeadwaterError, InvalidRequestError, OverloadedError
from headwater.core.results import Appended
from headwater.engine.owner import Pending
from headwater.engine.partition import Partition
from headwater.engine.topics.operations import diff_request, ensure_loaded
from headwater.model.match import parse_match
from headwater.server.access.keys import ApiKey, Scope
from headwater.server.failures import logged, unforeseen
from headwater.server.http.exchange import Exchange
from headwater.server.http.topic_handlers import require_named
from headwater.server.http.write_handler import encode_request
from headwater.server.streams.delivery import Batch, Delivery, ReadOptions
from headwater.server.streams.topic_subscriptions import TopicSubscriptions
from headwater.wire.frames import Projection
from headwater.wire.http_errors import HttpError
from headwater.wire.requests import WriteRequest
from headwater.wire.websocket import Publish, Subscribe, Unsubscribe, WebSocketPing, decode_message

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
MESSAGE_BYTES: Final = 262_144
"""The outbound queue is counted in bytes: so many for each of its messages."""
PING_AFTER_US: Final = 20_000_000
PART_BYTES: Final = 64
"""What holding a fragment costs beside its bytes."""
_SWITCHING: Final = 101
_GOING_AWAY: Final = 1001
_NOT_TEXT: Final = 1007
_TOO_BIG: Final = 1009
_OUR_FAULT: Final = 1011


def upgrade(delivery: Delivery, exchange: Exchange, rest: bytes) -> None:
    """Answer the handshake and hand the connection over."""
    if exchange.connection.is_waiting:
        raise InvalidRequestError("a WebSocket cannot stand behind requests not yet answered")
    delivery.streams.admit(exchange.key)
    socket = WebSocket(delivery, exchange)
    try:
        socket.handshake()
    except BaseException:
        delivery.streams.give_back(exchange.key)
        raise
    socket.begin(rest)


class WebSocket(asyncio.Protocol):
    def __init__(self, delivery: Delivery, exchange: Exchange) -> None:
        self._backend = delivery.backend
        self._streams = delivery.streams
        self._connection = exchange.connection
        self._exchange = exchange
        self._key: ApiKey = exchange.key
        self._protocol = ServerProtocol(max_size=MESSAGE_BYTES_MAX)
        self._subscriptions = TopicSubscriptions(delivery, exchange, self)
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._loading = False
        """The topic of a publication is being read from its files."""
        self._held: deque[bytes] = deque()
        """Messages behind that publication."""
        self._received_us = self._streams.now_us()
        self._pinged_us = self._received_us

    # -- the protocol

    def handshake(self) -> None:
        """Let the library read the request once more and answer it, or refuse it as any other."""
        exchange, protocol = self._exchange, self._protocol
        # Without the key, in query and headers: the library may log what it reads.
        lines = [b"GET %b HTTP/1.1" % exchange.path]
        lines += [
            b"%b: %b" % item for item in exchange.headers.items() if item[0] != b"authorization"
        ]
        protocol.receive_data(b"\r\n".join(lines) + b"\r\n\r\n")
        responses = [
            protocol.accept(event)
            for event in protocol.events_received()
            if isinstance(event, Request)
        ]
        if not responses or responses[0].status_code != _SWITCHING:
            why = protocol.handshake_exc
            raise HttpError(
                "invalid_request",
                "not a WebSocket handshake" + (f": {why}" if why is not None else ""),
                headers={"sec-websocket-version": "13"},
            )
        exchange.hand_over()
        protocol.send_response(responses[0])
        self._flush()

    def begin(self, rest: bytes) -> None:
        connection, settings = self._connection, self._streams.settings
        connection.upgraded = self
        connection.on_resumed = self._subscriptions.pump_all
        connection.transport.set_write_buffer_limits(
            high=settings.websocket_queue_messages * MESSAGE_BYTES
        )
        self._streams.add(self)
        if rest:
            self.data_received(rest)

    def data_received(self, data: bytes) -> None:
        self._received_us = self._streams.now_us()
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and not self._subscriptions.ended:
                self._frame(event)
        self._flush()
        if self._protocol.close_expected():
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._close()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return  # pings and closes are answered by the library
        self._parts.append(bytes(frame.data))
        self._parts_bytes += len(frame.data) + PART_BYTES
        if self._parts_bytes > MESSAGE_BYTES_MAX + PART_BYTES:
            self._fail(_TOO_BIG, "message too big")
            return
        if frame.fin:
            message = b"".join(self._parts)
            self._parts, self._parts_bytes = [], 0
            self._message(message)

    def _fail(self, code: int, reason: str) -> None:
        self._protocol.fail(code, reason)
        self._flush()
        self._close()

    def _send(self, message: bytes) -> None:
        if self._subscriptions.ended:
            return
        try:
            self._protocol.send_text(message)
        except (InvalidState, ProtocolError):
            return  # closing already
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.send(data)
            else:
                self._connection.finish()  # the library's sign for the end

    # -- operations

    def _message(self, message: bytes) -> None:
        if self._loading:
            self._held.append(message)
            return
        request_id: Any = None
        try:
            if not message.isascii():
                message.decode("utf-8")  # the library does not check, and payloads are kept as sent
            operation = decode_message(message)
            request_id = operation.request_id
            if isinstance(operation, Subscribe):
                self._subscribe(operation)
            elif isinstance(operation, Unsubscribe):
                self._unsubscribe(operation)
            elif isinstance(operation, Publish):
                self._publish(operation)
            elif isinstance(operation, WebSocketPing):
                self._say("pong", request_id, ts=self._streams.wall_ms())
        except UnicodeDecodeError:
            self._fail(_NOT_TEXT, "not UTF-8")
        except HeadwaterError as error:
            self._say_error(error, request_id)
        except Exception as error:
            failure = unforeseen(self._connection.endpoint.log, "a WebSocket message failed", error)
            if isinstance(failure, OverloadedError):
                self._say_error(failure, request_id)
            else:
                self._fail(_OUR_FAULT, "something went wrong here")

    def _say(self, op: str, request_id: Any = None, **fields: Any) -> None:
        self._send(msgspec.json.encode({"op": op, **fields, "request_id": request_id}))

    def _say_error(self, error: HeadwaterError, request_id: Any = None) -> None:
        extra = {"detail": dict(error.detail)} if error.detail else {}
        self._say("error", request_id, code=error.code, message=str(error), **extra)

    def _subscribe(self, request: Subscribe) -> None:
        self._key.require(Scope.READ)
        starts = request.starts()
        for name in starts:
            self._key.require_name(name)
        # All of them are looked up before any is followed: one missing name refuses the request.
        space, key = self._backend.space, self._key
        topics = [(space(name, key).topic(name), start) for name, start in starts.items()]
        read = diff_request(0, request.limit, request.max_batch_bytes, node=request.node)
        options = ReadOptions(
            Projection(request.include_tags, request.include_meta, request.include_data),
            read.limit,
            read.bytes_max,
            read.nodes,
            None if request.match is None else parse_match(request.match),
        )
        for topic, start in topics:
            cursor = topic.visible_seq if start.tail else start.from_seq or 0
            self._subscriptions.unfollow(topic.name)
            self._subscriptions.follow(topic, cursor, options)
            self._say(
                "subscribed",
                request.request_id,
                topic=topic.name,
                from_seq=cursor,
                head_seq=topic.visible_seq,
                earliest_seq=topic.earliest_seq,
            )
        for topic, _ in topics:
            self._subscriptions.pump(topic)

    def _unsubscribe(self, request: Unsubscribe) -> None:
        if not self._subscriptions.unfollow(request.topic):
            raise InvalidRequestError(f"not subscribed to {request.topic!r}")
        self._say("unsubscribed", request.request_id, topic=request.topic)

    def _publish(self, request: Publish) -> None:
        self._key.require(Scope.WRITE)
        self._key.require_name(request.topic)
        require_named(self._backend, self._key, request.config)
        space = self._backend.space(request.topic, self._key)
        topic = space.find(request.topic)
        if topic is not None and not topic.loaded:
            # Whatever is behind it waits, or records would overtake each other. Nothing more is
            # read for so long, so what waits is what had come already.
            self._loading = True
            self._connection.hold_back(True)
            self._exchange.spawn(self._publish_after_loading(topic, request))
            return
        records = encode_request(
            WriteRequest(records=request.records, node=request.node),
            self._exchange.limits.record_bytes,
        )
        usage = self._exchange.usage
        usage.begin()
        begun_us = self._streams.now_us()
        try:
            write = space.append(
                request.topic,
                records,
                idempotency_key=request.idempotency_key,
                expect_head_seq=request.expect_head_seq,
                create=request.create,
                settings=request.config,
                disable_backpressure=request.disable_backpressure,
            )
        except BaseException:
            usage.end()
            raise

        def answer(done: Pending[Appended]) -> None:
            usage.end()
            if done.error is not None:
                log = self._connection.endpoint.log
                error = logged(log, "a WebSocket publication failed", done.error)
                self._say_error(error, request.request_id)
                return
            result = done.answer()
            total_us = self._streams.now_us() - begun_us
            self._say(
                "ack",
                request.request_id,
                topic=request.topic,
                seqs=list(result.seqs),
                first_seq=result.first_seq,
                last_seq=result.last_seq,
                performance={"server_total_ms": total_us / 1_000},
                head_seq=result.head_seq,
                count=result.records,
                created=result.created,
                deduped=result.deduped,
            )

        if write.done:
            answer(write)
        else:
            write.on_done = answer

    async def _publish_after_loading(self, topic: Partition, request: Publish) -> None:
        try:
            await self._backend.ready_database.drive(ensure_loaded(topic))
            self._publish(request)
        except HeadwaterError as error:
            self._say_error(error, request.request_id)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        """The messages that waited, in their order; one of them may have to wait itself."""
        self._loading = False
        while self._held and not self._loading and not self._subscriptions.ended:
            self._message(self._held.popleft())
        if not self._loading:
            self._connection.hold_back(False)

    # -- what the subscriptions ask

    @property
    def has_room(self) -> bool:
        """Checked before a record is rendered."""
        return not self._connection.paused

    def send_batch(self, name: str, batch: Batch, *, caught_up: bool) -> None:
        topic = msgspec.json.encode(name)
        if batch.tombstone is not None:
            gap = msgspec.json.encode(batch.tombstone)
            self._send(b'{"op":"tombstone","topic":%b,%b' % (topic, gap[1:]))
        if batch.count:
            self._send(
                b'{"op":"record","topic":%b,"records":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d}'
                % (topic, batch.records, batch.from_seq, batch.next_from_seq, batch.head_seq)
            )
        if caught_up:
            self._send(b'{"op":"caught_up","topic":%b,"seq":%d}' % (topic, batch.next_from_seq))

    def send_gone(self, name: str) -> None:
        self._send(msgspec.json.encode({"op": "topic_deleted", "topic": name}))

    def send_error(self, error: HeadwaterError) -> None:
        self._say_error(error)

    def adopt(self, topic: Partition) -> bool:
        return False

    # -- silence, and the end

    def beat(self, now_us: int) -> None:
        """A peer that vanished shows by a ping without an answer."""
        if self._connection.paused:
            return
        if now_us - self._received_us >= 3 * PING_AFTER_US:
            self._connection.transport.abort()
        elif now_us - max(self._received_us, self._pinged_us) >= PING_AFTER_US:
            self._pinged_us = now_us
            self._protocol.send_ping(b"")
            self._flush()

    def end(self) -> None:
        if not self._subscriptions.ended:
            self._fail(_GOING_AWAY, "shutting down")

    def _close(self) -> None:
        if not self._subscriptions.ended:
            self._subscriptions.end()
            self._streams.remove(self)
            self._streams.give_back(self._key)
