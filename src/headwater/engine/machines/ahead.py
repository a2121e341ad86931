"""What is on its way to the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headwater.engine.machines.tables import InstanceDeletion
from headwater.model.machines.definition import Definition
from headwater.model.machines.instance import Instance, Key, RememberedAnswer

_UNKNOWN: Final = object()


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
