"""The sequencer's side: the channels of all gateways, and what they forward.

A request is dispatched as if it had been parsed here; a connection of another protocol gets the
class that its port has. What was forwarded by a gateway that died is let go of, as after any
client that went away.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol

from headwater.observe.logs import Logger
from headwater.server.access.access import Access
from headwater.server.connection import DRAIN_POLL_S
from headwater.server.gateway.byte_stream import ByteStream
from headwater.server.gateway.channel import Channel
from headwater.server.gateway.forwarded_call import ForwardedCall
from headwater.server.http.dispatcher import Dispatcher
from headwater.server.http.exchange import Exchange
from headwater.server.http.request_head import Head
from headwater.server.http.turn_receiver import GatewayTurns, TurnReceiver
from headwater.server.http.turn_writer import TurnWriter
from headwater.wire.channel import (
    HEADS_MAX,
    REQUEST,
    TAKEN,
    BytePort,
    ChannelError,
    ChannelFlag,
    ChannelKind,
    hello,
    read_head,
    read_hello,
    read_open,
)

_CLOSE: Final = int(ChannelFlag.CLOSE)
_WHOLE: Final = int(ChannelFlag.WHOLE)
_UPGRADE: Final = int(ChannelFlag.UPGRADE)
_PEER: Final = struct.Struct("3i")
_unpack_request: Final = REQUEST.packer.unpack_from

Timed = Callable[[str, Callable[[], None]], Callable[[], None]]
MakeProtocol = Callable[[], asyncio.Protocol | None]
"""For a new connection; None as long as its port is not open."""


class StreamEnd(Protocol):
    """What frames about a stream go to."""

    def data_received(self, data: bytes) -> None: ...

    def taken(self, size: int) -> None: ...

    def end_of_input(self) -> None: ...

    def lost(self) -> None: ...

    def broken(self) -> None: ...


class GatewayLinks:
    """All of them. `start`, and `open_ports` when the engine is there."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        turn_writer: TurnWriter,
        access: Access,
        ports: Mapping[BytePort, MakeProtocol],
        log: Logger,
    ) -> None:
        self.dispatcher = dispatcher
        self.turns = TurnReceiver(turn_writer, access, log)
        self.log = log
        self._ports = ports
        self._links: set[GatewayLink] = set()
        self._waiting: list[tuple[BytePort, ByteStream]] = []
        self._server: asyncio.Server | None = None
        self._timed: Timed | None = None

    async def start(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: GatewayLink(self, loop).channel, sock=listening
        )

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[GatewayLink]:
        return iter(tuple(self._links))

    def add(self, link: GatewayLink) -> None:
        self._links.add(link)

    def remove(self, link: GatewayLink) -> None:
        self._links.discard(link)

    def connect(self, port: BytePort, stream: ByteStream) -> None:
        """Give a connection its protocol, now or when its port is open."""
        make = self._ports.get(port)
        if make is None:
            raise ChannelError(f"there is no port {port.name} here")
        protocol = make()
        if protocol is None:
            stream.hold()
            self._waiting.append((port, stream))
        else:
            stream.begin(protocol)

    def time_turns(self, timed: Timed) -> None:
        """Have what frames bring timed from now on."""
        self._timed = timed

    def run(self, work: Callable[[], None]) -> None:
        work() if self._timed is None else self._timed("requests", work)()

    def open_ports(self) -> None:
        """Recovery is done: connections that came before get their protocols."""
        waiting, self._waiting = self._waiting, []
        for port, stream in waiting:
            self.connect(port, stream)

    async def all_draining(self, wait_s: float) -> None:
        """Until gateways have sent what clients had sent before they were told to stop."""
        await _until(lambda: all(link.is_draining for link in self._links), wait_s)

    async def drain(self, wait_s: float) -> None:
        """Until all gateways have hung up, or so long; then hang up on them."""
        await _until(lambda: not self._links, wait_s)
        self.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in self:
            link.channel.close()


