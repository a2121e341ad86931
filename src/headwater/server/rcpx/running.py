"""Operations of the engine for one RCPX request, without a task while they wait for the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.engine.asynchronous import step_on
from headwater.engine.pending import Pending
from headwater.engine.steps import Answered, AsOwner, Step, Steps

if TYPE_CHECKING:
    from headwater.server.quotas import Usage
    from headwater.server.rcpx.connection import RcpxConnection


class Result(NamedTuple):
    """A result as JSON, and the place in the WAL it is about."""

    told: bytes
    wal_offset: int | None = None
    then: Callable[[], None] | None = None
    """Done when it is on its way."""


class Running:
    """Runs at once as far as it can; a task takes over only where a file must be waited for."""

    __slots__ = ("_connection", "_request_id", "_steps", "_usage")

    def __init__(self, steps: Steps[Result]) -> None:
        self._steps = steps

    def begin(self, connection: RcpxConnection, request_id: bytes) -> None:
        self._connection = connection
        self._request_id = request_id
        self._usage: Usage = connection.usage
        try:
            self._usage.begin()
        except HeadwaterError as error:
            connection.ended()
            connection.fail(request_id, error)
            return
        self._carry_on(None)

    def _carry_on(self, pending: Pending[Any] | None) -> None:
        """Go on, at the beginning or with what the log has answered. Never raises."""
        try:
            step = self._steps.send(None) if pending is None else self._told(pending)
            self._run(step)
        except StopIteration as done:
            self._finish(done.value)
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            self._end()
            self._connection.broken(self._request_id, error)

    def _run(self, step: Step) -> None:
        steps = self._steps
        while True:
            if isinstance(step, AsOwner):
                step = step_on(steps, step)
            elif isinstance(step, Answered):
                try:
                    pending = step.start()
                except HeadwaterError as error:
                    step = steps.throw(error)
                    continue
                if not pending.done:
                    pending.on_done = self._carry_on
                    return
                step = self._told(pending)
            else:
                self._connection.spawn(self._later(step))
                return

    def _told(self, pending: Pending[Any]) -> Step:
        if pending.error is not None:
            return self._steps.throw(pending.error)
        return self._steps.send(pending.result)

    async def _later(self, step: Step) -> None:
        try:
            result = await self._connection.app.ready_database.drive_on(self._steps, step)
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            self._end()
            self._connection.broken(self._request_id, error)
        else:
            self._finish(result)

    def _finish(self, result: Result) -> None:
        self._end()
        self._connection.answer(self._request_id, result.told, result.wal_offset)
        if result.then is not None:
            result.then()

    def _fail(self, error: HeadwaterError) -> None:
        self._end()
        self._connection.fail(self._request_id, error)

    def _end(self) -> None:
        self._usage.end()
        self._connection.ended()
