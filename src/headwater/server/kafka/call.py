"""One request of a Kafka client, from its header to its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from headwater.engine.owner import Pending
from headwater.server.kafka.refusals import refusal
from headwater.server.kafka.users import Principal, SignIn
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.encoding import Chunk
from headwater.wire.kafka.error_codes import ErrorCode
from headwater.wire.kafka.headers import response_frame

R = TypeVar("R")


class Caller(Protocol):
    """What a call, and the handler that answers it, need of the connection it came on."""

    principal: Principal | None
    """On whose behalf it speaks; None before it signed in."""
    sign_in: SignIn | None
    peer: str

    @property
    def address(self) -> tuple[str, int]: ...

    @property
    def is_gone(self) -> bool: ...

    def signed_in(self, principal: Principal) -> None: ...

    def answer_ready(self) -> None:
        """A call has its answer, or needs none."""

    def failed(self, call: Call, error: Exception) -> None:
        """A call went wrong for a reason that was not foreseen: log it and refuse the call."""

    def dropped(self, reason: str) -> None:
        """Something of a produce was not stored, and its sender wants no answer."""

    def drain(self) -> None: ...


class Call:
    """Answered once; what comes after that is ignored."""

    __slots__ = (
        "_gave_up",
        "api",
        "client_id",
        "connection",
        "correlation_id",
        "hurry",
        "response",
        "unsupported",
        "values",
        "version",
    )

    def __init__(
        self,
        connection: Caller,
        api: ApiKey,
        version: int,
        correlation_id: int,
        client_id: str,
        values: dict[str, Any],
        *,
        unsupported: bool = False,
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.values = values
        self.unsupported = unsupported
        """Of a version that gets UNSUPPORTED_VERSION only."""
        self._gave_up = False
        self.response: Sequence[Chunk] | None = None
        """The answer, once there is one."""
        self.hurry: Callable[[], None] | None = None
        """Set by a handler that waits for updates: give up waiting and answer now. Also called when
        the client is gone, so that nothing of a call stays behind."""

    @property
    def principal(self) -> Principal:
        principal = self.connection.principal
        assert principal is not None, "admitted before it was signed in"
        return principal

    @property
    def organisation(self) -> int:
        return self.principal.organisation

    @property
    def is_answered(self) -> bool:
        return self.response is not None

    def answer(self, values: Mapping[str, Any]) -> None:
        if self.response is None:
            try:
                self.response = response_frame(self.api, self.version, self.correlation_id, values)
            except Exception as error:  # a client must not wait for ever
                self._give_up(error)
                return
            self.connection.answer_ready()

    def _give_up(self, error: Exception) -> None:
        """An answer that cannot be written. Neither can the one that says so: then we hang up."""
        if self._gave_up:
            self.answer_nothing()
            self.connection.drain()
        else:
            self._gave_up = True
            self.connection.failed(self, error)

    def answer_nothing(self) -> None:
        """The client wants no answer; its position in the order is free."""
        if self.response is None:
            self.response = ()
            self.connection.answer_ready()

    def refuse(self, code: ErrorCode, message: str | None = None, throttle_ms: int = 0) -> None:
        """Everything requested gets this error; a client that wants no answer is disconnected."""
        if self.api is ApiKey.PRODUCE and self.values["acks"] == 0:
            self.answer_nothing()
            self.connection.dropped(code.name)
            return
        answer = refusal(self.api, self.values, code, message)
        if throttle_ms:
            answer["throttle_time_ms"] = throttle_ms
        self.answer(answer)


class WaitGroup(Generic[R]):
    """Waits for any number of things on their way, then goes on once."""

    __slots__ = ("_finish", "_left")

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._left = 1

    def expect(self, pending: Pending[R], take: Callable[[Pending[R]], None]) -> None:
        """`take` is given what came of it, before the end."""
        self._left += 1

        def done(resolved: Pending[R]) -> None:
            try:
                take(resolved)
            finally:
                self.end()

        if pending.done:
            done(pending)
        else:
            pending.on_done = done

    def end(self) -> None:
        """Called once when everything is expected that will be."""
        self._left -= 1
        if not self._left:
            self._finish()
