"""The gateway's end of the channel, with a test in place of the sequencer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import uvloop

from headwater.observe.logs import Logger
from headwater.server.gateway.channel import Channel
from headwater.server.gateway.uplink import ForwardedStream, Uplink
from headwater.wire.channel import ChannelKind, hello, read_hello

PATIENCE_S = 20
SLOT = 3


class Sequencer:
    """Takes the channels that gateways open, and notes what comes."""

    def __init__(self) -> None:
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind("")
        self.listening.listen()
        self.channels: list[Channel] = []
        self.slots: list[int] = []
        self.gone: list[int] = []
        self.changes: list[bool] = []

    def accept(self) -> Channel:
        loop = asyncio.get_running_loop()
        channel = Channel(loop, Logger("test"), lambda: None, lambda _: None)

        def greet(_stream: int, _flags: int, payload: bytes) -> None:
            self.slots.append(read_hello(payload)[0])
            channel.send(ChannelKind.HELLO, 0, hello(0, 1))

        channel.register(
            {
                ChannelKind.HELLO: greet,
                ChannelKind.GONE: lambda stream, *_: self.gone.append(stream),
            }
        )
        self.channels.append(channel)
        return channel


class Forwarded:
    """A stream that notes what it is told."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.told: list[object] = []
        self._is_broken = is_broken

    def send(self, data: bytes) -> None:
        if self._is_broken:
            raise RuntimeError("a mistake")
        self.told.append(data)

    def end(self, how: ChannelKind) -> None:
        self.told.append(how)

    def sequencer_lost(self) -> None:
        self.told.append("lost")


def run(work: Callable[[Sequencer, Uplink], Awaitable[Any]]) -> Sequencer:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(sequencer.accept, sock=sequencer.listening)
        uplink = Uplink(
            sequencer.listening.getsockname(),
            SLOT,
            Logger("test"),
            lambda: sequencer.changes.append(uplink.is_up),
            lambda: None,
        )
        running = loop.create_task(uplink.run())
        await until(lambda: uplink.is_up)
        await asyncio.wait_for(work(sequencer, uplink), PATIENCE_S)
        await uplink.close(PATIENCE_S)
        await running
        server.close()
        for channel in sequencer.channels:
            channel.abort()

    sequencer = Sequencer()
    uvloop.run(main())
    return sequencer


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_a_mistake_costs_one_client_its_connection_and_no_other() -> None:
    async def work(sequencer: Sequencer, uplink: Uplink) -> None:
        sick, well = Forwarded(is_broken=True), Forwarded()
        for number, stream in ((1, sick), (2, well)):
            uplink.add(number, cast(ForwardedStream, stream))
            sequencer.channels[0].send(ChannelKind.DATA, number, b"data")
        await until(lambda: well.told and sequencer.gone)
        assert (sick.told, well.told) == ([ChannelKind.ABORT], [b"data"])

    sequencer = run(work)
    assert (sequencer.gone, sequencer.slots) == ([1], [SLOT])


def test_streams_hear_that_the_sequencer_is_lost_and_it_is_up_again_with_the_next() -> None:
    async def work(sequencer: Sequencer, uplink: Uplink) -> None:
        stream = Forwarded()
        uplink.add(1, cast(ForwardedStream, stream))
        sequencer.channels[0].abort()
        await until(lambda: stream.told)
        await until(lambda: uplink.is_up)
        assert stream.told == ["lost"]
        assert len(sequencer.channels) == 2

    assert run(work).changes[:3] == [True, False, True]


def test_frames_about_streams_that_are_gone_are_passed_over() -> None:
    async def work(sequencer: Sequencer, uplink: Uplink) -> None:
        well = Forwarded()
        uplink.add(2, cast(ForwardedStream, well))
        for stream in (1, 2):
            sequencer.channels[0].send(ChannelKind.DATA, stream, b"data")
        sequencer.channels[0].send(ChannelKind.CLOSE, 2)
        sequencer.channels[0].send(ChannelKind.DATA, 2, b"late")
        sequencer.channels[0].send(ChannelKind.HELLO, 0, hello(0, 1))
        await until(lambda: len(well.told) == 2)
        assert well.told == [b"data", ChannelKind.CLOSE]
        assert uplink.is_up

    run(work)
