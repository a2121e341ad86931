"""A server whose plain writes go through a channel between a gateway's end and the sequencer's, as
they do with workers; both ends are in this process, and frames wait in a list."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from headwater.engine.async_database import AsyncDatabase
from headwater.observe.logs import Logger
from headwater.server.app import App
from headwater.server.gateway.turn_sender import TurnSender
from headwater.server.http.exchange import Exchange
from headwater.server.http.turn_receiver import GatewayTurns, TurnReceiver
from headwater.server.http.write_batcher import WriteBatcher, take_write
from headwater.wire.channel import ChannelKind


class Wire:
    """Frames of one gateway on their way, both ways."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receiver: TurnReceiver) -> None:
        self._loop = loop
        self.sender: TurnSender | None = None
        self.gateway = GatewayTurns(receiver, self.reply)
        self.turns: list[bytes] = []
        self.replies: list[bytes] = []
        self.is_cut = False
        """Nothing arrives any more."""
        self.held: list[tuple[Any, bytes]] | None = None
        """What would have arrived, while it is held up."""

    def send(self, kind: ChannelKind, stream: int, payload: bytes = b"") -> None:
        assert (kind, stream) == (ChannelKind.TURN, 0)
        self.turns.append(payload)
        self._loop.call_soon(partial(self._arrive, self.gateway.take, payload))

    def reply(self, payload: bytes) -> None:
        assert self.sender is not None
        self.replies.append(payload)
        self._loop.call_soon(partial(self._arrive, self.sender.take_reply, payload))

    def _arrive(self, take: Any, payload: bytes) -> None:
        if self.held is not None:
            self.held.append((take, payload))
        elif not self.is_cut:
            take(payload)

    def let_go(self) -> None:
        held, self.held = self.held or [], None
        for take, payload in held:
            take(payload)


class TurnApp(App):
    def __init__(self, settings: Any, clock: Any, loop: Any, *others: Any) -> None:
        super().__init__(settings, clock, loop, *others)
        log = Logger("test")
        self.wire = Wire(loop, TurnReceiver(self.turn_writer, self.access, log))
        here = self.services[WriteBatcher]
        assert isinstance(here, WriteBatcher)
        self.asked = 0
        """Requests that went by themselves, of those that were to go together."""

        def ask(exchange: Exchange) -> None:
            self.asked += 1
            take_write(here, exchange)

        self.sender = TurnSender(self.access.keys, ask, clock.monotonic_us, log)
        self.wire.sender = self.sender
        batcher = WriteBatcher(self.sender, settings.limits, loop)
        self.dispatcher._take_plain_write = batcher.add

    def serve_from(self, database: AsyncDatabase) -> None:
        super().serve_from(database)
        self.sender.channel = self.wire
