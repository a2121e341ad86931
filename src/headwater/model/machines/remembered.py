"""Answers under idempotency keys: what a call that comes again is told."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from headwater.format.machines.bodies import ApplyEventEntry, CreateInstanceEntry, InstanceBody
from headwater.model.machines.instance import Instance

REMEMBERED_BYTES: Final = 736
"""What remembering a key costs besides its texts and its context: two objects and references to
them."""
Key: TypeAlias = tuple[str, str, str]
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


def remembered_of(body: InstanceBody, offset: int, instance: Instance) -> RememberedAnswer | None:
    """The answer for a repeat under the same key; None without a key."""
    key = body.idempotency_key
    if key is None:
        return None
    if isinstance(body, CreateInstanceEntry):
        return RememberedAnswer(
            "create", body.machine, key, body.at, instance, body.state, "", offset
        )
    if isinstance(body, ApplyEventEntry):
        return RememberedAnswer(
            "apply", body.instance_id, key, body.at, instance, body.from_state, body.event, offset,
            body.event_id,
        )  # fmt: skip
    return RememberedAnswer(
        "delete", body.instance_id, key, body.at, instance, body.state, "", offset
    )
