"""How an engine answers each call of machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headwater.api import machine_requests as requests
from headwater.engine.machines import operations, responses
from headwater.engine.machines.host import MachineSide
from headwater.engine.machines.responses import decode_content
from headwater.engine.operation import Operation


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
