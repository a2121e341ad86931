"""In what state the logs are: a database is as healthy as the worst of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headwater.engine.engine import Engine
from headwater.wal.committer import LogState
from headwater.wal.shard import Shard

STATE_NAMES: Final = {
    LogState.WRITABLE: "ok",
    LogState.FULL: "full",
    LogState.POISONED: "poisoned",
}
DEGRADED: Final = "degraded"
"""All logs that are open are healthy, and a part of the directory could not be opened."""
_WORST_FIRST: Final = (LogState.POISONED, LogState.FULL)


def engine_shards(engine: Engine) -> Iterator[tuple[str, int, Shard]]:
    """Whose log it is, the number of the shard, the shard. Only logs that are open."""
    assert engine.core.wal is not None
    for number, shard in enumerate(engine.core.wal.shards):
        yield "topics", number, shard
    if engine.machines.store is not None:
        yield "machines", 0, engine.machines.store.shard


def state_name(engine: Engine, shards: Iterable[Shard]) -> str:
    states = {shard.state for shard in shards}
    worst = next((state for state in _WORST_FIRST if state in states), LogState.WRITABLE)
    if worst is LogState.WRITABLE and engine.core.parts.away:
        return DEGRADED
    return STATE_NAMES[worst]


def readiness_of(engine: Engine) -> str:
    """As the owner. The error of a log that takes no more writes is raised."""
    shards = [shard for _, _, shard in engine_shards(engine)]
    poison = next((shard.poison for shard in shards if shard.poison is not None), None)
    if poison is not None:
        raise poison
    return state_name(engine, shards)
