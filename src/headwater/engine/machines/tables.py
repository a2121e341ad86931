"""Everything machines know: as of the last committed entry, and what is on its way to the disk. The
owner's alone.

Changes arrive in the order of the log: live ones as effects, when their entries are committed, and
at a start those that the fold of the log (`recovery.history.machines`) makes of it. Both are put
together by the same rules, so replaying gives what was live.

Instances are listed in the order of their ids: all, by machine, and by machine and state. Ids are
kept in sorted blocks, so that finding, adding and removing one of a million moves a few thousand
bytes, and a page begins without a scan of what is before it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush, merge
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from headwater.format.machines.bodies import Body
from headwater.model.machines.definition import Definition
from headwater.model.machines.errors import MACHINE_NOT_FOUND, MachineError
from headwater.model.machines.instance import Instance, Key, RememberedAnswer
from headwater.recovery.history.machines import MachineSink, empties

BLOCK_IDS_MAX: Final = 1_024
DELETIONS_MAX: Final = 10_000
_UNKNOWN: Final = object()


class SortedIds:
    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._lasts: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block

    def load(self, ids: list[str]) -> None:
        """Begin with these, which are sorted already."""
        half = BLOCK_IDS_MAX // 2
        self._blocks = [ids[at : at + half] for at in range(0, len(ids), half)]
        self._lasts = [block[-1] for block in self._blocks]
        self._count = len(ids)

    def add(self, name: str) -> None:
        self._count += 1
        if not self._blocks:
            self._blocks.append([name])
            self._lasts.append(name)
            return
        at = min(bisect_left(self._lasts, name), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, name)
        self._lasts[at] = block[-1]
        if len(block) > BLOCK_IDS_MAX:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._lasts.insert(at, block[half - 1])

    def remove(self, name: str) -> None:
        at = bisect_left(self._lasts, name)
        block = self._blocks[at]
        del block[bisect_left(block, name)]
        self._count -= 1
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def page(self, offset: int, limit: int) -> list[str]:
        ids: list[str] = []
        for block in self._blocks:
            if offset >= len(block):
                offset -= len(block)
                continue
            ids += block[offset : offset + limit - len(ids)]
            offset = 0
            if len(ids) >= limit:
                break
        return ids


class Listing:
    def __init__(self) -> None:
        self._all = SortedIds()
        self._by_machine: dict[str, SortedIds] = {}
        self._by_state: dict[str, dict[str, SortedIds]] = {}
        """State, then machine."""

    def load(self, instances: Iterable[Instance]) -> None:
        """Begin with these, in any order; those of a snapshot are sorted, which makes it quick."""
        everything = sorted(instances, key=lambda instance: instance.id)
        machines: dict[str, list[str]] = {}
        states: dict[tuple[str, str], list[str]] = {}
        for instance in everything:
            machines.setdefault(instance.machine, []).append(instance.id)
            states.setdefault((instance.state, instance.machine), []).append(instance.id)
        self._all.load([instance.id for instance in everything])
        for machine, ids in machines.items():
            self._by_machine.setdefault(machine, SortedIds()).load(ids)
        for (state, machine), ids in states.items():
            self._ids(state, machine).load(ids)

    def changed(self, before: Instance | None, after: Instance | None) -> None:
        if before is not None and after is not None and before.machine == after.machine:
            if before.state != after.state:
                self._ids(before.state, before.machine).remove(before.id)
                self._ids(after.state, after.machine).add(after.id)
            return
        if before is not None:
            self._all.remove(before.id)
            self._by_machine[before.machine].remove(before.id)
            self._ids(before.state, before.machine).remove(before.id)
        if after is not None:
            self._all.add(after.id)
            self._by_machine.setdefault(after.machine, SortedIds()).add(after.id)
            self._ids(after.state, after.machine).add(after.id)

    def page(
        self, machine: str | None, state: str | None, offset: int, limit: int
    ) -> tuple[list[str], int]:
        """The ids of a page, and how many there are in all."""
        if state is None:
            chosen = self._all if machine is None else self._by_machine.get(machine)
            return _page(chosen, offset, limit)
        of_state = self._by_state.get(state, {})
        if machine is not None:
            return _page(of_state.get(machine), offset, limit)
        total = sum(map(len, of_state.values()))
        return list(islice(merge(*of_state.values()), offset, offset + limit)), total

    def _ids(self, state: str, machine: str) -> SortedIds:
        machines = self._by_state.get(state)
        if machines is None:
            machines = self._by_state[state] = {}
        ids = machines.get(machine)
        if ids is None:
            ids = machines[machine] = SortedIds()
        return ids


def _page(ids: SortedIds | None, offset: int, limit: int) -> tuple[list[str], int]:
    return ([], 0) if ids is None else (ids.page(offset, limit), len(ids))


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


class Ahead:
    """What is on its way to the disk: later than the tables, earlier than any new draft."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance | None] = {}
        """None: deleted."""
        self.definitions: dict[tuple[str, int], Definition] = {}
        self.keys: dict[Key, RememberedAnswer] = {}
        self.deletions: dict[str, InstanceDeletion] = {}

    def note(
        self,
        instances: Mapping[str, Instance | None],
        definitions: Mapping[tuple[str, int], Definition],
        keys: Mapping[Key, RememberedAnswer],
        deletions: Mapping[str, InstanceDeletion],
    ) -> None:
        self.instances.update(instances)
        if deletions:
            self.deletions.update(deletions)
        if definitions:
            self.definitions.update(definitions)
        if keys:
            self.keys.update(keys)

    def forget(
        self,
        instances: Mapping[str, Instance | None],
        definitions: Mapping[tuple[str, int], Definition],
        keys: Mapping[Key, RememberedAnswer],
        deletions: Mapping[str, InstanceDeletion],
    ) -> None:
        """These are committed: the tables have them, unless something newer is on its way."""
        for name, instance in instances.items():
            if self.instances.get(name, _UNKNOWN) is instance:
                del self.instances[name]
        for version in definitions:
            self.definitions.pop(version, None)
        for key, remembered in keys.items():
            if self.keys.get(key) is remembered:
                del self.keys[key]
        for name, deletion in deletions.items():
            if self.deletions.get(name) is deletion:
                del self.deletions[name]

    def clear(self) -> None:
        self.instances.clear()
        self.definitions.clear()
        self.keys.clear()
        self.deletions.clear()
