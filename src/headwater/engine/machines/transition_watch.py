"""Watching transitions in this process: those in the log first, then those that come."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.api.machine_requests import Moved, WatchFilter
from headwater.core.driver import HandOver
from headwater.core.errors import ClosedError
from headwater.core.units import US_PER_MS
from headwater.engine.machines.host import MachineSide
from headwater.engine.machines.log_reader import GapReason, LogGap
from headwater.engine.machines.operations import catch_up_operation, open_store
from headwater.engine.machines.responses import decode_content, transition
from headwater.engine.machines.watchers import CatchUpPlan, TransitionEvent, Watched, Watcher
from headwater.engine.operation import AsOwner, WatchOperation, Woken
from headwater.engine.partition import Wakeup
from headwater.wire.machine_answers import GapAnswer


class _Waiters:
    """Wakes who waits for a watcher."""

    def __init__(self) -> None:
        self.waiters: set[Wakeup] = set()

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, set()
        for wakeup in waiters:
            wakeup()


def transition_watch(
    engine: MachineSide, wanted: WatchFilter, from_offset: int | None, idle_ms: int | None
) -> WatchOperation:
    """For ever, until nothing came for a while, or until the database is closed."""
    store = yield from open_store(engine)
    source = _Waiters()

    def begin() -> Watcher:
        watcher = store.watch(wanted, from_offset)
        watcher.on_events = source.wake
        return watcher

    watcher: Watcher = yield AsOwner(begin)
    try:
        plan: CatchUpPlan | None = watcher.catch_up
        while plan is not None:
            caught_up = yield from catch_up_operation(plan)
            yield HandOver(map(_update, caught_up.in_order()))
            plan = caught_up.following
        while True:
            watched: Watched = yield AsOwner(watcher.next)
            if watched.events or watched.missed is not None:
                yield HandOver(_updates(watched))
                continue
            if watcher.closed:
                return
            until_us = None
            if idle_ms is not None:
                until_us = engine.core.clock.monotonic_us() + idle_ms * US_PER_MS
            yield Woken(source, until_us, lambda: watcher.closed or not watcher.is_up_to_date)
            if watcher.is_up_to_date and not watcher.closed:
                return
    except ClosedError:
        return
    finally:
        engine.core.owner.post(watcher.close)


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
