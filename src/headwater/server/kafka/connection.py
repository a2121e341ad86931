"""One connection of a Kafka client.

Requests are begun as they come and answered in their order; there is no task per request. Produces
go side by side. Anything else is begun alone: it sees the effect of what came before it, and what
is behind it waits, as with Kafka. So one client never has more than one answer full of records
under way.

What a client can make us hold is bounded: a request has a limit that is checked before anything
is set aside for it, requests behind those that wait are not begun, and nothing is read while a
client does not take its answers. Deadlines run from when something began.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headwater.server.access.keys import Scope
from headwater.server.access.quotas import KAFKA_USER
from headwater.server.connection import Awaits, Connection
from headwater.server.kafka.api_handlers import handle
from headwater.server.kafka.endpoint import Call, KafkaEndpoint
from headwater.server.kafka.plain_produce import PlainCall, begin_plain
from headwater.server.kafka.users import Principal, SignIn
from headwater.wire.kafka.apis import ADVERTISED, ApiKey, ProtocolError, is_supported, known_api
from headwater.wire.kafka.codec import (
    RequestHeader,
    decode_request,
    read_request_header,
    request_kind,
)
from headwater.wire.kafka.encoding import Chunk
from headwater.wire.kafka.framing import FrameReader
from headwater.wire.kafka.plain import read_plain

JOINED_BYTES_MAX: Final = 64 * 1024
"""Answers up to this length are joined; longer ones are handed over piece by piece."""
STRANGER_REQUEST_BYTES_MAX: Final = 64 * 1024
"""Of a request before its sender is known."""


class KafkaConnection(Connection):
    sign_in: SignIn | None = None
    peer = ""
    _alone = False
    """The last call that was begun is no produce."""
    _corked = False
    _flushing = False
    """Answers are sent when the loop comes round."""

    def __init__(self, endpoint: KafkaEndpoint) -> None:
        super().__init__(endpoint.connections)
        self.endpoint = endpoint
        self.speak_for(endpoint.anyone)
        self._frames = FrameReader(
            STRANGER_REQUEST_BYTES_MAX if self.principal is None else endpoint.request_bytes_max
        )
        self._pending: deque[Call] = deque()
        self._held: deque[memoryview] = deque()
        """Requests that are not begun, behind those that are."""

    @property
    def address(self) -> tuple[str, int]:
        """Where the client reached us: what it can reach again."""
        name = self.transport.get_extra_info("sockname")
        return str(name[0]), int(name[1])

    def speak_for(self, principal: Principal | None) -> None:
        self.principal = principal
        may_write = principal is not None and Scope.WRITE in principal.scopes
        self.writer = principal if may_write else None
        """The same, if it may write: checked for every produce."""

    def signed_in(self, principal: Principal) -> None:
        """429 when others have to find room too."""
        self.count_for(KAFKA_USER + principal.name.encode())
        self.speak_for(principal)
        self._frames.raise_limit(self.endpoint.request_bytes_max)
        self._note_rest(is_another=True)

    # -- what all connections are asked

    @property
    def owes_answer(self) -> bool:
        return bool(self._pending)

    @property
    def has_room(self) -> bool:
        return not self._held

    def opened(self) -> None:
        peer = self.transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        self._await_request()

    def lost(self, exc: Exception | None) -> None:
        self._held.clear()
        self._hurry()
        self._pending.clear()

    def take_up(self) -> None:
        self._begin_held()

    def refuse_waiting(self) -> None:
        self._held.clear()
        self._hurry()

    def on_late(self, awaits: Awaits) -> None:
        if awaits is Awaits.ANSWERS_TAKEN:
            taken = f"it takes nothing of its answers, {self._stuck_bytes} bytes"
            self.endpoint.hung_up(self, taken)
        elif self._stuck_bytes and self.principal is not None:
            return  # it has answers to take, so it need not ask; strangers have no such time
        elif self._frames.pending_bytes:
            self.endpoint.hung_up(self, "half a request, and nothing more in time")
        self.transport.abort()

    # -- asyncio

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self.endpoint.counters.bytes_in += len(data)
        try:
            frames = self._frames.feed(data)
        except ProtocolError as error:
            self._hang_up(error)
            return
        self._note_rest(is_another=len(frames) > 0)
        self._held.extend(frames)
        self._begin_held()

    # -- requests

    def _begin_held(self) -> None:
        """Begin what may be begun, and write what is answered at once in one go."""
        if self._corked:
            return
        while True:
            self._corked = True
            try:
                while self._held and not self.closing and self._may_begin():
                    self._begin(self._held.popleft())
            finally:
                self._corked = False
            self._flush()
            # What was answered at once no longer stands before what is behind it.
            if not self._held or self.closing or not self._may_begin():
                break
        self.set_reading()

    def _may_begin(self) -> bool:
        """The next of those that are held."""
        if self.paused or self._alone or len(self._pending) >= self.endpoint.pipeline_max:
            return False
        return not self._pending or request_kind(self._held[0]) == ApiKey.PRODUCE

    def expect(self, call: Call) -> None:
        """It has its position in the order of answers."""
        self._pending.append(call)
        self._alone = call.api is not ApiKey.PRODUCE

    def _begin(self, frame: memoryview) -> None:
        # The CRC of a client that has not signed in is not worth checking.
        plain = None if self.principal is None else read_plain(frame)
        if plain is not None:
            produce = PlainCall(self.endpoint, self, plain)
            self.expect(produce)
            begin_plain(self.endpoint, produce, self.writer)
            return
        try:
            header = read_request_header(frame)
            call = self._call(header, frame)
        except ProtocolError as error:
            self._hang_up(error)
            return
        self.expect(call)
        handle(self.endpoint, call)

    def _call(self, header: RequestHeader, frame: memoryview) -> Call:
        api, version = known_api(header.api_key), header.api_version
        if api is None:
            raise ProtocolError(f"a request of the unknown kind {header.api_key}")
        client_id = header.client_id or ""
        if is_supported(api, version):
            values = decode_request(api, version, frame, header.body_at)
            return Call(self, api, version, header.correlation_id, client_id, values)
        if api is ApiKey.API_VERSIONS:
            # A request of a future version is answered in the oldest one.
            return Call(self, api, 0, header.correlation_id, client_id, {}, unsupported=True)
        if ADVERTISED[api].oldest <= version <= ADVERTISED[api].newest:
            values = decode_request(api, version, frame, header.body_at)
            return Call(
                self, api, version, header.correlation_id, client_id, values, unsupported=True
            )
        raise ProtocolError(f"a request {api.name} of version {version}, which is not known here")

    # -- answers

    def answer_ready(self) -> None:
        """A call has its answer: send all that are next in order."""
        pending = self._pending
        if self._corked or self._flushing or (pending and pending[0].response is None):
            return
        if len(pending) > 1:
            # What came together is answered together: one write for all that one commit answers.
            self._flushing = True
            self.endpoint.loop.call_soon(self._send_answers)
        else:
            self._send_answers()

    def _send_answers(self) -> None:
        self._flushing = False
        self._flush()
        if self._held:
            self._begin_held()

    def _flush(self) -> None:
        pending = self._pending
        out: list[Chunk] = []
        while pending:
            response = pending[0].response
            if response is None:
                break
            out += response
            pending.popleft()
        if not pending:
            self._alone = False
        if out and not self.is_gone:
            self._write(out)
        if not pending and not self.is_gone:
            if self.closing:
                self.close()
            elif not self.is_within:
                self._await_request()

    def _write(self, chunks: list[Chunk]) -> None:
        length = sum(map(len, chunks))
        self.endpoint.counters.bytes_out += length
        if length <= JOINED_BYTES_MAX:
            self.transport.write(b"".join(chunks))
        else:
            self.transport.writelines(chunks)

    def failed(self, call: Call, error: Exception) -> None:
        self.endpoint.broken(call, error)

    def dropped(self, reason: str) -> None:
        self.endpoint.dropped(self, reason)

    def _hurry(self) -> None:
        """What waits for updates is answered now."""
        for call in list(self._pending):
            if call.hurry is not None:
                call.hurry()

    def _hang_up(self, error: ProtocolError) -> None:
        self.endpoint.hung_up(self, str(error))
        self.drain()

    # -- time

    def _note_rest(self, *, is_another: bool) -> None:
        if self.principal is not None:
            self.note_rest(is_owed=self._frames.pending_bytes > 0, is_another=is_another)

    def _await_request(self) -> None:
        if self.principal is not None:  # requests before signing in do not extend its deadline
            self.begin_wait(Awaits.REQUEST)
