"""Reads from all connections that were sent something, together, once for each turn of the loop.

An event loop calls once for every socket, and takes the interpreter anew for each of these calls.
That is nothing as long as nobody else wants it; beside a thread that computes, a checkpoint for
example, every call waits for a switch, and fifty connections wait for fifty of them. Here sockets
are asked by one compiled function that needs no interpreter, and the loop is called once.

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
READS_MAX: Final = 512
QUIET_US: Final = 60
LONGEST_US: Final = 500
"""How long the loop waits for those who were answered together and are expected back together: as
long as one comes after the other within the first, and not longer than the second."""
DOUBT_TURNS_MIN: Final = 8
DOUBT_TURNS_MAX: Final = 512
"""For so many answers nobody is waited for, after those who were expected did not come."""

Received = list[tuple[int, bytes | None]]


class Receiver(Protocol):
    def data_received(self, data: bytes) -> None: ...

    def read_by_transport(self) -> None:
        """There is something that is no data. Read yourself."""

    def broken_by(self, error: Exception) -> None:
        """Taking the data failed, which is a mistake of ours."""


class Intake:
    """Belongs to one event loop and is used on its thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after_turn: Callable[[], None]) -> None:
        self._loop = loop
        self._after_turn = after_turn
        self._receivers: dict[int, Receiver] = {}
        self._epoll: select.epoll | None = None
        """None as long as nobody came to be read."""
        self._room = bytearray()
        self._expected = 0
        self._doubt_turns = 0
        self._doubted = 0

    def __len__(self) -> int:
        return len(self._receivers)

    def add(self, descriptor: int, receiver: Receiver) -> None:
        """Read this socket from now on. Its transport must not."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._room = bytearray(ROOM_BYTES)
            self._loop.add_reader(self._epoll.fileno(), self._take_turn)
        self._receivers[descriptor] = receiver
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Read it no more; nothing is done where it was not read."""
        if self._receivers.pop(descriptor, None) is not None and self._epoll is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
            self._receivers.clear()

    def expect(self, count: int) -> None:
        """So many were answered at once. Writers who wait for their answers come back together, and
        what comes together is one append; if the last ones did not, these are not expected to."""
        if self._doubt_turns:
            self._doubt_turns -= 1
        elif count > 1:
            self._expected += count

    def _receive(self, epoll: select.epoll) -> Received:
        wanted, self._expected = self._expected, 0
        received = receive(epoll, self._room, EACH_BYTES_MAX, wanted, QUIET_US, LONGEST_US)
        if wanted and len(received) < wanted // 2:
            self._doubted = min(max(2 * self._doubted, DOUBT_TURNS_MIN), DOUBT_TURNS_MAX)
            self._doubt_turns = self._doubted
        elif wanted:
            self._doubted = 0
        return received

    def _take_turn(self) -> None:
        if self._epoll is None:
            return
        receivers = self._receivers
        for descriptor, data in self._receive(self._epoll):
            receiver = receivers.get(descriptor)
            if receiver is None:
                continue  # it left while those before it were dealt with
            try:
                if data is not None:
                    receiver.data_received(data)
                else:
                    self.remove(descriptor)
                    receiver.read_by_transport()
            except Exception as error:  # the others of this turn have sent something too
                receiver.broken_by(error)
        self._after_turn()


def receive(
    epoll: select.epoll,
    room: bytearray,
    each_max: int,
    wanted: int = 0,
    quiet_us: int = 0,
    longest_us: int = 0,
) -> Received:
    """Read once from every socket that is ready, as long as there is room for `each_max` bytes.
    With fewer than `wanted` of them, wait for more until nobody came for `quiet_us`, and
    for `longest_us` at most.

    Without a compiler nobody is waited for: there is no waiting for less than a millisecond then.
    None instead of bytes says that a socket has ended or is broken, and nothing more is read then.
    One that had nothing after all is not mentioned.
    """
    if _native is not None:
        received: Received = _native.receive(
            epoll.fileno(), room, each_max, wanted, quiet_us, longest_us
        )
        return received
    if not 1 <= each_max <= len(room):
        raise ValueError(f"{each_max} bytes of each do not fit into {len(room)}")
    found: Received = []
    left = len(room)
    for descriptor, _ in epoll.poll(0, READS_MAX):
        if left < each_max:
            break
        with contextlib.suppress(BlockingIOError, InterruptedError):
            data = _read(descriptor, each_max)
            found.append((descriptor, data))
            left -= len(data or b"")
            if data is None:
                break  # its end is told before anything is read from it again
    return found


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