class GatewayLink:
    """The channel of one gateway."""

    def __init__(self, links: GatewayLinks, loop: asyncio.AbstractEventLoop) -> None:
        self._links = links
        self._dispatcher = links.dispatcher
        self._endpoint = links.dispatcher.endpoint
        self._loop = loop
        self._heads: dict[int, Head] = {}
        self._calls: dict[int, ForwardedCall] = {}
        self._streams: dict[int, StreamEnd] = {}
        """All that is open, the calls too."""
        self.channel = Channel(loop, links.log, self._lost, self._set_pressure)
        self.channel.run = links.run
        self.channel.register({ChannelKind.HELLO: self._take_hello})
        self._turns = GatewayTurns(
            links.turns, partial(self.channel.send, ChannelKind.TURN_REPLY, 0)
        )
        self.is_draining = False
        """All that its clients sent before the server was told to stop is here."""
        self.slot = -1
        self.pid = 0

    def _take_hello(self, _stream: int, _flags: int, payload: bytes) -> None:
        self.slot, self.pid = read_hello(payload)
        check_peer(self.channel)
        self.channel.register(
            {
                ChannelKind.HEAD: self._take_head,
                ChannelKind.REQUEST: self._take_request,
                ChannelKind.TURN: self._take_turn,
                ChannelKind.DRAINING: self._take_draining,
                ChannelKind.OPEN: self._take_open,
                ChannelKind.DATA: self._take_data,
                ChannelKind.TAKEN: self._take_taken,
                ChannelKind.GONE: self._take_gone,
                ChannelKind.END_OF_INPUT: self._take_end_of_input,
            }
        )
        self._links.add(self)
        self.channel.send(ChannelKind.HELLO, 0, hello(self.slot, os.getpid()))

    def _take_draining(self, _stream: int, _flags: int, _payload: bytes) -> None:
        self.is_draining = True

    # -- requests

    def _take_head(self, _stream: int, flags: int, payload: bytes) -> None:
        number, method, target, headers = read_head(payload)
        if number >= HEADS_MAX:
            raise ChannelError(f"a head under number {number}")
        self._heads[number] = Head(method, target, headers, keep_alive=not flags & _CLOSE)

    def _take_request(self, stream: int, flags: int, payload: bytes) -> None:
        started_us, behind, number = _unpack_request(payload)
        head = self._heads.get(number)
        if head is None:
            raise ChannelError(f"no head under number {number}")
        body = payload[REQUEST.size :]
        begin = self._upgrade if flags & _UPGRADE else self._begin
        call = ForwardedCall(
            self.channel,
            self._endpoint,
            stream,
            behind > 0,
            begin,
            self._forget,
            reads_files=not flags & _WHOLE,
        )
        call.exchange = Exchange(call, head, body, started_us)
        self._calls[stream] = self._streams[stream] = call
        before = self._calls.get(behind) if behind else None
        if before is not None and before.holds_followers:
            before.hold(call)
        else:
            call.begin()

    def _begin(self, call: ForwardedCall) -> None:
        self._dispatcher.handle(call.exchange)

    def _upgrade(self, call: ForwardedCall) -> None:
        exchange = call.exchange
        exchange.is_slow = True
        rest, exchange.body = bytes(exchange.body), b""
        self._dispatcher.upgrade(exchange, rest)

    def _take_turn(self, _stream: int, _flags: int, payload: bytes) -> None:
        self._turns.take(payload)

    # -- streams

    def _take_open(self, stream: int, _flags: int, payload: bytes) -> None:
        port, own, peer = read_open(payload)
        addresses = {"sockname": own, "peername": peer}
        opened = ByteStream(self.channel, stream, addresses, self._forget)
        self._streams[stream] = opened
        self._links.connect(port, opened)

    def _take_data(self, stream: int, _flags: int, payload: bytes) -> None:
        self._tell(stream, lambda found: found.data_received(payload))

    def _take_taken(self, stream: int, _flags: int, payload: bytes) -> None:
        size = TAKEN.packer.unpack_from(payload)[0]
        self._tell(stream, lambda found: found.taken(size))

    def _take_gone(self, stream: int, _flags: int, _payload: bytes) -> None:
        self._tell(stream, lambda found: found.lost())

    def _take_end_of_input(self, stream: int, _flags: int, _payload: bytes) -> None:
        self._tell(stream, lambda found: found.end_of_input())

    def _tell(self, stream: int, work: Callable[[StreamEnd], None]) -> None:
        """Nothing is done where it was ended here meanwhile. A mistake of ours ends one client's
        connection, as it does without workers, and not those of all others."""
        found = self._streams.get(stream)
        if found is None:
            return
        try:
            work(found)
        except Exception:
            self._links.log.exception("a connection broke")
            found.broken()

    def _forget(self, stream: int) -> None:
        self._streams.pop(stream, None)
        self._calls.pop(stream, None)

    # -- the channel

    def _set_pressure(self, is_pressed: bool) -> None:
        """A gateway that does not read is not read either. It never stops reading for its part, so
        the two cannot wait for each other."""
        self.channel.set_reading(not is_pressed)

    def _lost(self) -> None:
        self._links.remove(self)
        for stream in list(self._streams):
            self._tell(stream, lambda found: found.lost())


async def _until(condition: Callable[[], bool], wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while not condition() and loop.time() < until:
        await asyncio.sleep(DRAIN_POLL_S)


def check_peer(channel: Channel) -> None:
    """The address of the sequencer is no secret; only processes of its own user may speak to it."""
    option = channel.option(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _pid, user, _group = _PEER.unpack(option)
    if user != os.geteuid():
        raise ChannelError(f"a process of user {user} is no gateway of this server")
