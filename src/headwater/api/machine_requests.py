"""The calls of machines, as data: one list for threads and for event loops, embedded and over HTTP.

Those that change machines or instances are also the parts of a batch. See
docs/decisions/0020-machines-have-one-list-of-calls.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from headwater.model.machines.errors import bad_request
from headwater.wire import machine_answers as answers

Moved = answers.TransitionAnswer | answers.GapAnswer
"""A transition; or a gap, where transitions were missed or are gone."""

Sees = Callable[[str], bool]
"""May the caller see this machine? Instances of other machines do not exist for the caller."""


class PutMachine(NamedTuple):
    machine: str
    version: int
    definition: dict[str, Any]
    strict: bool = True
    """Refuse fields of a definition that are not known; else they are kept."""


class CreateInstance(NamedTuple):
    machine: str
    version: int | None = None
    """None: the newest version there is."""
    instance_id: str | None = None
    context: dict[str, Any] | None = None
    idempotency_key: str | None = None
    ttl_ms: int | None = None


class ApplyEvent(NamedTuple):
    instance_id: str
    event: str
    payload: dict[str, Any] | None = None
    expected_state: str | None = None
    expected_wal_offset: int | None = None
    event_id: str | None = None
    idempotency_key: str | None = None


class DeleteInstance(NamedTuple):
    instance_id: str
    idempotency_key: str | None = None
    reason: str | None = None
    again: bool = False
    """Succeed where it was deleted before."""


class MigrateInstance(NamedTuple):
    instance_id: str
    version: int
    state_map: dict[str, str] | None = None


class ReadInstance(NamedTuple):
    """Part of a batch: an instance as the operations before it left it."""

    instance_id: str


class Ping(NamedTuple):
    """Part of a batch, and answered in its turn."""


class FlushAll(NamedTuple):
    """Remove every instance and every machine."""


class NoteSnapshot(NamedTuple):
    """A snapshot is complete."""

    name: str
    wal_offset: int
    instance_id: str | None = None


Request: TypeAlias = (
    PutMachine
    | CreateInstance
    | ApplyEvent
    | DeleteInstance
    | MigrateInstance
    | ReadInstance
    | Ping
    | FlushAll
    | NoteSnapshot
)


# -- what changes nothing, or is not one entry of the log


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
    operations: Sequence[Request]
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
    PutMachine
    | GetMachine
    | ListMachines
    | DrawMachine
    | CreateInstance
    | GetInstance
    | ListInstances
    | ApplyEvent
    | DeleteInstance
    | MigrateInstance
    | Batch
    | ReadHistory
    | SnapshotInstance
    | ReadWal
    | GetWalStats
    | Compact
)


class _Transition(Protocol):
    """What a filter looks at."""

    @property
    def instance_id(self) -> str: ...
    @property
    def machine(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def from_state(self) -> str: ...
    @property
    def to_state(self) -> str: ...


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """Empty means any."""

    instance_id: str | None = None
    machines: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    from_states: frozenset[str] = frozenset()
    to_states: frozenset[str] = frozenset()

    def wants(self, event: _Transition) -> bool:
        return (
            (self.instance_id is None or event.instance_id == self.instance_id)
            and (not self.machines or event.machine in self.machines)
            and (not self.events or event.event in self.events)
            and (not self.from_states or event.from_state in self.from_states)
            and (not self.to_states or event.to_state in self.to_states)
        )


def watch_filter(
    instance_id: str | None = None,
    machines: Sequence[str] | None = None,
    events: Sequence[str] | None = None,
    from_states: Sequence[str] | None = None,
    to_states: Sequence[str] | None = None,
) -> WatchFilter:
    given = {
        "machines": machines, "events": events, "from_states": from_states, "to_states": to_states
    }  # fmt: skip
    chosen: dict[str, frozenset[str]] = {}
    for name, words in given.items():
        if words is not None and (
            isinstance(words, str) or not all(isinstance(word, str) for word in words)
        ):
            raise bad_request(f"{name} must be a list of texts")
        chosen[name] = frozenset(words or ())
    return WatchFilter(instance_id, **chosen)
