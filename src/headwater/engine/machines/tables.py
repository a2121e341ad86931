"""Everything machines know, as of the last committed entry. The owner's alone.

Changes arrive in the order of the log: live ones as effects, when their entries are committed, and
at a start those that the fold of the log (`recovery.history.machines`) makes of it. Both are put
together by the same rules, so replaying gives what was live.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import msgspec

from headwater.engine.machines.listing import Listing
from headwater.format.machines.bodies import Body
from headwater.model.machines.definition import Definition
from headwater.model.machines.errors import MACHINE_NOT_FOUND, MachineError
from headwater.model.machines.instance import Instance, Key, RememberedAnswer
from headwater.recovery.history.machines import MachineSink, empties

DELETIONS_MAX: Final = 10_000


class EntryEffect(msgspec.Struct, frozen=True, gc=False):
    """One entry and what it makes of the tables."""

    body: Body
    offset: int
    before: Instance | None = None
    after: Instance | None = None
    definition: Definition | None = None
    remembered: RememberedAnswer | None = None


class InstanceDeletion(NamedTuple):
    wal_offset: int
    machine: str


class Deletions:
    """Instances that were deleted lately, for deletes that come twice: by id, the oldest first.

    Bounded: an id that was deleted before many others is no longer known, and deleting it again is
    answered as for any id that never was. Not part of snapshots: a start knows of the deletions
    that it read from the log.
    """

    def __init__(self, count_max: int = DELETIONS_MAX) -> None:
        self._by_id: dict[str, InstanceDeletion] = {}
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, instance_id: str) -> InstanceDeletion | None:
        return self._by_id.get(instance_id)

    def note(self, instance_id: str, deletion: InstanceDeletion) -> None:
        self._by_id.pop(instance_id, None)
        self._by_id[instance_id] = deletion
        if len(self._by_id) > self._count_max:
            del self._by_id[next(iter(self._by_id))]

    def forget(self, instance_id: str) -> None:
        """It was made again."""
        self._by_id.pop(instance_id, None)

    def clear(self) -> None:
        self._by_id.clear()


class Tables(MachineSink):
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
        elif before is not after:
            self._put(effect.offset, before, after, body.at)
        elif effect.definition is not None:
            definition = effect.definition
            self.machines.setdefault(definition.machine, {})[definition.version] = definition
        elif empties(body):
            self.flushed()
        if effect.remembered is not None:
            self.remember(effect.remembered)

    def _put(self, offset: int, before: Instance | None, after: Instance | None, at: int) -> None:
        if after is None:
            assert before is not None
            del self.instances[before.id]
            self.deleted(before, offset, at)
        else:
            self.instances[after.id] = after
            if after.expires_at and (before is None or before.expires_at != after.expires_at):
                heappush(self._expiring, (after.expires_at, after.id))
            if before is None:
                self.made(after)
        self.listing.changed(before, after)

    # -- what the fold calls at a start, and live changes as well; implements `MachineSink`

    def made(self, instance: Instance) -> None:
        self.deletions.forget(instance.id)

    def deleted(self, before: Instance, offset: int, _at: int) -> None:
        if self.keeps_retired_ids:
            self.retired_ids.add(before.id)
        self.deletions.note(before.id, InstanceDeletion(offset, before.machine))

    def complete(self) -> None:
        """All instances are in their table that the files have: list them."""
        self.listing.load(self.instances.values())
        for instance in self.instances.values():
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

    def flushed(self) -> None:
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
