"""What all connections and operations of the RCPX port share. Lives on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from headwater.config.server import LimitSettings
from headwater.server.access.access import Access
from headwater.server.connection import NEVER_S, Awaits, Connections, Ports
from headwater.server.machines.transition_follower import TransitionFeed


class RcpxEndpoint:
    def __init__(
        self,
        ports: Ports,
        limits: LimitSettings,
        access: Access,
        feed: TransitionFeed,
        started_us: int,
    ) -> None:
        self.limits = limits
        self.access = access
        self.feed = feed
        self.backend = feed.backend
        self.log = feed.log
        self.connections: Connections = ports.connections(feed.log, {Awaits.REQUEST: NEVER_S})
        self.server_time = ServerTime(ports.clock.wall_ms)
        self._started_us = started_us
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def uptime_us(self) -> int:
        return self.connections.now_us() - self._started_us

    def call_soon(self, work: Callable[[], None]) -> None:
        self.feed.loop.call_soon(work)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """What has to wait for files. Not used by the write path."""
        task = self.feed.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self) -> None:
        """Finish what is under way, then end every connection."""
        await self.connections.drain()
        for task in list(self._tasks):
            task.cancel()


class ServerTime:
    """When an answer was made, as people write it; printed once a millisecond at most."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._time_ms = -1
        self._time = b""
        self._second = -1
        self._second_text = b""

    def now(self) -> bytes:
        now = self._wall_ms()
        if now != self._time_ms:
            self._time_ms = now
            second, ms = divmod(now, 1_000)
            if second != self._second:
                self._second = second
                moment = datetime.fromtimestamp(second, UTC)
                self._second_text = moment.isoformat(timespec="seconds").encode()[:-6]
            self._time = b"%b.%03dZ" % (self._second_text, ms)
        return self._time
