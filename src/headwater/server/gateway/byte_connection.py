"""A connection whose bytes go to the sequencer as they are: Kafka's and RCPX' classes run there.

Deadlines, limits and sign-in are those classes' business. Here is what needs the socket: TLS, what
the client takes, and that one that takes nothing is disconnected.
"""

from __future__ import annotations

import socket

from headwater.server.connection import Awaits, Connection, Connections
from headwater.server.gateway.forwarder import Outflow, end_connection
from headwater.server.gateway.uplink import Uplink
from headwater.wire.channel import BytePort, ChannelKind, open_payload


class ByteConnection(Connection):
    """Fulfils `ForwardedStream`."""

    owes_answer = True
    """Whether the client is late is for the sequencer to say."""
    _held_back = False
    _is_open = False

    def __init__(self, connections: Connections, uplink: Uplink, port: BytePort) -> None:
        super().__init__(connections)
        self._uplink = uplink
        self._port = port
        self._stream = uplink.next_stream()
        self._outflow = Outflow(uplink, self._stream, self)
        self._early: list[bytes] = []
        """Came before there was a sequencer: the loop begins to read whatever `opened` says."""

    @property
    def has_room(self) -> bool:
        return self._is_open and not (self._held_back or self._uplink.is_pressed)

    def opened(self) -> None:
        connected = self.transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._uplink.is_up:
            self.open()
        else:
            self.set_reading()

    def open(self) -> None:
        """There is a sequencer."""
        if self._is_open or self.is_gone:
            return
        self._is_open = True
        own, peer = (self.transport.get_extra_info(name) for name in ("sockname", "peername"))
        self._uplink.add(self._stream, self)
        self._uplink.send(
            ChannelKind.OPEN, self._stream, open_payload(self._port, own[:2], peer[:2])
        )
        for data in self._early:
            self.data_received(data)
        self._early.clear()
        self.set_reading()

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._early.append(data)
            self.transport.pause_reading()
            return
        self._uplink.send(ChannelKind.DATA, self._stream, data)

    def lost(self, exc: Exception | None) -> None:
        self._uplink.gone(self._stream)

    def take_up(self) -> None:
        self._outflow.report()

    def on_late(self, awaits: Awaits) -> None:
        self.transport.abort()

    # -- what the sequencer says

    def answer(self, answer: bytes, *, closes: bool) -> None:
        raise AssertionError("there are no requests here")

    def page(self, page: bytes, *, closes: bool) -> None:
        raise AssertionError("there are no requests here")

    def begin(self, head: bytes, *, is_upgraded: bool) -> None:
        raise AssertionError("there are no requests here")

    def send(self, data: bytes) -> None:
        if not self.is_gone:
            self.transport.write(data)
            self._outflow.add(len(data))

    def hold_back(self, held_back: bool) -> None:
        self._held_back = held_back
        self.set_reading()

    def limit_buffer(self, size: int) -> None:
        self.transport.set_write_buffer_limits(high=size)

    def report_taken(self) -> None:
        self._outflow.report()

    def end(self, how: ChannelKind) -> None:
        end_connection(self, how)

    def sequencer_lost(self) -> None:
        self.close()
