"""Everything that can be asked of machines, as data, and how an engine answers it.

The faces say what they want by one of these, so there is one list of calls for threads and for
event loops, embedded and over HTTP. See docs/decisions/0020-machines-have-one-list-of-calls.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from headwater.engine import machine_steps as steps
from headwater.engine import machine_telling as telling
from headwater.engine.engine import Engine
from headwater.engine.machine_telling import opened
from headwater.engine.machines import requests
from headwater.engine.steps import Steps


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


class AskWalStats(NamedTuple):
    pass


class Compact(NamedTuple):
    pass


Ask = (
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
    | AskWalStats
    | Compact
)


def answer_steps(engine: Engine, ask: Ask) -> Steps[Any]:
    """What an engine in this process answers."""
    return _ANSWERS[type(ask)](engine, ask)


def _put(engine: Engine, ask: requests.PutMachine) -> Steps[Any]:
    return telling.put((yield from steps.put_machine_steps(engine, *ask)))


def _get_machine(engine: Engine, ask: GetMachine) -> Steps[Any]:
    return telling.machine((yield from steps.get_machine_steps(engine, *ask)), opened)


def _list_machines(engine: Engine, _ask: ListMachines) -> Steps[Any]:
    return telling.machines((yield from steps.list_machines_steps(engine)))


def _draw(engine: Engine, ask: DrawMachine) -> Steps[Any]:
    return (yield from steps.draw_steps(engine, *ask))


def _create(engine: Engine, ask: requests.CreateInstance) -> Steps[Any]:
    return telling.created((yield from steps.create_instance_steps(engine, ask)))


def _get_instance(engine: Engine, ask: GetInstance) -> Steps[Any]:
    return telling.instance((yield from steps.get_instance_steps(engine, *ask)), opened)


def _list_instances(engine: Engine, ask: ListInstances) -> Steps[Any]:
    return telling.instances((yield from steps.list_instances_steps(engine, *ask)))


def _apply(engine: Engine, ask: requests.ApplyEvent) -> Steps[Any]:
    return telling.applied((yield from steps.apply_event_steps(engine, ask)), opened)


def _delete(engine: Engine, ask: requests.DeleteInstance) -> Steps[Any]:
    done = yield from steps.delete_instance_steps(engine, ask.instance_id, ask.idempotency_key)
    return telling.deleted(done)


def _migrate(engine: Engine, ask: requests.MigrateInstance) -> Steps[Any]:
    return telling.migrated((yield from steps.migrate_instance_steps(engine, *ask)))


def _batch(engine: Engine, ask: Batch) -> Steps[Any]:
    return telling.batch((yield from steps.batch_steps(engine, *ask)), opened)


def _history(engine: Engine, ask: ReadHistory) -> Steps[Any]:
    found = yield from steps.history_steps(engine, *ask)
    return telling.history(ask.instance_id, found, opened)


def _snapshot_instance(engine: Engine, ask: SnapshotInstance) -> Steps[Any]:
    return telling.one_snapshot((yield from steps.snapshot_instance_steps(engine, *ask)))


def _read_wal(engine: Engine, ask: ReadWal) -> Steps[Any]:
    page = yield from steps.read_wal_steps(engine, *ask)
    return telling.entries(page, opened)


def _wal_stats(engine: Engine, _ask: AskWalStats) -> Steps[Any]:
    return telling.stats((yield from steps.wal_stats_steps(engine)))


def _compact(engine: Engine, _ask: Compact) -> Steps[Any]:
    return (yield from telling.compact_steps(engine))


_ANSWERS: Final[dict[type, Callable[[Engine, Any], Steps[Any]]]] = {
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
    AskWalStats: _wal_stats,
    Compact: _compact,
}
