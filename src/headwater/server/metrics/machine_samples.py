"""Samples of the state machines; zeros until they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.engine.machines.operations import counts
from headwater.engine.metrics import machine_samples as engine_machine_samples
from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey
from headwater.server.machines.operations import sees_of

if TYPE_CHECKING:
    from headwater.server.app import App


def machine_samples(app: App, key: ApiKey) -> list[Sample]:
    """As the owner. A key with prefixes gets the number of its own machines and instances."""
    if key.prefixes:
        store = app.engine.machines.store
        own = None if store is None else counts(store, sees_of(key))
        return [
            Sample("machines", 0 if own is None else own.machines),
            Sample("machine_instances", 0 if own is None else own.instances),
        ]
    hooks = app.webhooks.deliveries
    return [
        *engine_machine_samples(app.engine.machines.store),
        Sample("rcpx_connections", 0 if app.rcpx is None else len(app.rcpx.connections)),
        Sample("webhook_deliveries", sum(each.delivered for each in hooks)),
        Sample("webhook_failures", sum(each.failures for each in hooks)),
    ]
