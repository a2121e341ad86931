"""Runs operations of the engine for a caller who is the owner, and may not block."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from headwater.core.driver import LATER, Finished, advance
from headwater.core.errors import HeadwaterError
from headwater.engine.operation import Answered, InFiles, Operation, Step, do_as_owner
from headwater.engine.owner import Owner
from headwater.engine.pending import Pending

T = TypeVar("T")


class OwnerDriver:
    """Files are read by `readers`."""

    def __init__(self, owner: Owner, readers: Executor) -> None:
        self._owner = owner
        self._readers = readers

    def begin(self, operation: Operation[T]) -> Pending[T]:
        """As far as it goes at once. What it waits for carries it on."""
        response: Pending[T] = Pending()
        self._run(operation, response)
        return response

    def _run(
        self,
        operation: Operation[T],
        response: Pending[T],
        result: Any = None,
        error: BaseException | None = None,
    ) -> None:
        try:
            outcome = advance(operation, partial(self._do, operation, response), result, error)
        except HeadwaterError as refused:
            response.fail(refused)
        else:
            if isinstance(outcome, Finished):
                response.succeed(outcome.value)

    def _do(self, operation: Operation[T], response: Pending[T], step: Step) -> Any:
        if isinstance(step, InFiles):
            future = self._readers.submit(step.work)
            future.add_done_callback(partial(self._read, operation, response))
        elif isinstance(step, Answered):
            pending = step.start()
            if pending.done:
                return pending.answer()
            pending.on_done = partial(self._on_complete, operation, response)
        else:
            return do_as_owner(step)
        return LATER

    def _on_complete(
        self, operation: Operation[T], response: Pending[T], pending: Pending[Any]
    ) -> None:
        self._run(operation, response, pending.result, pending.error)

    def _read(self, operation: Operation[T], response: Pending[T], future: Future[Any]) -> None:
        error = future.exception()
        result = future.result() if error is None else None
        self._owner.post(lambda: self._run(operation, response, result, error))
