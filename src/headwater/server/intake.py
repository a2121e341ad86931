"""Reads from all connections that were sent something, together, once for each turn of the loop.

An event loop calls once for every socket, and takes the interpreter anew for each of these calls.
That costs nothing as long as no other thread wants it; beside a thread that computes, a checkpoint
for example, every call waits for a switch, and fifty connections wait for fifty of them. Here
sockets are asked by one compiled function that needs no interpreter, and the loop is called once.

A connection that came back with a second request is read from here; what its transport is for
besides reading (writing, ending) stays the transport's. A socket that ends or breaks is given
back to it, so that there is one way in which connections end.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable
from typing import Final, Protocol

from headwater.core.units import KIB, MIB
from headwater.native import compiled

_native: Final = compiled("intake")

EACH_BYTES_MAX: Final = 256 * KIB
ROOM_BYTES: Final = MIB
"""What is read in one turn, from all of them. The rest is still there in the next."""
SOCKETS_MAX: Final = 512

Received = list[tuple[int, bytes | None]]


class Receiver(Protocol):
    def data_received(self, data: bytes) -> None: ...

    def broken_by(self, error: Exception) -> None:
        """Taking the data failed, which is a mistake of ours."""


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """Of a socket that carries bytes as they are; -1 where they are sealed first, or where the
    socket is another process's."""
    connected = transport.get_extra_info("socket")
    if connected is None or transport.get_extra_info("ssl_object") is not None:
        return -1
    return int(connected.fileno())


class Reading:
    """How one connection is read: by its transport, or together with others once it came back."""

    __slots__ = (
        "_intake",
        "_transport",
        "descriptor",
        "goes_on",
        "is_over",
        "is_shared",
        "receiver",
    )

    def __init__(
        self, intake: Intake, receiver: Receiver, transport: asyncio.ReadTransport
    ) -> None:
        self._intake = intake
        self._transport = transport
        self.descriptor = descriptor_of(transport)
        """Of a socket that takes bytes as they are; -1 where they are sealed first."""
        self.receiver = receiver
        self.goes_on = True
        self.is_over = False
        self.is_shared = False

    def share(self) -> None:
        """From now on together with others, if it can be."""
        if self.descriptor < 0 or self.is_shared or not self.goes_on:
            return
        self._transport.pause_reading()
        self.is_shared = True
        self._intake.add(self.descriptor, self)

    def end(self) -> None:
        """The connection is no more."""
        self.is_over = True
        if self.is_shared:
            self._intake.remove(self.descriptor)

    def give_back(self) -> None:
        """There is something that is no data: the transport finds out what."""
        self._intake.remove(self.descriptor)
        self.is_shared = False
        if self.goes_on:
            self._transport.resume_reading()

    def set(self, goes_on: bool) -> None:
        if goes_on == self.goes_on:
            return
        self.goes_on = goes_on
        if not self.is_shared:
            self._transport.resume_reading() if goes_on else self._transport.pause_reading()
        elif goes_on:
            self._intake.add(self.descriptor, self)
        else:
            self._intake.remove(self.descriptor)


class Intake:
    """Belongs to one event loop and is used on its thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *after_turn: Callable[[], None]) -> None:
        self._loop = loop
        self.after_turn = list(after_turn)
        """Called in their order when all that was sent was read."""
        self._turn = self._take_turn
        self._readings: dict[int, Reading] = {}
        self._epoll: select.epoll | None = None
        """None until the first connection is shared."""
        self._room = bytearray()

    def __len__(self) -> int:
        return len(self._readings)

    def add(self, descriptor: int, reading: Reading) -> None:
        """Read this socket from now on. Its transport must not."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._room = bytearray(ROOM_BYTES)
            self._loop.add_reader(self._epoll.fileno(), self._turn)
        self._readings[descriptor] = reading
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Read it no more; nothing is done where it was not read."""
        if self._readings.pop(descriptor, None) is not None and self._epoll is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
            self._readings.clear()

    def time_turns(self, timed: Callable[[str, Callable[[], None]], Callable[[], None]]) -> None:
        """Have each turn timed from now on, by what this makes of it under a name."""
        self._turn = timed("requests", self._take_turn)
        if self._epoll is not None:
            self._loop.add_reader(self._epoll.fileno(), self._turn)

    def _take_turn(self) -> None:
        if self._epoll is None:
            return
        received = receive(self._epoll, self._room, EACH_BYTES_MAX)
        # Looked up before any data is handed over: a connection that is paused because of what
        # another one sent has sent this all the same.
        turn = [(self._readings[descriptor], data) for descriptor, data in received]
        for reading, data in turn:
            if reading.is_over:
                continue
            try:
                if data is not None:
                    reading.receiver.data_received(data)
                else:
                    reading.give_back()
            except Exception as error:  # the others of this turn have sent something too
                reading.receiver.broken_by(error)
        for end in self.after_turn:
            end()


def receive(epoll: select.epoll, room: bytearray, each_max: int) -> Received:
    """Read once from every socket that is ready, as long as there is room for `each_max` bytes.

    None instead of bytes says that a socket has ended or is broken. One that had nothing after all
    is not mentioned.
    """
    if _native is not None:
        received: Received = _native.receive(epoll.fileno(), room, each_max)
        return received
    if not 1 <= each_max <= len(room):
        raise ValueError(f"{each_max} bytes of each do not fit into {len(room)}")
    received_now: Received = []
    left = len(room)
    for descriptor, _ in epoll.poll(0, SOCKETS_MAX):
        if left < each_max:
            break
        with contextlib.suppress(BlockingIOError, InterruptedError):
            data = _read(descriptor, each_max)
            left -= len(data or b"")
            received_now.append((descriptor, data))
    return received_now


def _read(descriptor: int, bytes_max: int) -> bytes | None:
    borrowed = socket.socket(fileno=descriptor)
    try:
        return borrowed.recv(bytes_max, socket.MSG_DONTWAIT) or None
    except (BlockingIOError, InterruptedError):
        raise
    except OSError:
        return None
    finally:
        borrowed.detach()
