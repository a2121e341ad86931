"""The driver of operations: results, errors, what has to wait, what is handed over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Generator
from typing import Any

import pytest

from headwater.core.driver import (
    LATER,
    Finished,
    HandOver,
    advance,
    drive,
    drive_async,
    follow,
    follow_async,
)

Operation = Generator[Any, Any, Any]


def add(*steps: int | str) -> Operation:
    total = 0
    for step in steps:
        total += yield step
    return total


def do(step: int | str) -> Any:
    """Numbers are done at once; what is text has to wait, and what is empty cannot be done."""
    if step == "":
        raise ValueError("nothing to do")
    return LATER if isinstance(step, str) else step


async def wait(step: int | str) -> int:
    await asyncio.sleep(0)
    return int(do(int(step)))


def mended() -> Operation:
    try:
        return (yield "")
    except ValueError as error:
        return str(error), (yield 7)


def test_an_operation_ends_with_what_it_returns() -> None:
    assert drive(add(1, 2, 3), do) == 6
    assert drive(add(), do) == 0


def test_an_operation_stops_at_the_step_that_has_to_wait_and_goes_on_with_its_result() -> None:
    operation = add(1, "20", 300)
    assert advance(operation, do) == "20"
    assert advance(operation, do, 20) == Finished(321)


def test_an_operation_goes_on_with_the_error_that_it_waited_for() -> None:
    def tried() -> Operation:
        try:
            yield "20"
        except OSError as error:
            return error.args
        return None

    operation = tried()
    assert advance(operation, do) == "20"
    assert advance(operation, do, error=OSError(1)) == Finished((1,))


def test_an_error_of_a_step_is_seen_by_the_operation_before_its_caller() -> None:
    assert drive(mended(), do) == ("nothing to do", 7)
    with pytest.raises(ValueError, match="nothing to do"):
        drive(add(1, ""), do)


def test_waiting_is_awaited_and_the_rest_is_not() -> None:
    waited: list[object] = []

    async def noted(step: int | str) -> int:
        waited.append(step)
        return await wait(step)

    assert asyncio.run(drive_async(add(1, "20", 300, "4000"), do, noted)) == 4321
    assert waited == ["20", "4000"]


def test_a_step_that_was_left_can_be_awaited_by_another() -> None:
    operation = add(1, "20", 300)
    left = advance(operation, do)
    assert asyncio.run(drive_async(operation, do, wait, left)) == 321


def test_an_operation_sees_that_it_was_cancelled_while_it_waited() -> None:
    seen: list[type[BaseException]] = []

    def cleaned_up() -> Operation:
        try:
            yield "20"
        except BaseException as error:
            seen.append(type(error))
            raise

    async def cancel() -> None:
        async def forever(_: object) -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(drive_async(cleaned_up(), do, forever))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert seen == [asyncio.CancelledError]


def handing(closed: Callable[[], None], wait_for: int | str) -> Operation:
    try:
        yield HandOver(["a", "b"])
        yield HandOver([(yield wait_for)])
    finally:
        closed()


def leaving(step: Any) -> Any:
    return LATER if isinstance(step, HandOver) else do(step)


def test_a_watch_hands_over_what_its_operation_gives() -> None:
    assert list(follow(handing(lambda: None, 3), leaving)) == ["a", "b", 3]

    async def collect() -> list[object]:
        return [each async for each in follow_async(handing(lambda: None, "3"), leaving, wait)]

    assert asyncio.run(collect()) == ["a", "b", 3]


def test_a_watch_that_is_given_up_ends_its_operation() -> None:
    ends: list[str] = []
    blocking = handing(
        lambda: ends.append("blocking"), 3
    )  # held here, so that nothing else ends it
    watch = follow(blocking, leaving)
    next(watch)
    watch.close()

    async def give_up() -> None:
        awaited = handing(lambda: ends.append("awaited"), 3)
        watch = follow_async(awaited, leaving, wait)
        await anext(watch)
        await watch.aclose()

    asyncio.run(give_up())
    assert ends == ["blocking", "awaited"]


def test_an_error_that_is_thrown_in_leaves_no_cycle_behind() -> None:
    class Watched(Exception):
        pass

    def fail() -> weakref.ref[Watched]:
        operation = add("1")
        advance(operation, do)
        try:
            advance(operation, do, error=Watched())
        except Watched as error:
            return weakref.ref(error)
        raise AssertionError

    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()
