"""Operations of the engine for one RCPX request, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.engine.operation import Work
from headwater.server.operation_runner import OperationRunner
from headwater.server.rcpx.caller import RcpxCaller
from headwater.wire.machine_answers import MachineResponse

_encode = msgspec.json.Encoder().encode


class Result(NamedTuple):
    """A result as JSON, with its offset in the WAL."""

    body: bytes
    wal_offset: int | None = None
    then: Callable[[], None] | None = None
    """Done when it is on its way."""


class RcpxRunner(OperationRunner[MachineResponse | Result]):
    __slots__ = ("_connection", "_request_id")

    def __init__(
        self,
        connection: RcpxCaller,
        request_id: bytes,
        operation: Work[MachineResponse | Result],
    ) -> None:
        super().__init__(connection.endpoint.backend, connection.usage, operation)
        self._connection = connection
        self._request_id = request_id

    def _enter(self) -> None:
        self._usage.begin()
        self._connection.under_way += 1

    def _leave(self) -> None:
        self._usage.end()
        self._connection.ended()

    def _succeed(self, result: MachineResponse | Result) -> None:
        answer = self._connection.answer
        if not isinstance(result, Result):
            answer(self._request_id, _encode(result), getattr(result, "wal_offset", None))
            return
        answer(self._request_id, result.body, result.wal_offset)
        if result.then is not None:
            result.then()

    def _fail(self, error: HeadwaterError) -> None:
        self._connection.fail(self._request_id, error)

    def _break(self, error: Exception) -> None:
        self._connection.broken(self._request_id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._connection.endpoint.spawn(work)
