"""Runs operations: generators that yield a step, and go on with its result.

An operation is written once, for threads, for event loops and for answers that call back. Whoever
runs it says by a hook how a step is done: `do` gives its result, or LATER when the step has to wait
or is for the caller. An operation sees an error before its caller does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

S = TypeVar("S")
T = TypeVar("T")

LATER: Final = object()
"""What `do` gives for a step whose result is not there yet."""


class Finished(NamedTuple, Generic[T]):
    value: T


class HandOver(NamedTuple):
    """A step: give these to the caller, one by one. Only for those that follow."""

    items: Iterable[Any]


def advance(
    operation: Generator[S, Any, T],
    do: Callable[[S], Any],
    result: Any = None,
    error: BaseException | None = None,
) -> S | Finished[T]:
    """Go on with a result or an error, as far as `do` does the steps: to the end, or to the first
    that is LATER. The only place where an operation is resumed."""
    try:
        step = operation.send(result) if error is None else operation.throw(error)
        while True:
            try:
                result = do(step)
            except BaseException as raised:
                step = operation.throw(raised)
            else:
                if result is LATER:
                    return step
                step = operation.send(result)
    except StopIteration as done:
        return Finished(done.value)
    finally:
        del error  # whose traceback refers to this frame


def _wait_always(_step: object) -> object:
    """As `do`: every step is awaited."""
    return LATER


def drive(operation: Generator[S, Any, T], do: Callable[[S], Any]) -> T:
    """Run an operation whose steps are all done at once, or by a thread that blocks."""
    outcome = advance(operation, do)
    assert isinstance(outcome, Finished), "a step was left for later"
    value: T = outcome.value
    return value


async def drive_async(
    operation: Generator[S, Any, T],
    do: Callable[[S], Any],
    wait: Callable[[S], Awaitable[Any]],
    step: S | None = None,
) -> T:
    """Run an operation, awaiting the steps that `do` leaves for later; from a step on that was
    left so before."""
    outcome: S | Finished[T]
    if step is None:
        outcome = advance(operation, do)
    else:
        outcome = step
    while not isinstance(outcome, Finished):
        outcome = await _awaited(operation, do, wait, outcome)
    value: T = outcome.value
    return value


async def drive_awaiting(operation: Generator[S, Any, T], wait: Callable[[S], Awaitable[Any]]) -> T:
    """Run an operation whose steps are all awaited."""
    return await drive_async(operation, _wait_always, wait)


def follow(
    operation: Generator[Any, Any, Any], do: Callable[[Any], Any]
) -> Generator[Any, None, None]:
    """What an operation hands over, for a thread that blocks. `do` does every other step."""

    def do_or_leave(step: Any) -> Any:
        return LATER if isinstance(step, HandOver) else do(step)

    try:
        while isinstance(outcome := advance(operation, do_or_leave), HandOver):
            yield from outcome.items
        assert isinstance(outcome, Finished), "a step was left for later"
    finally:
        operation.close()


async def follow_async(
    operation: Generator[Any, Any, Any],
    do: Callable[[Any], Any],
    wait: Callable[[Any], Awaitable[Any]],
) -> AsyncGenerator[Any, None]:
    """What an operation hands over, for a coroutine."""

    def do_or_leave(step: Any) -> Any:
        return LATER if isinstance(step, HandOver) else do(step)

    try:
        outcome = advance(operation, do_or_leave)
        while not isinstance(outcome, Finished):
            if isinstance(outcome, HandOver):
                for item in outcome.items:
                    yield item
                outcome = advance(operation, do_or_leave)
            else:
                outcome = await _awaited(operation, do_or_leave, wait, outcome)
    finally:
        operation.close()


def follow_awaiting(
    operation: Generator[Any, Any, Any], wait: Callable[[Any], Awaitable[Any]]
) -> AsyncGenerator[Any, None]:
    """The same, where every step is awaited."""
    return follow_async(operation, _wait_always, wait)


async def _awaited(
    operation: Generator[S, Any, T],
    do: Callable[[S], Any],
    wait: Callable[[S], Awaitable[Any]],
    step: S,
) -> S | Finished[T]:
    try:
        result = await wait(step)
    except BaseException as error:
        return advance(operation, do, error=error)
    return advance(operation, do, result)
