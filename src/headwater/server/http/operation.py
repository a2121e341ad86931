"""An operation of the engine for a request over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headwater.core.errors import HeadwaterError
from headwater.engine.operation import OneStep, Work
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.operation_runner import OperationRunner

T = TypeVar("T")


class HttpOperation(OperationRunner[T]):
    """For a request over HTTP; `then` gets the result."""

    __slots__ = ("_exchange", "_is_counted", "_then")

    def __init__(
        self, backend: Backend, exchange: Exchange, operation: Work[T], then: Callable[[T], None]
    ) -> None:
        super().__init__(backend, exchange.usage, operation)
        self._exchange = exchange
        self._then = then
        self._is_counted = False

    def _enter(self) -> None:
        super()._enter()
        self._is_counted = True

    def _leave(self) -> None:
        if self._is_counted:
            self._is_counted = False
            super()._leave()

    def begin(self, *, quits: bool = False) -> None:
        """Raises what goes wrong at once. `quits`: given up when the client goes away."""
        super().begin()
        if quits and self._pending is not None:
            self._exchange.on_gone = self._quit

    def _succeed(self, result: T) -> None:
        self._then(result)

    def _fail(self, error: HeadwaterError) -> None:
        self._exchange.fail(error)

    def _break(self, error: Exception) -> None:
        self._exchange.broken(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._leave()  # a wait for a job or a file keeps no other request from beginning
        self._exchange.on_gone = None  # the task has its own way to end
        self._exchange.spawn(work)

    def _quit(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.on_done = None
            self._leave()
            if not isinstance(self._operation, OneStep):
                self._operation.close()
