"""One end of the channel: what it hands over, what it refuses, and when it tells of pressure."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from headwater.observe.logs import Logger
from headwater.server.gateway.channel import BUFFER_BYTES_MAX, Channel
from headwater.wire.channel import ChannelKind, ChannelReader

PATIENCE_S = 20


class End:
    """A channel over one socket of a pair; a test has the other."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, bytes]] = []
        self.pressure: list[bool] = []
        self.lost = 0
        self.other, self._own = socket.socketpair()

    async def open(self) -> Channel:
        loop = asyncio.get_running_loop()
        channel = Channel(loop, Logger("test"), self._count_loss, self.pressure.append)
        channel.register({ChannelKind.DATA: lambda *frame: self.seen.append(frame)})
        await loop.create_connection(lambda: channel, sock=self._own)
        return channel

    async def open_other(self) -> Channel:
        loop = asyncio.get_running_loop()
        channel = Channel(loop, Logger("test"), lambda: None, lambda _: None)
        await loop.create_connection(lambda: channel, sock=self.other)
        return channel

    def _count_loss(self) -> None:
        self.lost += 1


def run(work: Callable[[End, Channel], Awaitable[Any]]) -> End:
    async def main() -> None:
        channel = await end.open()
        await asyncio.wait_for(work(end, channel), PATIENCE_S)
        channel.abort()
        await until(lambda: end.lost)

    end = End()
    with end.other:
        uvloop.run(main())
    return end


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_frames_of_one_turn_are_sent_together_and_in_order() -> None:
    async def work(end: End, channel: Channel) -> None:
        for stream in range(3):
            channel.send(ChannelKind.DATA, stream, b"x" * stream, flags=4)
        end.other.setblocking(False)
        loop = asyncio.get_running_loop()
        got = ChannelReader().feed(await loop.sock_recv(end.other, 1_000_000))
        assert [(f.stream, f.flags, f.payload) for f in got] == [
            (0, 4, b""),
            (1, 4, b"x"),
            (2, 4, b"xx"),
        ]

    run(work)


def test_a_frame_goes_to_the_handler_of_its_kind() -> None:
    async def work(end: End, channel: Channel) -> None:
        sender = await end.open_other()
        sender.send_parts(ChannelKind.DATA, 7, (b"a", memoryview(b"b")), flags=1)
        await until(lambda: end.seen)
        assert end.seen == [(7, 1, b"ab")]

    run(work)


def test_a_frame_for_the_other_side_ends_the_channel() -> None:
    async def work(end: End, _: Channel) -> None:
        sender = await end.open_other()
        sender.send(ChannelKind.GONE, 1)
        await until(lambda: end.lost)

    assert run(work).seen == []


def test_a_side_that_does_not_read_is_told_of_once_until_it_reads_again() -> None:
    async def work(end: End, channel: Channel) -> None:
        end.other.setblocking(False)
        payload = bytes(BUFFER_BYTES_MAX)
        for stream in range(2):
            channel.send(ChannelKind.DATA, stream, payload)
        await until(lambda: end.pressure)
        assert channel.is_paused
        received = 0
        while end.pressure == [True] or received < 2 * len(payload):
            try:
                received += len(end.other.recv(1 << 20))
            except BlockingIOError:
                await asyncio.sleep(0)

    assert run(work).pressure == [True, False]
