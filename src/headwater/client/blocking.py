# Generated from client/asynchronous.py by "make twins"; change that file, not this one.
"""The blocking client: the calls of `headwater.open`, over HTTP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any, TypeVar

from headwater.api.call_list import ApiCall, WatchingCall
from headwater.api.face import Face
from headwater.api.machines import Machines
from headwater.client.call_operations import operation_of, watch_of
from headwater.client.http import Address, BlockingHttp, OpenStream
from headwater.client.machine_http import follow_operation, machine_operation
from headwater.client.operations import DEFAULT_URL, Pause, RetryPolicy, Send, Step
from headwater.client.retry import Retry, Sleep, blocking_sleep
from headwater.client.watch import WatchOperation
from headwater.core.clock import Clock, SystemClock
from headwater.core.driver import drive, follow
from headwater.core.units import US_PER_S

T = TypeVar("T")


class Client(Face):
    """A server, seen from a program that may block.

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
        sleep: Sleep | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._address = Address(url, token, timeout_s, ca_file)
        self._http = BlockingHttp(self._address)
        self._policy = RetryPolicy(retry or Retry(), rng or random.SystemRandom())
        self._clock = clock or SystemClock()
        self._sleep = sleep or blocking_sleep(self._clock)

    def __repr__(self) -> str:
        return f"Client({self._address!r})"

    @property
    def machines(self) -> Machines:
        """State machines: definitions, instances, events."""
        policy = self._policy
        return Machines(
            lambda call: drive(machine_operation(call, policy), self._do),
            lambda wanted, from_offset, idle_ms: self._stream(
                follow_operation(wanted, from_offset, idle_ms, policy)
            ),
        )

    def close(self) -> None:
        """Give the connections back. May be called twice."""
        self._http.close()

    # -- carrying calls out

    def _call(self, call: ApiCall[T]) -> T:
        return drive(operation_of(call, self._policy), self._do)

    def _follow(self, call: WatchingCall[T]) -> Iterator[T]:
        return self._stream(watch_of(call, self._policy))

    def _stream(self, operation: WatchOperation) -> Iterator[Any]:
        stream = OpenStream(self._http, self._do)
        try:
            with closing(follow(operation, stream.do)) as items:
                yield from items
        finally:
            stream.close()

    def _do(self, step: Step) -> Any:
        if isinstance(step, Send):
            return self._http.send(step.call)
        if isinstance(step, Pause):
            return self._sleep(step.seconds)
        return self._clock.monotonic_us() / US_PER_S
