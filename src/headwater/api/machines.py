# Generated from api/async_machines.py by "make twins"; change that file, not this one.
"""State machines for programs that may block: embedded, and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from headwater.api import machine_requests as requests
from headwater.api.machine_requests import Moved, WatchFilter, watch_filter
from headwater.wire import machine_answers as answers

T = TypeVar("T")


class MachineCalls(Protocol):
    """How a call of machines is carried out. It gives the answer that belongs to the call."""

    def __call__(self, call: requests.MachineCall, /) -> T: ...  # type: ignore[type-var, unused-ignore]


class Machines:
    """Made by `Database.machines`, and by the `machines` of a client."""

    def __init__(
        self,
        call: MachineCalls,
        watch: Callable[[WatchFilter, int | None, int | None], Iterator[Moved]],
    ) -> None:
        self._call = call
        self._watch = watch

    def put_machine(
        self, machine: str, version: int, definition: dict[str, Any]
    ) -> answers.MachinePutAnswer:
        """Define a version of a machine. It never changes; the same again does nothing."""
        return self._call(requests.PutMachine(machine, version, definition))

    def get_machine(self, machine: str, version: int | None = None) -> answers.MachineAnswer:
        """A version of a machine, the newest without one."""
        return self._call(requests.GetMachine(machine, version))

    def list_machines(self) -> answers.MachineListAnswer:
        """All machines, by name, with their versions."""
        return self._call(requests.ListMachines())

    def draw(
        self,
        machine: str,
        version: int | None = None,
        *,
        form: str = "mermaid",
        instance_id: str | None = None,
    ) -> str:
        """A picture of a machine: Mermaid text or `svg`, with the state of an instance marked."""
        return self._call(requests.DrawMachine(machine, version, form, instance_id))

    def create_instance(
        self,
        machine: str,
        version: int | None = None,
        instance_id: str | None = None,
        context: dict[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        ttl_ms: int | None = None,
    ) -> answers.InstanceMadeAnswer:
        """Make an instance, of the newest version without one, under a new id without one. With
        `ttl_ms` it deletes itself after so long."""
        return self._call(
            requests.CreateInstance(machine, version, instance_id, context, idempotency_key, ttl_ms)
        )

    def get_instance(self, instance_id: str) -> answers.InstanceAnswer:
        """An instance: its state and context."""
        return self._call(requests.GetInstance(instance_id))

    def list_instances(
        self,
        machine: str | None = None,
        state: str | None = None,
        *,
        limit: int = 100,
        offset: int = 0,
    ) -> answers.InstanceListAnswer:
        """Instances, by id; of one machine, in one state, as wanted."""
        return self._call(requests.ListInstances(machine, state, limit, offset))

    def apply_event(
        self,
        instance_id: str,
        event: str,
        payload: dict[str, Any] | None = None,
        *,
        expected_state: str | None = None,
        expected_wal_offset: int | None = None,
        event_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> answers.EventAppliedAnswer:
        """Apply an event: the first transition whose guard holds is taken, the payload is merged
        into the context. Expectations that do not hold are a CONFLICT."""
        return self._call(
            requests.ApplyEvent(
                instance_id,
                event,
                payload,
                expected_state,
                expected_wal_offset,
                event_id,
                idempotency_key,
            )
        )

    def delete_instance(
        self, instance_id: str, *, idempotency_key: str | None = None
    ) -> answers.InstanceDeletedAnswer:
        """Delete an instance. Its history stays in the log until that is compacted."""
        return self._call(requests.DeleteInstance(instance_id, idempotency_key))

    def migrate_instance(
        self, instance_id: str, version: int, state_map: dict[str, str] | None = None
    ) -> answers.MigratedAnswer:
        """Move an instance to another version of its machine; `state_map` names the new states
        where names differ."""
        return self._call(requests.MigrateInstance(instance_id, version, state_map))

    def batch(
        self, operations: Sequence[requests.Request], *, mode: str = "atomic"
    ) -> answers.BatchAnswer:
        """Up to 100 of `headwater.CreateInstance`, `ApplyEvent` and `DeleteInstance`: `atomic`, all
        or nothing, or `best_effort`, each for itself."""
        return self._call(requests.Batch(operations, mode))

    def history(self, instance_id: str, *, limit: int = 100) -> answers.HistoryAnswer:
        """What happened to an instance, oldest first: the newest `limit` entries."""
        return self._call(requests.ReadHistory(instance_id, limit))

    def snapshot_instance(self, instance_id: str) -> answers.InstanceSnapshotAnswer:
        """Write one instance to a snapshot of its own."""
        return self._call(requests.SnapshotInstance(instance_id))

    def read_wal(
        self, from_offset: int = 0, *, limit: int = 100, newest: bool = False
    ) -> answers.WalReadAnswer:
        """Entries of the log, whatever they are about: from an offset on, or the newest."""
        return self._call(requests.ReadWal(from_offset, limit, newest))

    def wal_stats(self) -> answers.WalStatsAnswer:
        """How large the log is, and what it has done."""
        return self._call(requests.GetWalStats())

    def compact(self) -> answers.CompactedAnswer:
        """Take a snapshot, and drop the log before it. Happens by itself, too."""
        return self._call(requests.Compact())

    def watch(
        self,
        *,
        instance_id: str | None = None,
        machines: Sequence[str] | None = None,
        events: Sequence[str] | None = None,
        from_states: Sequence[str] | None = None,
        to_states: Sequence[str] | None = None,
        from_offset: int | None = None,
        idle_ms: int | None = None,
    ) -> Iterator[Moved]:
        """Transitions as they happen, for ever; with `from_offset`, those since then first.
        `idle_ms` ends it when nothing came for so long."""
        wanted = watch_filter(instance_id, machines, events, from_states, to_states)
        return self._watch(wanted, from_offset, idle_ms)
