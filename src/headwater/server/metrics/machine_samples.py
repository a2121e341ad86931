"""Samples of the state machines; zeros until they are used."""

from __future__ import annotations

from headwater.engine.engine import Engine
from headwater.engine.machines import operations as machine_operations
from headwater.engine.metrics import machine_samples as engine_machine_samples
from headwater.observe.metrics import Sample
from headwater.server.access.keys import ApiKey
from headwater.server.machines import operations


def machine_samples(engine: Engine, key: ApiKey) -> list[Sample]:
    """As the owner. A key with prefixes gets the number of its own machines and instances."""
    if key.prefixes:
        store = engine.machines.store
        own = None if store is None else machine_operations.counts(store, operations.sees_of(key))
        return [
            Sample("machines", 0 if own is None else own.machines),
            Sample("machine_instances", 0 if own is None else own.instances),
        ]
    return engine_machine_samples(engine.machines.store)
