"""The answer to a repeat under a known idempotency key: that of the first call, applied:false."""

from __future__ import annotations

from headwater.api import machine_requests as requests
from headwater.engine.machines.answers import Applied, Created
from headwater.model.machines.errors import CONFLICT, MachineError
from headwater.model.machines.instance import RememberedAnswer


def created_again(known: RememberedAnswer, request: requests.CreateInstance) -> Created:
    instance = known.instance
    if request.instance_id not in (None, instance.id):
        raise _another(known, f"made {instance.id!r}")
    return Created(
        instance.id, instance.machine, instance.version, known.from_state, known.wal_offset, False
    )


def applied_again(known: RememberedAnswer, request: requests.ApplyEvent) -> Applied:
    if request.event != known.event:
        raise _another(known, f"applied {known.event!r}")
    after = known.instance
    return Applied(
        after.id, after.machine, after.version, known.from_state, after.state, after.ctx,
        known.wal_offset, False, known.event_id,
    )  # fmt: skip


def _another(known: RememberedAnswer, what: str) -> MachineError:
    return MachineError(
        CONFLICT,
        f"idempotency key {known.key!r} was used for another request: it {what}",
        details={"idempotency_key": known.key, "wal_offset": known.wal_offset},
    )
