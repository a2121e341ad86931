"""State machines in plain dictionaries that are easy to believe: the rules, without any log."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from tests.rig.machines import ORDER, ORDER_2

DEFINITIONS = {1: ORDER, 2: ORDER_2}


@dataclass
class NaiveInstance:
    version: int
    state: str
    ctx: dict[str, Any]
    expires_at: int | None = None


@dataclass
class NaiveMachines:
    versions: set[int] = field(default_factory=set)
    instances: dict[str, NaiveInstance] = field(default_factory=dict)
    keys: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """What was done under a key: the event, or the id that was made."""

    def copy(self) -> NaiveMachines:
        return copy.deepcopy(self)

    def expire(self, now_ms: int) -> None:
        for name, each in list(self.instances.items()):
            if each.expires_at is not None and each.expires_at <= now_ms:
                del self.instances[name]

    def put(self, version: int) -> str | None:
        self.versions.add(version)
        return None

    def create(
        self, name: str, version: int, total: int, key: str | None, ttl_ms: int | None, now_ms: int
    ) -> str | None:
        """The code of the error, or None."""
        if version not in self.versions:
            return "MACHINE_NOT_FOUND"
        if key is not None and ("create", "order", key) in self.keys:
            return None if self.keys["create", "order", key] == name else "CONFLICT"
        if name in self.instances:
            return "INSTANCE_EXISTS"
        expires_at = None if ttl_ms is None else now_ms + ttl_ms
        self.instances[name] = NaiveInstance(version, "new", {"total": total}, expires_at)
        if key is not None:
            self.keys["create", "order", key] = name
        return None

    def apply(self, name: str, event: str, payload: dict[str, Any], key: str | None) -> str | None:
        if key is not None and ("apply", name, key) in self.keys:
            return None if self.keys["apply", name, key] == event else "CONFLICT"
        found = self.instances.get(name)
        if found is None:
            return "INSTANCE_NOT_FOUND"
        for each in DEFINITIONS[found.version]["transitions"]:
            froms = each["from"] if isinstance(each["from"], list) else [each["from"]]
            if found.state in froms and each["event"] == event:
                if "guard" in each and not found.ctx["total"] > 0:
                    return "GUARD_FAILED"
                found.state = each["to"]
                found.ctx.update(payload)
                if key is not None:
                    self.keys["apply", name, key] = event
                return None
        return "INVALID_TRANSITION"

    def delete(self, name: str) -> str | None:
        return None if self.instances.pop(name, None) is not None else "INSTANCE_NOT_FOUND"

    def migrate(self, name: str) -> str | None:
        found = self.instances.get(name)
        if found is None:
            return "INSTANCE_NOT_FOUND"
        if found.version == 2:
            return "CONFLICT"
        if 2 not in self.versions:
            return "MACHINE_NOT_FOUND"
        found.version = 2
        found.state = "settled" if found.state == "paid" else found.state
        return None
