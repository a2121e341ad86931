"""What is on its way to the disk."""

from __future__ import annotations

from headwater.engine.machines.tables import Key, Remembered
from headwater.model.machines.definition import Definition
from headwater.model.machines.instance import Instance


class Ahead:
    """What is on its way to the disk: later than the tables, earlier than any new draft."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance | None] = {}
        """None: deleted."""
        self.definitions: dict[tuple[str, int], Definition] = {}
        self.keys: dict[Key, Remembered] = {}

    def clear(self) -> None:
        self.instances.clear()
        self.definitions.clear()
        self.keys.clear()
