"""Operations of the engine for one request, without a task while they wait for the log only."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.core.errors import HeadwaterError
from headwater.engine.drivers import CallbackDriver
from headwater.engine.operation import OneStep, Step, Work
from headwater.server.backend import Backend

if TYPE_CHECKING:
    from headwater.server.access.quotas import Usage

T = TypeVar("T")


class OperationRunner(CallbackDriver[T]):
    """A task takes over only where the operation must wait for a file or an update. Each protocol
    says how it answers."""

    __slots__ = ("_backend", "_usage")

    def __init__(self, backend: Backend, usage: Usage, operation: Work[T]) -> None:
        super().__init__(operation)
        self._backend = backend
        self._usage = usage

    # -- what a surface says

    def _succeed(self, result: T) -> None:
        raise NotImplementedError

    def _fail(self, error: HeadwaterError) -> None:
        raise NotImplementedError

    def _break(self, error: Exception) -> None:
        """An unforeseen error."""
        raise NotImplementedError

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError

    def _enter(self) -> None:
        self._usage.begin()

    def _leave(self) -> None:
        """Exactly once for every `_enter`, before the answer is given."""
        self._usage.end()

    # -- how it runs

    def begin(self) -> None:
        """Raises what goes wrong at once."""
        self._enter()
        try:
            finished = self._start()
        except BaseException:
            self._leave()
            raise
        if finished is not None:
            self._leave()
            self._succeed(finished.value)

    def _wait(self, step: Step) -> None:
        self._spawn(self._later(step))

    async def _later(self, step: Step) -> None:
        operation = self._operation
        assert not isinstance(operation, OneStep)
        try:
            result = await self._backend.ready_database.driver.drive(operation, step)
        except Exception as error:
            self._refuse(error)
        except BaseException:
            self._leave()
            raise
        else:
            self._finish(result)

    def _finish(self, result: T) -> None:
        self._leave()
        try:
            self._succeed(result)
        except Exception as error:
            self._answer(error)

    def _refuse(self, error: Exception) -> None:
        self._leave()
        self._answer(error)

    def _answer(self, error: Exception) -> None:
        if isinstance(error, HeadwaterError):
            self._fail(error)
        else:
            self._break(error)
