"""The streams that are open on one server: how many each key has, their heartbeats, their end."""

from __future__ import annotations

from typing import Final, Protocol

from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.server.access.keys import ApiKey
from headwater.server.access.quotas import Quotas
from headwater.server.http.exchange import HttpCaller

FRAME_BYTES: Final = 256
"""The outbound queue is counted in bytes: so many for each of its frames."""


class Stream(Protocol):
    def beat(self, now_us: int) -> None:
        """Called every so often: say something if nothing was said for a while."""

    def end(self) -> None:
        """The server goes."""


class OpenStreams:
    def __init__(self, quotas: Quotas, settings: ServerSettings, clock: Clock) -> None:
        self._quotas = quotas
        self.settings = settings
        self.now_us = clock.monotonic_us
        self.wall_ms = clock.wall_ms
        self._open: set[Stream] = set()
        self.sse_count = 0
        """Those of server-sent events."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, key: ApiKey) -> None:
        """Count one more for this key. 429 when it has as many as it may."""
        self._quotas.open_stream(key)

    def give_back(self, key: ApiKey) -> None:
        """It was admitted, and is over."""
        self._quotas.close_stream(key)

    def add(self, stream: Stream) -> None:
        self._open.add(stream)

    def remove(self, stream: Stream) -> None:
        self._open.discard(stream)

    def add_sse(self, stream: Stream, connection: HttpCaller) -> None:
        """One of server-sent events, whose client takes so many frames before it has to read."""
        connection.transport.set_write_buffer_limits(
            high=self.settings.stream_queue_frames * FRAME_BYTES
        )
        self.add(stream)
        self.sse_count += 1

    def remove_sse(self, stream: Stream, key: ApiKey) -> None:
        self.sse_count -= 1
        self.remove(stream)
        self.give_back(key)

    def heartbeat(self, now_us: int) -> None:
        for stream in list(self._open):
            stream.beat(now_us)

    def close_all(self) -> None:
        for stream in list(self._open):
            stream.end()
