"""All calls of machines, as data, and how an engine answers them.

The blocking and the async API send one of these, so there is one list of calls for threads and for
event loops, embedded and over HTTP. See docs/decisions/0020-machines-have-one-list-of-calls.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from headwater.engine.engine import Engine
from headwater.engine.machines import operations, requests, responses
from headwater.engine.machines.responses import decode_content
from headwater.engine.operation import Operation


class GetMachine(NamedTuple):
    machine: str
    version: int | None


class ListMachines(NamedTuple):
    pass


class DrawMachine(NamedTuple):
    machine: str
    version: int | None
    form: str
    instance_id: str | None


class GetInstance(NamedTuple):
    instance_id: str


class ListInstances(NamedTuple):
    machine: str | None
    state: str | None
    limit: int
    offset: int


class Batch(NamedTuple):
    operations: Sequence[requests.Request]
    mode: str


class ReadHistory(NamedTuple):
    instance_id: str
    limit: int


class SnapshotInstance(NamedTuple):
    instance_id: str


class ReadWal(NamedTuple):
    from_offset: int
    limit: int
    newest: bool = False


class GetWalStats(NamedTuple):
    pass


class Compact(NamedTuple):
    pass


MachineCall = (
    requests.PutMachine
    | GetMachine
    | ListMachines
    | DrawMachine
    | requests.CreateInstance
    | GetInstance
    | ListInstances
    | requests.ApplyEvent
    | requests.DeleteInstance
    | requests.MigrateInstance
    | Batch
    | ReadHistory
    | SnapshotInstance
    | ReadWal
    | GetWalStats
    | Compact
)


def call_operation(engine: Engine, call: MachineCall) -> Operation[Any]:
    """What an engine in this process answers."""
    return _ANSWERS[type(call)](engine, call)


def _put(engine: Engine, call: requests.PutMachine) -> Operation[Any]:
    return responses.put((yield from operations.put_machine_operation(engine, *call)))


def _get_machine(engine: Engine, call: GetMachine) -> Operation[Any]:
    return responses.machine(
        (yield from operations.get_machine_operation(engine, *call)), decode_content
    )


def _list_machines(engine: Engine, _call: ListMachines) -> Operation[Any]:
    return responses.machines((yield from operations.list_machines_operation(engine)))


def _draw(engine: Engine, call: DrawMachine) -> Operation[Any]:
    return (yield from operations.draw_operation(engine, *call))


def _create(engine: Engine, call: requests.CreateInstance) -> Operation[Any]:
    return responses.created((yield from operations.create_instance_operation(engine, call)))


def _get_instance(engine: Engine, call: GetInstance) -> Operation[Any]:
    return responses.instance(
        (yield from operations.get_instance_operation(engine, *call)), decode_content
    )


def _list_instances(engine: Engine, call: ListInstances) -> Operation[Any]:
    return responses.instances((yield from operations.list_instances_operation(engine, *call)))


def _apply(engine: Engine, call: requests.ApplyEvent) -> Operation[Any]:
    return responses.applied(
        (yield from operations.apply_event_operation(engine, call)), decode_content
    )


def _delete(engine: Engine, call: requests.DeleteInstance) -> Operation[Any]:
    done = yield from operations.delete_instance_operation(
        engine, call.instance_id, call.idempotency_key
    )
    return responses.deleted(done)


def _migrate(engine: Engine, call: requests.MigrateInstance) -> Operation[Any]:
    return responses.migrated((yield from operations.migrate_instance_operation(engine, *call)))


def _batch(engine: Engine, call: Batch) -> Operation[Any]:
    return responses.batch((yield from operations.batch_operation(engine, *call)), decode_content)


def _history(engine: Engine, call: ReadHistory) -> Operation[Any]:
    entries = yield from operations.history_operation(engine, *call)
    return responses.history(call.instance_id, entries, decode_content)


def _snapshot_instance(engine: Engine, call: SnapshotInstance) -> Operation[Any]:
    return responses.one_snapshot(
        (yield from operations.snapshot_instance_operation(engine, *call))
    )


def _read_wal(engine: Engine, call: ReadWal) -> Operation[Any]:
    page = yield from operations.read_wal_operation(engine, *call)
    return responses.entries(page, decode_content)


def _wal_stats(engine: Engine, _call: GetWalStats) -> Operation[Any]:
    return responses.stats((yield from operations.wal_stats_operation(engine)))


def _compact(engine: Engine, _call: Compact) -> Operation[Any]:
    return (yield from responses.compact_operation(engine))


_ANSWERS: Final[dict[type, Callable[[Engine, Any], Operation[Any]]]] = {
    requests.PutMachine: _put,
    GetMachine: _get_machine,
    ListMachines: _list_machines,
    DrawMachine: _draw,
    requests.CreateInstance: _create,
    GetInstance: _get_instance,
    ListInstances: _list_instances,
    requests.ApplyEvent: _apply,
    requests.DeleteInstance: _delete,
    requests.MigrateInstance: _migrate,
    Batch: _batch,
    ReadHistory: _history,
    SnapshotInstance: _snapshot_instance,
    ReadWal: _read_wal,
    GetWalStats: _wal_stats,
    Compact: _compact,
}
