"""What an entry makes of an instance: pure, so the store, a start and a batch job agree.

Damage may have taken entries away. What is read then is kept as far as it can be, and marked: an
instance never looks sound when an entry about it may be missing.
"""

from __future__ import annotations

from headwater.format.machines import bodies
from headwater.model.machines.errors import MachineError
from headwater.model.machines.instance import Instance
from headwater.model.machines.transition import merged
from headwater.model.machines.values import EMPTY, object_of


def created_instance(
    body: bodies.CreateInstanceEntry, offset: int, machine: str, state: str
) -> Instance:
    return Instance(
        body.instance_id, machine, body.version, state, bytes(body.initial_ctx), body.at, body.at,
        offset, None, body.expires_at,
    )  # fmt: skip


def applied_instance(
    body: bodies.ApplyEventEntry, offset: int, before: Instance, state: str, ctx: bytes
) -> Instance:
    return Instance(
        before.id, before.machine, body.version, state, ctx, before.created_at, body.at, offset,
        before.last_event_id if body.event_id is None else body.event_id, before.expires_at,
        body.doubtful,
    )  # fmt: skip


def replayed_event(
    body: bodies.ApplyEventEntry, offset: int, before: Instance | None, machine: str, state: str
) -> Instance:
    """The instance after an event that was read from the log."""
    if before is None:  # its creation was lost to damage
        before = Instance(
            body.instance_id, machine, body.version, body.from_state, EMPTY, body.at, body.at, 0
        )
    ctx = before.ctx
    whole = before.last_wal_offset == body.previous and not before.doubtful
    payload = body.payload_json
    if payload is not None:
        try:
            ctx = merged(ctx, object_of(payload))
        except MachineError:
            whole = False
    after = applied_instance(body, offset, before, state, ctx)
    return after if whole or after.doubtful else _doubtful(after)


def _doubtful(instance: Instance) -> Instance:
    return Instance(
        instance.id, instance.machine, instance.version, instance.state, instance.ctx,
        instance.created_at, instance.updated_at, instance.last_wal_offset,
        instance.last_event_id, instance.expires_at, True,
    )  # fmt: skip
