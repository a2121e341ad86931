"""The awaitable client: the calls of `headwater.open_async`, over HTTP."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

from headwater.api.async_face import AsyncFace
from headwater.api.async_machines import AsyncMachines
from headwater.api.call_list import ApiCall, WatchingCall
from headwater.client.call_operations import operation_of, watch_of
from headwater.client.http import Address, AsyncHttp, AsyncOpenStream
from headwater.client.machine_http import follow_operation, machine_operation
from headwater.client.operations import DEFAULT_URL, Pause, RetryPolicy, Send, Step
from headwater.client.retry import AsyncSleep, Retry, async_sleep
from headwater.client.watch import WatchOperation
from headwater.core.clock import Clock, SystemClock
from headwater.core.driver import drive_awaiting, follow_awaiting
from headwater.core.units import US_PER_S

T = TypeVar("T")


class AsyncClient(AsyncFace):
    """A server, seen from a program with an event loop.

    `token` is the secret of an API key. `timeout_s` is for one attempt; `retry` says how long to
    go on. `sleep`, `clock` and `rng` are for tests.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        ca_file: str | None = None,
        sleep: AsyncSleep | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._address = Address(url, token, timeout_s, ca_file)
        self._http = AsyncHttp(self._address)
        self._policy = RetryPolicy(retry or Retry(), rng or random.SystemRandom())
        self._clock = clock or SystemClock()
        self._sleep = sleep or async_sleep(self._clock)

    def __repr__(self) -> str:
        return f"AsyncClient({self._address!r})"

    @property
    def machines(self) -> AsyncMachines:
        """State machines: definitions, instances, events."""
        policy = self._policy
        return AsyncMachines(
            lambda call: drive_awaiting(machine_operation(call, policy), self._do),
            lambda wanted, from_offset, idle_ms: self._stream(
                follow_operation(wanted, from_offset, idle_ms, policy)
            ),
        )

    async def close(self) -> None:
        """Give the connections back. May be called twice."""
        await self._http.close()

    # -- carrying calls out

    async def _call(self, call: ApiCall[T]) -> T:
        return await drive_awaiting(operation_of(call, self._policy), self._do)

    def _follow(self, call: WatchingCall[T]) -> AsyncIterator[T]:
        return self._stream(watch_of(call, self._policy))

    async def _stream(self, operation: WatchOperation) -> AsyncIterator[Any]:
        stream = AsyncOpenStream(self._http, self._do)
        try:
            async with aclosing(follow_awaiting(operation, stream.do)) as items:
                async for item in items:
                    yield item
        finally:
            await stream.close()

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return await self._http.send(step.call)
        if isinstance(step, Pause):
            return await self._sleep(step.seconds)
        return self._clock.monotonic_us() / US_PER_S
