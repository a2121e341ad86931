"""What a connection is, whatever is spoken on it: flow control, deadlines, limits, its end.

HTTP, Kafka and RCPX are subclasses. Each says how bytes become requests and answers become bytes,
what it awaits from its client, and what its last word is to one that is late. The rest is here,
once, for all of them:

- A client that does not take its answers is not read: what it sends stays in its socket. One that
  takes no byte of them for long is disconnected.
- A deadline runs from when something began: a byte now and then does not extend it. Time in which
  the server did not read does not count, nor time in which the client waits for an answer.
- Connections of all protocols share one limit (`Room`), since they share the file descriptors.
- A server that stops takes no more requests, finishes those under way, and ends each connection.

Everything runs on the loop's thread. Nothing here knows the engine: a connection hands a request
to what answers it, and is told when the answer is there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Final, cast

import msgspec

from headwater.config.server import DeadlineSettings
from headwater.core.clock import Clock
from headwater.core.units import MIB, US_PER_S
from headwater.observe.logs import Logger
from headwater.server.access.quotas import Shares
from headwater.server.intake import Intake, Reading

WRITE_BUFFER_BYTES_MAX: Final = MIB
LINGER_S: Final = 2.0
"""How long a refused client may go on sending before it has read why."""
NEVER_S: Final = sys.maxsize / US_PER_S
DRAIN_POLL_S: Final = 0.02


class Awaits(Enum):
    """What the server waits for. Each has one deadline."""

    OPENING = auto()
    """What a client begins with: its first request, signing in, HELLO and AUTH."""
    REQUEST = auto()
    """The next request, from a client that has opened."""
    HEAD = auto()
    """The rest of a head that has begun to come."""
    BODY = auto()
    """The rest of a request that has begun to come."""
    ANSWERS_TAKEN = auto()
    """That it takes what it was sent."""
    REFUSAL_READ = auto()
    """That it reads why it was refused, and stops sending."""
    END = auto()
    """That it takes the rest of its answers; then it is closed."""


DEADLINES: Final[Mapping[Awaits, Callable[[DeadlineSettings], float]]] = {
    Awaits.OPENING: lambda settings: settings.headers_s,
    Awaits.REQUEST: lambda settings: settings.idle_s,
    Awaits.HEAD: lambda settings: settings.headers_s,
    Awaits.BODY: lambda settings: settings.body_s,
    Awaits.ANSWERS_TAKEN: lambda settings: settings.idle_s,
    Awaits.REFUSAL_READ: lambda _settings: LINGER_S,
    Awaits.END: lambda settings: settings.idle_s,
}
"""The setting that ends each wait, where a protocol has no deadline of its own for it."""


class Room:
    """For connections of all protocols together."""

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self.used = 0

    def take(self) -> bool:
        if self.used >= self.connections_max:
            return False
        self.used += 1
        return True

    def give_back(self) -> None:
        self.used -= 1


class Ports(msgspec.Struct, frozen=True):
    """What the connections of all ports of one server share."""

    room: Room
    shares: Shares
    """Of connections, for clients that signed in: they may stay as long as they like."""
    intake: Intake
    clock: Clock
    deadlines: DeadlineSettings

    def connections(
        self, log: Logger, own_deadlines: Mapping[Awaits, float] | None = None
    ) -> Connections:
        """Those of one port. `own_deadlines`: in seconds, where the protocol's differ from
        `DEADLINES`."""
        return Connections(self, log, own_deadlines or {})


class Connections:
    """The open connections of one port."""

    def __init__(self, ports: Ports, log: Logger, own_deadlines: Mapping[Awaits, float]) -> None:
        self._room = ports.room
        self.shares = ports.shares
        self.intake = ports.intake
        self.now_us = ports.clock.monotonic_us
        self.log = log
        self.deadlines_us = {
            awaits: int(own_deadlines.get(awaits, setting(ports.deadlines)) * US_PER_S)
            for awaits, setting in DEADLINES.items()
        }
        self._drain_us = int(ports.deadlines.drain_s * US_PER_S)
        self._open: set[Connection] = set()
        self.is_draining = False
        self.on_changed: Callable[[], None] = _nothing
        """Called when one came or went."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        """As they are now: they may end meanwhile."""
        return iter(tuple(self._open))

    @property
    def connections_max(self) -> int:
        """Of all ports together."""
        return self._room.connections_max

    def add(self, connection: Connection) -> bool:
        """False when there is no room for it."""
        if self.is_draining or not self._room.take():
            return False
        self._open.add(connection)
        self.on_changed()
        return True

    def remove(self, connection: Connection) -> None:
        """Nothing is done for one that was turned away."""
        if connection in self._open:
            self._open.remove(connection)
            self._room.give_back()
            self.on_changed()

    def check_deadlines(self) -> None:
        """Called every so often, half a second apart or so."""
        now_us = self.now_us()
        for connection in self:
            connection.check_deadline(now_us)

    async def drain(self) -> None:
        """Finish what is under way, then end every connection."""
        self.is_draining = True
        for connection in self:
            connection.drain()
        until_us = self.now_us() + self._drain_us
        while self._open and self.now_us() < until_us:
            await asyncio.sleep(DRAIN_POLL_S)
        self.abort()

    def abort(self) -> None:
        for connection in self:
            connection.transport.abort()


def _nothing() -> None:
    """Nobody counts them."""


class Connection(asyncio.Protocol):
    """One client. Defaults stand in the class: most connections never set some of them."""

    transport: asyncio.Transport
    reading: Reading
    is_gone = False
    """The client is, and the transport with it."""
    paused = False
    """It does not take what was sent: nothing more is read or begun until it does."""
    closing = False
    """It begins no more requests."""
    awaits = Awaits.OPENING
    since_us = 0
    """When that wait began."""
    is_within = False
    """A request has begun to come, and is not whole."""
    _comes_back = False
    """It is one that sends request after request, so it is read together with others."""
    _stuck_bytes = 0
    _stuck_since_us = 0
    _holder: bytes | None = None
    """Who has signed in, and is counted for it."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    # -- what a protocol says

    def opened(self) -> None:
        """There was room for it."""

    def lost(self, exc: Exception | None) -> None:
        """It is gone: let go of what waits for it."""

    @property
    def owes_answer(self) -> bool:
        """The client waits for the server, so it cannot be late."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """For more requests than it has sent."""
        raise NotImplementedError

    @property
    def is_streaming(self) -> bool:
        """It is sent what it follows: not to take it for long costs the server only a buffer."""
        return False

    def take_up(self) -> None:
        """The client takes bytes again: go on with what stopped for that."""

    def refuse_waiting(self) -> None:
        """The connection ends: requests that were not begun never will be."""

    def on_late(self, awaits: Awaits) -> None:
        """The deadline is over. The last word, where the protocol has one for this."""
        self.transport.abort()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self.reading = Reading(self.connections.intake, self, self.transport)
        if not self.connections.add(self):
            self.transport.abort()
            return
        self.begin_wait(Awaits.OPENING)
        self.opened()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self.reading.end()
        self.connections.remove(self)
        self._give_back_share()
        self.lost(exc)

    def eof_received(self) -> bool:
        return False  # no client is left to answer

    def pause_writing(self) -> None:
        self.paused = True
        self.set_reading()

    def resume_writing(self) -> None:
        self.paused = False
        self.take_up()
        self.set_reading()

    def broken_by(self, error: Exception) -> None:
        self.connections.log.error("a connection broke", error=repr(error), exc_info=error)
        self.transport.abort()

    # -- reading

    def set_reading(self) -> None:
        """Read, or read no more, as it is now right."""
        if self.is_gone:
            return
        goes_on = not self.paused and self.has_room
        if goes_on == self.reading.goes_on:
            return
        self.reading.set(goes_on)
        if goes_on and self.is_within:
            self.begin_wait(self.awaits)  # no client could have been faster meanwhile

    def share_reading(self) -> None:
        """It comes back with request after request."""
        self._comes_back = True
        if not self.closing:
            self.reading.share()

    # -- whom it is counted for

    def count_for(self, holder: bytes) -> None:
        """It has signed in. 429 when others have to find room too."""
        if self._holder != holder and not self.is_gone:
            self.connections.shares.take(holder)
            self._give_back_share()
            self._holder = holder

    def _give_back_share(self) -> None:
        if self._holder is not None:
            self.connections.shares.give_back(self._holder)
            self._holder = None

    # -- time

    def begin_wait(self, awaits: Awaits) -> None:
        self.awaits, self.since_us = awaits, self.connections.now_us()
        self.is_within = awaits is Awaits.BODY or awaits is Awaits.HEAD

    def note_rest(self, *, is_owed: bool, is_another: bool) -> None:
        """After reading: whether the rest of a request is owed, and that of another than before."""
        if not is_owed:
            if self.is_within:
                self.begin_wait(Awaits.REQUEST)
        elif is_another or not self.is_within:
            self.begin_wait(Awaits.BODY)

    def check_deadline(self, now_us: int) -> None:
        deadlines_us = self.connections.deadlines_us
        if self._is_stuck(now_us, deadlines_us[Awaits.ANSWERS_TAKEN]):
            self.on_late(Awaits.ANSWERS_TAKEN)
        elif now_us - self.since_us >= deadlines_us[self.awaits] and not self._is_excused:
            self.on_late(self.awaits)

    @property
    def _is_excused(self) -> bool:
        return self.owes_answer and self.awaits is not Awaits.END

    def _is_stuck(self, now_us: int, deadline_us: int) -> bool:
        """It has not taken a byte of its answers for so long."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting or waiting != self._stuck_bytes or self.is_streaming:
            self._stuck_bytes, self._stuck_since_us = waiting, now_us
            return False
        return now_us - self._stuck_since_us >= deadline_us

    # -- the end

    def drain(self) -> None:
        """No more requests; what is under way is finished."""
        self.closing = True
        self.refuse_waiting()
        if not self.owes_answer:
            self.close()

    def finish(self) -> None:
        """The last answer is out."""
        self.close()

    def close(self) -> None:
        """Nothing more is read; what was written is still sent, for so long."""
        self.closing = True
        if not self.is_gone:
            self.begin_wait(Awaits.END)
            self.transport.close()
