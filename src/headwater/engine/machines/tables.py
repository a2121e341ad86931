"""Everything machines know, as of the last committed entry. The owner's alone.

Changes arrive as effects, in the order of the log: live ones when their entries are committed, and
at start those read from it. Both take the same way, so replaying gives what was live.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any, Final

import msgspec

from headwater.engine.machines.deletions import Deletions, InstanceDeletion
from headwater.engine.machines.listing import Listing
from headwater.format.machines.bodies import (
    ApplyEventEntry,
    Body,
    Checkpoint,
    CreateInstanceEntry,
    DeleteInstanceEntry,
)
from headwater.model.machines.definition import Definition
from headwater.model.machines.errors import MACHINE_NOT_FOUND, MachineError
from headwater.model.machines.instance import Instance

REMEMBERED_BYTES: Final = 736
"""What remembering a key costs besides its texts and its context: two objects and references to
them."""
Key = tuple[str, str, str]
"""The kind of request (create, apply, delete), its machine or instance, and the key itself."""


class RememberedAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer under an idempotency key. In snapshots it is a list in this order."""

    kind: str
    scope: str
    key: str
    at: int
    instance: Instance
    """As the first call left it; for a delete, as it was before."""
    from_state: str
    event: str
    wal_offset: int
    event_id: str | None = None

    @property
    def full_key(self) -> Key:
        return (self.kind, self.scope, self.key)

    @property
    def memory_bytes(self) -> int:
        """About what it keeps from being used otherwise. The context counts in full: the instance
        has moved on by the time it matters."""
        return REMEMBERED_BYTES + len(self.scope) + len(self.key) + len(self.instance.ctx)


class EntryEffect(msgspec.Struct, frozen=True, gc=False):
    """One entry and what it makes of the tables."""

    body: Body
    offset: int
    before: Instance | None = None
    after: Instance | None = None
    definition: Definition | None = None
    remembered: RememberedAnswer | None = None


class Tables:
    def __init__(self, *, keeps_retired_ids: bool, keys_bytes_max: int) -> None:
        self.machines: dict[str, dict[int, Definition]] = {}
        self.instances: dict[str, Instance] = {}
        self.listing = Listing()
        self.keys: dict[Key, RememberedAnswer] = {}
        self.keys_bytes = 0
        """What they keep in memory."""
        self.keys_forgotten = 0
        """So many were forgotten before their time, because there were too many."""
        self._keys_bytes_max = keys_bytes_max
        self._keys_by_age: deque[RememberedAnswer] = deque()
        self._expiring: list[tuple[int, str]] = []
        self.keeps_retired_ids = keeps_retired_ids
        self.retired_ids: set[str] = set()
        """Ids of deleted instances, while they may not be used again."""
        self.deletions = Deletions()
        self.doubt_before = 0
        """Damage up to here: an instance last changed before it may have been changed since."""

    def definition(self, machine: str, version: int | None) -> Definition:
        versions = self.machines.get(machine)
        if not versions:
            raise MachineError(MACHINE_NOT_FOUND, f"there is no machine {machine!r}")
        number = max(versions) if version is None else version
        definition = versions.get(number)
        if definition is None:
            raise MachineError(
                MACHINE_NOT_FOUND,
                f"machine {machine!r} has no version {number}",
                details={"versions": sorted(versions)},
            )
        return definition

    def is_doubtful(self, instance: Instance) -> bool:
        return instance.doubtful or instance.last_wal_offset < self.doubt_before

    def take(self, effect: EntryEffect) -> None:
        """Make an effect true."""
        body, before, after = effect.body, effect.before, effect.after
        if (
            before is not None
            and after is not None
            and before.state is after.state
            and before.machine is after.machine
            and before.expires_at == after.expires_at
        ):
            self.instances[after.id] = after  # listed where it was
        elif type(body) in _OF_INSTANCES:
            self._put(before, after)
            self._note_deletion(effect)
        elif effect.definition is not None:
            definition = effect.definition
            self.machines.setdefault(definition.machine, {})[definition.version] = definition
        elif type(body) is Checkpoint and body.flushed:
            self.clear()
        if effect.remembered is not None:
            self.remember(effect.remembered)

    def _put(self, before: Instance | None, after: Instance | None) -> None:
        if after is None:
            assert before is not None
            del self.instances[before.id]
            if self.keeps_retired_ids:
                self.retired_ids.add(before.id)
        else:
            self.instances[after.id] = after
            if after.expires_at and (before is None or before.expires_at != after.expires_at):
                heappush(self._expiring, (after.expires_at, after.id))
        self.listing.changed(before, after)

    def _note_deletion(self, effect: EntryEffect) -> None:
        before, after = effect.before, effect.after
        if after is None:
            assert before is not None
            self.deletions.note(before.id, InstanceDeletion(effect.offset, before.machine))
        elif before is None and len(self.deletions):
            self.deletions.forget(after.id)

    def load(self, instances: list[Instance]) -> None:
        """Begin with the instances of a snapshot."""
        self.instances = {instance.id: instance for instance in instances}
        self.listing.load(instances)
        for instance in instances:
            if instance.expires_at:
                heappush(self._expiring, (instance.expires_at, instance.id))

    def remember(self, remembered: RememberedAnswer) -> None:
        """The newest is kept whatever it weighs; beyond the bound the oldest go."""
        key = remembered.full_key
        self.keys.pop(key, None)  # the order of the table is that of age: snapshots keep it
        self.keys[key] = remembered
        self._keys_by_age.append(remembered)
        self.keys_bytes += remembered.memory_bytes
        while self.keys_bytes > self._keys_bytes_max and len(self._keys_by_age) > 1:
            self.keys_forgotten += self._forget_oldest()

    def forget_keys(self, before_ms: int) -> None:
        """Keys older than the window. The clock may have gone back, so the front may wait."""
        ages = self._keys_by_age
        while ages and ages[0].at < before_ms:
            self._forget_oldest()

    def _forget_oldest(self) -> bool:
        """False when it was forgotten before: its key was used again since."""
        old = self._keys_by_age.popleft()
        self.keys_bytes -= old.memory_bytes
        key = old.full_key
        if self.keys.get(key) is not old:
            return False
        del self.keys[key]
        return True

    def expired(self, now_ms: int, limit: int) -> list[str]:
        """Ids whose time has come, soonest first; the caller deletes or `expire_again`s each."""
        names: list[str] = []
        while self._expiring and self._expiring[0][0] <= now_ms and len(names) < limit:
            at, name = heappop(self._expiring)
            instance = self.instances.get(name)
            if instance is not None and instance.expires_at == at:
                names.append(name)
        return names

    def expire_again(self, name: str) -> None:
        """A delete was refused: the next `expired` returns this id again."""
        instance = self.instances.get(name)
        if instance is not None and instance.expires_at:
            heappush(self._expiring, (instance.expires_at, name))

    def clear(self) -> None:
        self.machines.clear()
        self.instances.clear()
        self.listing = Listing()
        self.keys.clear()
        self._keys_by_age.clear()
        self.keys_bytes = 0
        self.deletions.clear()
        self._expiring.clear()

    def canonical(self) -> dict[str, Any]:
        """Everything, in one order, for comparing."""
        return {
            "machines": {
                name: {
                    version: definition.checksum for version, definition in sorted(versions.items())
                }
                for name, versions in sorted(self.machines.items())
            },
            "instances": [self.instances[name] for name in sorted(self.instances)],
            "keys": [self.keys[key] for key in sorted(self.keys)],
        }


_OF_INSTANCES = frozenset((CreateInstanceEntry, ApplyEventEntry, DeleteInstanceEntry))
