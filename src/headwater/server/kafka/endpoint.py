"""One request of a Kafka client, from its header to its answer; and what all connections and
handlers of the open Kafka port share. Lives on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError, OverloadedError
from headwater.engine.kafka.coordinator import Coordinator
from headwater.engine.kafka.joined_store import JoinedStore
from headwater.engine.owner import Pending
from headwater.engine.partition import Repeated
from headwater.engine.pressure import PressureControl
from headwater.observe.logs import Logger
from headwater.server.connection import Awaits, Ports
from headwater.server.failures import unforeseen
from headwater.server.kafka.refusals import code_of, refusal
from headwater.server.kafka.users import ANYONE, Principal, SignIn, Users
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from headwater.wire.kafka.codec import response_frame
from headwater.wire.kafka.encoding import Chunk

if TYPE_CHECKING:
    from headwater.core.durability import Durability
    from headwater.engine.owner import Pending
    from headwater.engine.partition import BatchPartition, Produced
    from headwater.format.kafka.batch import BatchHeader
    from headwater.server.kafka.users import Principal


R = TypeVar("R")
DEADLINES_S: Final = {Awaits.REQUEST: 600.0, Awaits.ANSWERS_TAKEN: 600.0}
"""Clients keep connections for later; ten minutes is what they are used to. A consumer may be at
work on what it has for as long before it reads on."""
HANG_UPS_LOGGED_MAX: Final = 10
"""Lines a tick about connections that made no sense; a flood is counted, not written down."""

T = TypeVar("T")


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


@dataclass(slots=True)
class EndpointCounters:
    requests: list[int] = field(default_factory=lambda: [0] * (max(ApiKey) + 1))
    """By number of the API."""
    bytes_in: int = 0
    bytes_out: int = 0
    records_in: int = 0
    """Those that were stored."""
    records_out: int = 0
    batches_in: int = 0
    hang_ups: int = 0
    produces_dropped: int = 0
    """Requests without acks of which something was not stored."""
    sign_ins_refused: int = 0


class KafkaEndpoint:
    def __init__(
        self,
        settings: ServerSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        store: JoinedStore,
        coordinator: Coordinator,
        readers: Executor,
        pressure_control: PressureControl,
        users: Users,
        ports: Ports,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.loop = loop
        self.store = store
        self.coordinator = coordinator
        self._readers = readers
        self._pressure_control = pressure_control
        self.users = users
        locked = bool(len(self.users) or settings.api_keys)
        self.anyone: Principal | None = None if locked else ANYONE
        """The principal before signing in."""
        self.log = Logger("headwater.kafka")
        self.counters = EndpointCounters()
        self.connections = ports.connections(self.log, DEADLINES_S)
        self.pipeline_max = settings.limits.pipeline
        self.request_bytes_max = settings.limits.kafka_request_bytes
        self.now_us = clock.monotonic_us
        self.port = 0
        self._logged = 0

    # -- connections

    def hung_up(self, connection: Caller, reason: str) -> None:
        """A log line that says why a client was disconnected."""
        self.counters.hang_ups += 1
        self._logged += 1
        if self._logged <= HANG_UPS_LOGGED_MAX:
            self.log.warning("a Kafka client was disconnected", peer=connection.peer, reason=reason)

    def dropped(self, connection: Caller, reason: str) -> None:
        """Something of a produce was not stored, and its sender wants no answer.

        It must not get one, or would take it for that to something else. Like Kafka we hang up,
        which differs from silence: the client connects anew and asks for the state.
        """
        self.counters.produces_dropped += 1
        if not connection.is_gone:
            self.hung_up(connection, f"{reason}, and no answer was wanted")
            connection.drain()

    def tick(self) -> None:
        """Every half second: deadlines of connections, sessions of group members."""
        self._logged = 0
        self.connections.check_deadlines()
        self.coordinator.tick(self.now_us())

    def advertised(self, connection: Caller) -> tuple[str, int]:
        """The address that clients get: as configured, or where this one connected."""
        failure = self.settings.kafka_advertised
        if failure is None:
            return connection.address
        host, _, port = failure.rpartition(":")
        return host.strip("[]"), int(port)

    # -- requests

    def broken(self, call: Call, error: BaseException) -> None:
        failure = unforeseen(
            self.log, "a Kafka request failed", error, api=call.api.name, version=call.version
        )
        is_worth_a_retry = call.api is ApiKey.PRODUCE and isinstance(failure, OverloadedError)
        call.refuse(code_of(failure) if is_worth_a_retry else ErrorCode.UNKNOWN_SERVER_ERROR)

    def read(self, call: Call, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do file work of a call in the pool, and go on here with what came of it."""

        def done(future: asyncio.Future[T]) -> None:
            error = None if future.cancelled() else future.exception()
            try:
                if future.cancelled():
                    call.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                elif error is None:
                    then(future.result())
                elif isinstance(error, HeadwaterError):
                    self.log.error("a Kafka read failed", api=call.api.name, error=str(error))
                    call.refuse(code_of(error), str(error))
                else:
                    self.broken(call, error)
            except Exception as broken:
                self.broken(call, broken)

        future: asyncio.Future[T] = self.loop.run_in_executor(self._readers, work)
        future.add_done_callback(done)

    def append(
        self,
        partition: BatchPartition,
        batch: memoryview,
        durability: Durability,
        header: BatchHeader,
    ) -> Pending[Produced]:
        """Begin to write a batch that was checked. Raises while the server takes no writes."""
        if self._pressure_control.refuses:
            partition.refused(header)
            raise self._pressure_control.refuse()
        return partition.append(batch, durability, header)

    def count_stored(self, produced: Produced, header: BatchHeader) -> None:
        """The log has it; unless it came again, and has been counted before."""
        if not isinstance(produced, Repeated):
            self.counters.batches_in += 1
            self.counters.records_in += header.record_count
