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
from headwater.engine.machines.watchers import CatchUpPlan, TransitionEvent, Watched, Watcher
from headwater.engine.operation import AsOwner, Operation, WatchOperation, Woken
from headwater.engine.partition import Wakeup
from headwater.wire.machine_answers import GapAnswer


def call_operation(engine: MachineSide, call: requests.MachineCall) -> Operation[Any]:
    """What an engine in this process answers."""
    return _ANSWERS[type(call)](engine, call)


def _put(engine: MachineSide, call: requests.PutMachine) -> Operation[Any]:
    return responses.put((yield from operations.put_machine_operation(engine, *call)))


def _get_machine(engine: MachineSide, call: requests.GetMachine) -> Operation[Any]:
    return responses.machine(
        (yield from operations.get_machine_operation(engine, *call)), decode_content
    )


def _list_machines(engine: MachineSide, _call: requests.ListMachines) -> Operation[Any]:
    return responses.machines((yield from operations.list_machines_operation(engine)))


def _draw(engine: MachineSide, call: requests.DrawMachine) -> Operation[Any]:
    return (yield from operations.draw_operation(engine, *call))


def _create(engine: MachineSide, call: requests.CreateInstance) -> Operation[Any]:
    return responses.created((yield from operations.create_instance_operation(engine, call)))


def _get_instance(engine: MachineSide, call: requests.GetInstance) -> Operation[Any]:
    return responses.instance(
        (yield from operations.get_instance_operation(engine, *call)), decode_content
    )


def _list_instances(engine: MachineSide, call: requests.ListInstances) -> Operation[Any]:
    return responses.instances((yield from operations.list_instances_operation(engine, *call)))


def _apply(engine: MachineSide, call: requests.ApplyEvent) -> Operation[Any]:
    return responses.applied(
        (yield from operations.apply_event_operation(engine, call)), decode_content
    )


def _delete(engine: MachineSide, call: requests.DeleteInstance) -> Operation[Any]:
    done = yield from operations.delete_instance_operation(
        engine, call.instance_id, call.idempotency_key
    )
    return responses.deleted(done)


def _migrate(engine: MachineSide, call: requests.MigrateInstance) -> Operation[Any]:
    return responses.migrated((yield from operations.migrate_instance_operation(engine, *call)))


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


def _wal_stats(engine: MachineSide, _call: requests.GetWalStats) -> Operation[Any]:
    return responses.stats((yield from operations.wal_stats_operation(engine)))


def _compact(engine: MachineSide, _call: requests.Compact) -> Operation[Any]:
    return (yield from responses.compact_operation(engine))


_ANSWERS: Final[dict[type, Callable[[MachineSide, Any], Operation[Any]]]] = {
    requests.PutMachine: _put,
    requests.GetMachine: _get_machine,
    requests.ListMachines: _list_machines,
    requests.DrawMachine: _draw,
    requests.CreateInstance: _create,
    requests.GetInstance: _get_instance,
    requests.ListInstances: _list_instances,
    requests.ApplyEvent: _apply,
    requests.DeleteInstance: _delete,
    requests.MigrateInstance: _migrate,
    requests.Batch: _batch,
    requests.ReadHistory: _history,
    requests.SnapshotInstance: _snapshot_instance,
    requests.ReadWal: _read_wal,
    requests.GetWalStats: _wal_stats,
    requests.Compact: _compact,
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
