"""How the steps of an operation are done: by a thread that blocks, on an event loop, or by
callbacks on the owner's thread.

Everything that touches domain state runs as the owner; what may wait for files is done by the
caller's thread, or in a small pool, so a slow disk delays only the reader that waits for it (I14).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from headwater.core.clock import Doorbell
from headwater.core.driver import (
    LATER,
    Finished,
    advance,
    drive,
    drive_async,
    follow,
    follow_async,
)
from headwater.core.errors import ClosedError, HeadwaterError
from headwater.core.units import US_PER_MS, US_PER_S
from headwater.engine.operation import (
    Answered,
    AsOwner,
    InFiles,
    OneStep,
    Operation,
    Step,
    WatchOperation,
    Woken,
    Work,
)
from headwater.engine.owner import Owner, Pending, wait_for
from headwater.engine.pressure import PoolMeter
from headwater.engine.state.engine_core import EngineCore

T = TypeVar("T")


def do_as_owner(step: Step) -> Any:
    """For the driver, on the owner's thread: what waits for nothing."""
    return step.work() if isinstance(step, AsOwner) else LATER


class BlockingDriver:
    """Runs operations on the thread of the caller, which is not the owner's."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def drive(self, operation: Operation[T]) -> T:
        return drive(operation, self.do)

    def follow(self, operation: WatchOperation) -> Generator[Any, None, None]:
        return follow(operation, self.do)

    def in_thread(self, work: Callable[[], T]) -> T:
        """For work that must not run as the owner and takes long."""
        return work()

    def close(self) -> None:
        """Nothing is held."""

    def do(self, step: Step) -> Any:
        core = self._core
        if core.closing:
            raise ClosedError("the database is closed")
        if isinstance(step, AsOwner):
            return core.owner.call(step.work)
        if isinstance(step, InFiles):
            return step.work()
        if isinstance(step, Answered):
            return wait_for(core.owner, step.start).answer()
        return self._await_wake(step)

    def _await_wake(self, step: Woken) -> None:
        core = self._core
        doorbell = Doorbell()

        def register() -> bool:
            if step.ready():
                return False
            step.source.waiters.add(doorbell.ring)
            return True

        if core.owner.call(register):
            core.clock.wait(doorbell, step.until_us)
            core.owner.call(lambda: step.source.waiters.discard(doorbell.ring))


class AsyncDriver:
    """Runs operations on the loop that owns the state. `readers` do what may wait for files."""

    def __init__(
        self,
        core: EngineCore,
        pool: PoolMeter,
        loop: asyncio.AbstractEventLoop,
        readers: ThreadPoolExecutor,
    ) -> None:
        self._core = core
        self._pool = pool
        self._loop = loop
        self._readers = readers

    async def drive(self, operation: Operation[T], step: Step | None = None) -> T:
        """Run an operation, awaiting where it waits; from a step on that was left to wait for."""
        return await drive_async(operation, do_as_owner, self._do, step)

    def follow(self, operation: WatchOperation) -> AsyncGenerator[Any, None]:
        return follow_async(operation, do_as_owner, self._do)

    def begin(self, operation: Operation[T]) -> T | Coroutine[Any, Any, T]:
        """Run an operation as far as it waits for nothing: its result, or the rest to await."""
        outcome = advance(operation, do_as_owner)
        if isinstance(outcome, Finished):
            value: T = outcome.value
            return value
        return self.drive(operation, outcome)

    def drive_at_once(self, operation: Operation[T]) -> T | None:
        """Run an operation that waits for nothing; None when it would have to."""
        outcome = advance(operation, do_as_owner)
        if isinstance(outcome, Finished):
            value: T = outcome.value
            return value
        operation.close()
        return None

    async def in_thread(self, work: Callable[[], T]) -> T:
        """For work that must not run as the owner and takes long."""
        return await self._loop.run_in_executor(None, work)

    async def close(self) -> None:
        self._readers.shutdown(wait=False)

    async def _do(self, step: Step) -> Any:
        if self._core.closing:
            raise ClosedError("the database is closed")
        if isinstance(step, InFiles):
            return await self._read(step)
        if isinstance(step, Answered):
            return await self._await_answer(step)
        assert isinstance(step, Woken)
        return await self._await_wake(step)

    async def _read(self, step: InFiles) -> Any:
        now_us = self._core.clock.monotonic_us
        self._pool.began(now_us())
        try:
            return await self._loop.run_in_executor(self._readers, step.work)
        finally:
            self._pool.ended(now_us())

    async def _await_answer(self, step: Answered) -> Any:
        pending = step.start()
        if not pending.done:
            future: asyncio.Future[None] = self._loop.create_future()

            def resolve(_pending: Pending[Any]) -> None:
                if not future.done():
                    future.set_result(None)

            pending.on_done = resolve
            await future
        return pending.answer()

    async def _await_wake(self, step: Woken) -> None:
        if step.ready():
            return
        woken = asyncio.Event()
        step.source.waiters.add(woken.set)
        try:
            # The loop's timers count whole milliseconds from when its turn began, so one may end
            # early: it is given one more, and what is left then is waited for again.
            for _ in range(2):
                timeout = None
                if step.until_us is not None:
                    left_us = step.until_us - self._core.clock.monotonic_us()
                    if left_us <= 0:
                        return
                    timeout = (left_us + US_PER_MS) / US_PER_S
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), timeout)
                    return
        finally:
            step.source.waiters.discard(woken.set)


class CallbackDriver(Generic[T]):
    """Runs one operation as the owner, at once as far as it can: then the answer that it waits for
    carries it on, without a task. Subclasses say what its end means, and how else it can wait."""

    __slots__ = ("_operation", "_pending")

    def __init__(self, operation: Work[T]) -> None:
        self._operation = operation
        self._pending: Pending[Any] | None = None
        """The answer that it waits for."""

    # -- what a subclass says

    def _finish(self, result: T) -> None:
        """Of an operation that has waited."""
        raise NotImplementedError

    def _refuse(self, error: Exception) -> None:
        """An operation that has waited raised this."""
        raise NotImplementedError

    def _wait(self, step: Step) -> None:
        """For what does not call back."""
        raise NotImplementedError

    # -- how it runs

    def _start(self) -> Finished[T] | None:
        """None when something is to carry it on. Raises what goes wrong at once."""
        operation = self._operation
        if not isinstance(operation, OneStep):
            return self._advance(operation)
        answer = self._answer_to(operation.start)
        return None if answer is LATER else Finished(operation.respond(answer))

    def _resume(self, result: Any, error: BaseException | None = None) -> None:
        """Called by the engine, which must not hear of our errors."""
        operation = self._operation
        finished: Finished[T] | None
        try:
            if not isinstance(operation, OneStep):
                finished = self._advance(operation, result, error)
            elif error is None:
                finished = Finished(operation.respond(result))
            else:
                raise error
        except Exception as raised:
            self._refuse(raised)
        else:
            if finished is not None:
                self._finish(finished.value)

    def _advance(
        self, operation: Operation[T], result: Any = None, error: BaseException | None = None
    ) -> Finished[T] | None:
        outcome = advance(operation, self._do, result, error)
        if isinstance(outcome, Finished):
            return outcome
        if not isinstance(outcome, Answered):
            self._wait(outcome)
        return None

    def _do(self, step: Step) -> Any:
        return self._answer_to(step.start) if isinstance(step, Answered) else do_as_owner(step)

    def _answer_to(self, start: Callable[[], Pending[Any]]) -> Any:
        pending = start()
        if pending.done:
            return pending.answer()
        self._pending = pending
        pending.on_done = self._on_done
        return LATER

    def _on_done(self, pending: Pending[Any]) -> None:
        self._pending = None
        self._resume(pending.result, pending.error)


class OwnerDriver:
    """Runs operations for a caller who is the owner, and waits for their answers as for any other.
    Files are read by `readers`."""

    def __init__(self, owner: Owner, readers: Executor) -> None:
        self.owner = owner
        self.readers = readers

    def begin(self, operation: Operation[T]) -> Pending[T]:
        run = _OwnerOperation(self, operation)
        run.begin()
        return run.response


class _OwnerOperation(CallbackDriver[T]):
    __slots__ = ("_driver", "response")

    def __init__(self, driver: OwnerDriver, operation: Operation[T]) -> None:
        super().__init__(operation)
        self._driver = driver
        self.response: Pending[T] = Pending()

    def begin(self) -> None:
        self._resume(None)

    def _finish(self, result: T) -> None:
        self.response.succeed(result)

    def _refuse(self, error: Exception) -> None:
        if not isinstance(error, HeadwaterError):
            raise error
        self.response.fail(error)

    def _wait(self, step: Step) -> None:
        assert isinstance(step, InFiles), "Kafka's clients wait for topics themselves"
        self._driver.readers.submit(step.work).add_done_callback(self._on_read)

    def _on_read(self, future: Future[Any]) -> None:
        error = future.exception()
        result = future.result() if error is None else None
        self._driver.owner.post(lambda: self._resume(result, error))
