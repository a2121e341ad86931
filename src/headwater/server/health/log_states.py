"""All logs of a server: that of the topics, that of the machines, Kafka's. A server is as healthy
as the worst of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.core.errors import PoisonedError
from headwater.observe.logs import Logger
from headwater.server.backend import Backend
from headwater.wal.committer import LogState
from headwater.wal.shard import Shard

STATE_NAMES: Final = {
    LogState.WRITABLE: "ok",
    LogState.FULL: "full",
    LogState.POISONED: "poisoned",
}
DEGRADED: Final = "degraded"
"""All logs that are open are healthy, and a part of the directory could not be opened."""
_WORDS: Final = {
    LogState.WRITABLE: "a log takes writes again",
    LogState.FULL: "a log has no room: writes are refused until there is some",
    LogState.POISONED: "a log failed: it acknowledges nothing until a restart",
}
_WORST_FIRST: Final = (LogState.POISONED, LogState.FULL)


def shards_of(backend: Backend) -> Iterator[tuple[str, int, Shard]]:
    """Whose log it is, the number of the shard, the shard. Only logs that are open."""
    engine = backend.engine
    assert engine.core.wal is not None
    for number, shard in enumerate(engine.core.wal.shards):
        yield "topics", number, shard
    if engine.machines.store is not None:
        yield "machines", 0, engine.machines.store.shard
    if backend.kafka_store is not None:
        yield "kafka", 0, backend.kafka_store.shard


def poison_of(backend: Backend) -> PoisonedError | None:
    """Why a log takes no more writes, with its path; None while all of them are sound."""
    poisons = (shard.poison for _, _, shard in shards_of(backend))
    return next((poison for poison in poisons if poison is not None), None)


def state_of(backend: Backend) -> str:
    states = {shard.state for _, _, shard in shards_of(backend)}
    worst = next((state for state in _WORST_FIRST if state in states), LogState.WRITABLE)
    if worst is LogState.WRITABLE and backend.engine.core.parts.away:
        return DEGRADED
    return STATE_NAMES[worst]


class LogWatch:
    """Logs when a log stops taking writes, and when it takes them again."""

    def __init__(self, backend: Backend, log: Logger) -> None:
        self._backend = backend
        self._log = log
        self._logged: dict[tuple[str, int], LogState] = {}

    def check(self) -> None:
        for whose, number, shard in shards_of(self._backend):
            state = shard.state
            if self._logged.get((whose, number), LogState.WRITABLE) is state:
                continue
            self._logged[whose, number] = state
            say = self._log.info if state is LogState.WRITABLE else self._log.warning
            reason = {} if shard.poison is None else {"error": str(shard.poison)}
            say(_WORDS[state], whose=whose, shard=number, **reason)
