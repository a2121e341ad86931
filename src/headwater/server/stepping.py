"""Operations of the engine for one request, without a task while they wait for the log only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headwater.core.errors import HeadwaterError
from headwater.engine.asynchronous import step_on
from headwater.engine.pending import Pending
from headwater.engine.steps import Answered, AsOwner, Step, Steps
from headwater.server.exchange import Exchange

if TYPE_CHECKING:
    from headwater.server.app import App

T = TypeVar("T")


class Operation(Generic[T]):
    """Runs at once as far as it can. What the log answers carries it on; only where a file or
    news must be waited for does a task take over."""

    __slots__ = ("_app", "_counted", "_exchange", "_pending", "_steps", "_then")

    def __init__(
        self, app: App, exchange: Exchange, steps: Steps[T], then: Callable[[T], None]
    ) -> None:
        self._app = app
        self._exchange = exchange
        self._steps = steps
        self._then = then
        self._pending: Pending[Any] | None = None
        self._counted = False

    def begin(self, *, quits: bool = False) -> None:
        """Raises what goes wrong at once. `quits`: given up when the client goes away."""
        usage = self._exchange.head.usage
        assert usage is not None
        usage.begin()
        self._counted = True
        try:
            self._run(self._steps.send(None))
        except StopIteration as done:
            self._finish(done.value)
        except BaseException:
            self._discount()
            raise
        if quits and self._pending is not None:
            self._exchange.on_gone = self._quit

    def _run(self, step: Step) -> None:
        steps = self._steps
        while True:
            if isinstance(step, AsOwner):
                step = step_on(steps, step)
            elif isinstance(step, Answered):
                try:
                    pending = step.start()
                except BaseException as error:
                    step = steps.throw(error)
                    continue
                if not pending.done:
                    self._pending = pending
                    pending.on_done = self._heard
                    return
                step = self._told(pending)
            else:
                self._exchange.on_gone = None  # the task has its own way to end
                self._app.spawn(self._exchange, self._later(step))
                return

    def _told(self, pending: Pending[Any]) -> Step:
        if pending.error is not None:
            return self._steps.throw(pending.error)
        return self._steps.send(pending.result)

    def _heard(self, pending: Pending[Any]) -> None:
        """The log has answered. Called by the engine, which must not hear of our errors."""
        self._pending = None
        try:
            self._run(self._told(pending))
        except StopIteration as done:
            self._finish(done.value)
        except HeadwaterError as error:
            self._discount()
            self._exchange.fail(error)
        except Exception as error:
            self._discount()
            self._app.broken(self._exchange, error)

    async def _later(self, step: Step) -> None:
        try:
            result = await self._app.ready_database.drive_on(self._steps, step)
        finally:
            self._discount()
        self._then(result)

    def _finish(self, result: T) -> None:
        self._discount()
        self._then(result)

    def _discount(self) -> None:
        if self._counted:
            self._counted = False
            assert self._exchange.head.usage is not None
            self._exchange.head.usage.end()

    def _quit(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.on_done = None
            self._discount()
            self._steps.close()
