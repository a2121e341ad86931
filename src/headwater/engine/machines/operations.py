"""What callers can do with state machines, written once for threads and for event loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from headwater.api import machine_requests as requests
from headwater.engine.machines import answers
from headwater.engine.machines.host import MachineSide
from headwater.engine.machines.log_reader import History, HistoryPlan, WalPage, WalReadPlan
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.watchers import CatchUpPlan, CaughtUp
from headwater.engine.operation import Answered, AsOwner, InFiles, Operation
from headwater.engine.owner import Pending
from headwater.model.machines.definition import Definition, check_machine_name
from headwater.model.machines.errors import bad_request
from headwater.model.machines.instance import Instance
from headwater.store.segment import file_work

T = TypeVar("T")
DRAWING_FORMS = ("svg", "mermaid")


class MachineCounts(NamedTuple):
    machines: int
    versions: int
    instances: int


def open_store(engine: MachineSide) -> Operation[MachineStore]:
    """The machines; opened, if this is the first call."""
    store = engine.machines.store
    if store is None:
        store = yield InFiles(engine.machines.open)
    return store


def change_operation(
    engine: MachineSide, request: requests.Request, sees: requests.Sees | None = None
) -> Operation[Any]:
    """One change: its answer, once the log has it."""
    store = engine.machines.store
    if store is None:
        store = yield from open_store(engine)
    return (yield Answered(partial(store.submit, request, sees)))


def _change_operation(
    engine: MachineSide, change: Callable[[MachineStore], Pending[T]]
) -> Operation[T]:
    """As above, for what is more than one request."""
    store = yield from open_store(engine)
    answer: T = yield Answered(lambda: change(store))
    return answer


def query_operation(engine: MachineSide, query: Callable[[MachineStore], T]) -> Operation[T]:
    """A query of what is in memory."""
    store = yield from open_store(engine)
    result: T = yield AsOwner(lambda: query(store))
    return result


def _file_operation(path: PurePath, work: Callable[[], T]) -> Operation[T]:
    """A query of files. Errors of the disk become this library's errors."""

    def run() -> T:
        with file_work(path):
            return work()

    result: T = yield InFiles(run)
    return result


# -- machines


def counts(store: MachineStore, sees: requests.Sees | None = None) -> MachineCounts:
    """Of all machines, or of those that `sees` allows."""
    machines, listing = store.tables.machines, store.tables.listing
    if sees is None:
        return MachineCounts(
            len(machines), sum(map(len, machines.values())), len(store.tables.instances)
        )
    seen = [name for name in machines if sees(name)]
    return MachineCounts(
        len(seen),
        sum(len(machines[name]) for name in seen),
        sum(listing.page(name, None, 0, 0)[1] for name in seen),
    )


def draw_operation(
    engine: MachineSide, machine: str, version: int | None, form: str, instance_id: str | None
) -> Operation[str]:
    """A picture of a machine, with the state of an instance marked."""
    if form not in DRAWING_FORMS:
        raise bad_request(f"the form of a drawing is one of {', '.join(DRAWING_FORMS)}")

    def query(store: MachineStore) -> tuple[Definition, str | None]:
        definition = store.tables.definition(check_machine_name(machine), version)
        if instance_id is None:
            return definition, None
        result = store.get_instance(instance_id)
        if (result.machine, result.version) != (definition.machine, definition.version):
            raise bad_request(
                f"{instance_id!r} is of {result.machine!r} version {result.version}, "
                f"not of {definition.machine!r} version {definition.version}"
            )
        return definition, result.state

    definition, current = yield from query_operation(engine, query)
    # Late: drawings bring a good part of the library of XML, and servers draw few.
    from headwater.engine.machines.drawing.picture import mermaid, picture_of
    from headwater.engine.machines.drawing.svg import svg

    def draw() -> str:
        drawn = picture_of(definition, current)
        return svg(drawn) if form == "svg" else mermaid(drawn)

    # Not by the owner: a machine of thousands of states takes seconds.
    finished: str = yield InFiles(draw)
    return finished


# -- instances


def get_instance_operation(engine: MachineSide, instance_id: str) -> Operation[Instance]:
    """As it is committed; `doubtful` when damage may have taken something of it."""
    result, doubtful = yield from query_operation(engine, partial(_instance_and_doubt, instance_id))
    return _doubted(result) if doubtful and not result.doubtful else result


def _instance_and_doubt(instance_id: str, store: MachineStore) -> tuple[Instance, bool]:
    result = store.get_instance(instance_id)
    return result, store.is_doubtful(result)


def _doubted(result: Instance) -> Instance:
    return Instance(
        result.id, result.machine, result.version, result.state, result.ctx, result.created_at,
        result.updated_at, result.last_wal_offset, result.last_event_id, result.expires_at,
        doubtful=True,
    )  # fmt: skip


def batch_operation(
    engine: MachineSide,
    operations: Sequence[requests.Request],
    mode: str,
    sees: requests.Sees | None = None,
) -> Operation[answers.BatchDone]:
    return _change_operation(engine, lambda store: store.batch(operations, mode, sees))


def flush_all_operation(engine: MachineSide) -> Operation[answers.Flushed]:
    return _change_operation(engine, MachineStore.flush_all)


def history_operation(engine: MachineSide, instance_id: str, limit: int) -> Operation[History]:
    plan: HistoryPlan = yield from query_operation(
        engine, lambda store: store.history(instance_id, limit)
    )
    return (yield from _file_operation(plan.log.directory, plan.read))


def snapshot_instance_operation(
    engine: MachineSide, instance_id: str
) -> Operation[answers.InstanceSnapshot]:
    store = yield from open_store(engine)
    work = partial(store.snapshot_instance, instance_id)
    return (yield from _file_operation(store.directory, work))


def snapshot_count_operation(engine: MachineSide) -> Operation[int]:
    store = yield from open_store(engine)
    return (yield from _file_operation(store.directory, store.snapshot_count))


# -- the log


def read_wal_operation(
    engine: MachineSide,
    from_offset: int,
    limit: int,
    newest: bool = False,
    bytes_max: int | None = None,
) -> Operation[WalPage]:
    plan: WalReadPlan = yield from query_operation(
        engine,
        lambda store: store.read_wal(from_offset, limit, newest=newest, bytes_max=bytes_max),
    )
    return (yield from _file_operation(plan.log.directory, plan.read))


def catch_up_operation(plan: CatchUpPlan) -> Operation[CaughtUp]:
    return (yield from _file_operation(plan.log.directory, plan.read))


def compact_operation(engine: MachineSide) -> Operation[answers.Compacted]:
    store = yield from open_store(engine)
    return (yield from _file_operation(store.directory, store.compact))
