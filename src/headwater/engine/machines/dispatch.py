"""How an engine answers each call of machines, and how transitions are watched in this process:
those in the log first, then those that come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import Moved, WatchFilter
from headwater.core.driver import HandOver
from headwater.core.errors import ClosedError
from headwater.core.units import US_PER_MS
from headwater.engine.machines import operations, responses
from headwater.engine.machines.host import MachineSide
from headwater.engine.machines.log_reader import GapReason, LogGap
from headwater.engine.machines.operations import catch_up_operation, open_store
from headwater.engine.machines.responses import decode_content, transition
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.watchers import CatchUpPlan, TransitionEvent, Watched, Watcher
from headwater.engine.operation import AsOwner, Operation, WatchOperation, Woken
from headwater.engine.partition import Wakeup
from headwater.wire.machine_answers import GapAnswer

Answers = Callable[[MachineSide, Any], Operation[Any]]


def call_operation(engine: MachineSide, call: requests.MachineCall) -> Operation[Any]:
    """What an engine in this process answers."""
    return _ANSWERS[type(call)](engine, call)


def _changed(respond: Callable[[Any], Any]) -> Answers:
    """A change that is one request, which the call is."""

    def answer(engine: MachineSide, call: Any) -> Operation[Any]:
        return respond((yield from operations.change_operation(engine, call)))

    return answer


def _queried(query: Callable[[MachineStore, Any], Any], respond: Callable[[Any], Any]) -> Answers:
    """A query of what is in memory."""

    def answer(engine: MachineSide, call: Any) -> Operation[Any]:
        result = yield from operations.query_operation(engine, lambda store: query(store, call))
        return respond(result)

    return answer


def _draw(engine: MachineSide, call: requests.DrawMachine) -> Operation[Any]:
    return operations.draw_operation(engine, *call)


def _get_instance(engine: MachineSide, call: requests.GetInstance) -> Operation[Any]:
    return responses.instance(
        (yield from operations.get_instance_operation(engine, *call)), decode_content
    )


def _batch(engine: MachineSide, call: requests.Batch) -> Operation[Any]:
    return responses.batch((yield from operations.batch_operation(engine, *call)), decode_content)


def _history(engine: MachineSide, call: requests.ReadHistory) -> Operation[Any]:
    entries = yield from operations.history_operation(engine, *call)
    return responses.history(call.instance_id, entries, decode_content)


def _snapshot_instance(engine: MachineSide, call: requests.SnapshotInstance) -> Operation[Any]:
    return responses.one_snapshot(
        (yield from operations.snapshot_instance_operation(engine, *call))
    )


def _read_wal(engine: MachineSide, call: requests.ReadWal) -> Operation[Any]:
    page = yield from operations.read_wal_operation(engine, *call)
    return responses.entries(page, decode_content)


_ANSWERS: Final[dict[type, Answers]] = {
    requests.PutMachine: _changed(responses.put),
    requests.GetMachine: _queried(
        lambda store, call: store.get_machine(*call),
        lambda version: responses.machine(version, decode_content),
    ),
    requests.ListMachines: _queried(lambda store, _: store.list_machines(), responses.machines),
    requests.DrawMachine: _draw,
    requests.CreateInstance: _changed(responses.created),
    requests.GetInstance: _get_instance,
    requests.ListInstances: _queried(
        lambda store, call: store.list_instances(*call), responses.instances
    ),
    requests.ApplyEvent: _changed(lambda done: responses.applied(done, decode_content)),
    requests.DeleteInstance: _changed(responses.deleted),
    requests.MigrateInstance: _changed(responses.migrated),
    requests.Batch: _batch,
    requests.ReadHistory: _history,
    requests.SnapshotInstance: _snapshot_instance,
    requests.ReadWal: _read_wal,
    requests.GetWalStats: _queried(lambda store, _: store.wal_stats(), responses.stats),
    requests.Compact: lambda engine, _: responses.compact_operation(engine),
}


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
