"""All logs of a server: that of the topics, that of the machines, Kafka's. A server is as healthy
as the worst of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.core.errors import PoisonedError
from headwater.engine.metrics import engine_shards, state_name
from headwater.observe.logs import Logger
from headwater.server.backend import Backend
from headwater.wal.committer import LogState
from headwater.wal.shard import Shard

_WORDS: Final = {
    LogState.WRITABLE: "a log takes writes again",
    LogState.FULL: "a log has no room: writes are refused until there is some",
    LogState.POISONED: "a log failed: it acknowledges nothing until a restart",
}


def shards_of(backend: Backend) -> Iterator[tuple[str, int, Shard]]:
    """Whose log it is, the number of the shard, the shard. Only logs that are open."""
    yield from engine_shards(backend.engine)
    if backend.kafka_store is not None:
        yield "kafka", 0, backend.kafka_store.shard


def poison_of(backend: Backend) -> PoisonedError | None:
    """Why a log takes no more writes, with its path; None while all of them are sound."""
    poisons = (shard.poison for _, _, shard in shards_of(backend))
    return next((poison for poison in poisons if poison is not None), None)


def state_of(backend: Backend) -> str:
    return state_name(backend.engine, (shard for _, _, shard in shards_of(backend)))


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
