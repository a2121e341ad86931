"""Watching transitions in this process: by a thread that waits, or by a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from headwater.api.machine_requests import WatchFilter
from headwater.api.machines import Moved
from headwater.core.clock import Doorbell
from headwater.engine.machines.host import MachineSide
from headwater.engine.machines.log_reader import GapReason, LogGap
from headwater.engine.machines.operations import catch_up_operation, open_store
from headwater.engine.machines.responses import decode_content, transition
from headwater.engine.machines.watchers import (
    CatchUpPlan,
    CaughtUp,
    TransitionEvent,
    Watched,
    Watcher,
)
from headwater.engine.operation import Operation
from headwater.wire.machine_answers import GapAnswer


def follow_blocking(
    engine: MachineSide,
    drive: Callable[[Operation[Any]], Any],
    wanted: WatchFilter,
    from_offset: int | None,
    idle_ms: int | None,
) -> Iterator[Moved]:
    owner, clock = engine.core.owner, engine.core.clock
    store = drive(open_store(engine))
    bell = Doorbell()
    watcher = owner.call(lambda: _watcher(store.watch(wanted, from_offset), bell.ring))
    try:
        plan: CatchUpPlan | None = watcher.catch_up
        while plan is not None:
            caught_up: CaughtUp = drive(catch_up_operation(plan))
            yield from map(_update, caught_up.in_order())
            plan = caught_up.following
        while True:
            watched: Watched = owner.call(watcher.next)
            if watched.events or watched.missed is not None:
                yield from _updates(watched)
                continue
            if watcher.closed:
                return
            until = None if idle_ms is None else clock.monotonic_us() + idle_ms * 1_000
            if not clock.wait(bell, until):
                return
    finally:
        owner.call(watcher.close)


async def follow_async(
    engine: MachineSide,
    drive: Callable[[Operation[Any]], Awaitable[Any]],
    wanted: WatchFilter,
    from_offset: int | None,
    idle_ms: int | None,
) -> AsyncIterator[Moved]:
    store = await drive(open_store(engine))
    ready = asyncio.Event()
    watcher = _watcher(store.watch(wanted, from_offset), ready.set)
    try:
        plan: CatchUpPlan | None = watcher.catch_up
        while plan is not None:
            caught_up: CaughtUp = await drive(catch_up_operation(plan))
            for each in caught_up.in_order():
                yield _update(each)
            plan = caught_up.following
        while True:
            watched = watcher.next()
            if watched.events or watched.missed is not None:
                for moved in _updates(watched):
                    yield moved
                continue
            if watcher.closed:
                return
            ready.clear()
            try:
                await asyncio.wait_for(ready.wait(), None if idle_ms is None else idle_ms / 1_000)
            except TimeoutError:
                return
    finally:
        watcher.close()


def _watcher(watcher: Watcher, on_events: Callable[[], None]) -> Watcher:
    watcher.on_events = on_events
    return watcher


def _updates(watched: Watched) -> Iterator[Moved]:
    if watched.missed is not None:
        first, last, count = watched.missed
        yield GapAnswer(first, last, count, GapReason.BEHIND.value)
    yield from map(_moved, watched.events)


def _update(each: TransitionEvent | LogGap) -> Moved:
    if isinstance(each, LogGap):
        return GapAnswer(each.offset, each.resume - 1, None, each.reason.value)
    return _moved(each)


def _moved(event: TransitionEvent) -> Moved:
    return transition(event, decode_content)
