"""Operations of the engine for one request, without a task while they wait for the log only."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from headwater.core.driver import LATER, Finished, advance
from headwater.core.errors import HeadwaterError
from headwater.engine.operation import Answered, Operation, Step, do_as_owner
from headwater.engine.pending import Pending
from headwater.server.backend import Backend

if TYPE_CHECKING:
    from headwater.server.access.quotas import Usage

T = TypeVar("T")


class OneStep(NamedTuple, Generic[T]):
    """An operation that waits for the log once, and for nothing else: without a generator."""

    start: Callable[[], Pending[Any]]
    respond: Callable[[Any], T]
    """Makes the response from what the log answers."""


Work: TypeAlias = Operation[T] | OneStep[T]


class OperationRunner(Generic[T]):
    """Runs at once as far as it can. The log's answer carries it on; a task takes over only where
    it must wait for a file or an update. Each protocol says how it answers."""

    __slots__ = ("_backend", "_operation", "_pending", "_usage")

    def __init__(self, backend: Backend, usage: Usage, operation: Work[T]) -> None:
        self._backend = backend
        self._usage = usage
        self._operation = operation
        self._pending: Pending[Any] | None = None

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
            if isinstance(self._operation, OneStep):
                self._begin_one(self._operation)
                return
            outcome = advance(self._operation, self._do)
            self._wait_for(outcome)
        except BaseException:
            self._leave()
            raise
        if isinstance(outcome, Finished):
            self._leave()
            self._succeed(outcome.value)

    def _begin_one(self, one: OneStep[T]) -> None:
        pending = one.start()
        if pending.done:
            self._on_single_done(pending)
        else:
            self._pending = pending
            pending.on_done = self._on_single_done

    def _on_single_done(self, pending: Pending[Any]) -> None:
        """As `_on_done`, for the only answer there is."""
        self._pending = None
        self._leave()
        one = self._operation
        assert isinstance(one, OneStep)
        try:
            self._succeed(one.respond(pending.answer()))
        except Exception as error:
            self._refuse(error)

    def _do(self, step: Step) -> Any:
        if not isinstance(step, Answered):
            return do_as_owner(step)
        pending = step.start()
        if pending.done:
            return pending.answer()
        self._pending = pending
        pending.on_done = self._on_done
        return LATER

    def _wait_for(self, outcome: Step | Finished[T]) -> None:
        """A task waits for what does not call back."""
        if not isinstance(outcome, (Answered, Finished)):
            self._spawn(self._later(outcome))

    def _on_done(self, pending: Pending[Any]) -> None:
        """The log has answered. Called by the engine, which must not hear of our errors."""
        self._pending = None
        operation = self._operation
        assert not isinstance(operation, OneStep)
        try:
            outcome = advance(operation, self._do, pending.result, pending.error)
            self._wait_for(outcome)
        except Exception as error:
            self._leave()
            self._refuse(error)
        else:
            if isinstance(outcome, Finished):
                self._leave()
                self._finish(outcome.value)

    def _finish(self, result: T) -> None:
        try:
            self._succeed(result)
        except Exception as error:
            self._refuse(error)

    async def _later(self, step: Step) -> None:
        operation = self._operation
        assert not isinstance(operation, OneStep)
        try:
            result = await self._backend.ready_database.driver.drive(operation, step)
        except Exception as error:
            self._leave()
            self._refuse(error)
        except BaseException:
            self._leave()
            raise
        else:
            self._leave()
            self._finish(result)

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, HeadwaterError):
            self._fail(error)
        else:
            self._break(error)
