"""What the server's own log says of its state: logs that stop taking writes, maintenance that
fails, damaged records, and the rungs of the pressure governor, which has its clock here.

The logs are that of the topics, that of the machines, Kafka's. A server is as healthy as the worst
of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from headwater.core.errors import PoisonedError
from headwater.core.units import US_PER_S
from headwater.engine.metrics import engine_shards, state_name
from headwater.engine.pressure import PressureControl
from headwater.engine.state.damage import DamagedRange
from headwater.model.pressure import SAMPLE_US, Rung, RungChange
from headwater.observe.logs import Logger
from headwater.server.backend import Backend
from headwater.server.health.reports import ledgers_of
from headwater.server.streams.delivery import Delivery
from headwater.wal.committer import LogState
from headwater.wal.shard import Shard

_WORDS: Final = {
    LogState.WRITABLE: "a log takes writes again",
    LogState.FULL: "a log has no room: writes are refused until there is some",
    LogState.POISONED: "a log failed: it acknowledges nothing until a restart",
}
_SAMPLE_S: Final = SAMPLE_US / US_PER_S
_MEANS: Final[dict[Rung, tuple[int, str, str]]] = {
    Rung.COALESCE: (
        logging.INFO,
        "records wait up to 20 ms to share a frame",
        "records are sent as they come",
    ),
    Rung.WIDEN: (
        logging.INFO,
        "commits wait up to 10 ms for company",
        "commits wait no longer than usual",
    ),
    Rung.DEFER: (
        logging.WARNING,
        "routers go a band lower and topics of band 0 are not pushed",
        "everything is pushed again",
    ),
    Rung.REFUSE: (
        logging.WARNING,
        "writes are refused with 429",
        "writes are taken again",
    ),
}
"""The log level, and what it means to enter and to leave a rung."""


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


class MaintenanceWatch:
    """Logs each kind of failure once, and that it is over."""

    def __init__(self, backend: Backend, log: Logger) -> None:
        self._backend = backend
        self._log = log
        self._logged: str | None = None

    def check(self) -> None:
        error = self._backend.maintenance_error
        failure = None if error is None else str(error) or repr(error)
        if failure != self._logged:
            self._logged = failure
            if failure is None:
                self._log.info("maintenance succeeds again")
            else:
                self._log.warning("maintenance failed; it is tried again", error=failure)


class PressureWatch:
    def __init__(
        self, backend: Backend, delivery: Delivery, loop: asyncio.AbstractEventLoop, log: Logger
    ) -> None:
        self._backend = backend
        self._delivery = delivery
        self._loop = loop
        self._logger = log
        self._pressure_control: PressureControl | None = None

    def begin(self, pressure_control: PressureControl) -> None:
        """Recovery is done: sample every 100 ms until the server stops."""
        self._pressure_control = pressure_control
        pressure_control.listeners.append(self._log)
        self._delivery.govern(pressure_control)
        self._sample()

    def _sample(self) -> None:
        if self._pressure_control is None or self._backend.draining:
            return
        self._loop.call_later(_SAMPLE_S, self._sample)
        self._pressure_control.tick()
        self._delivery.resume()

    def _log(self, transitions: Sequence[RungChange]) -> None:
        for rung, entered, pressure in transitions:
            level, on, off = _MEANS[rung]
            self._logger.log(
                level,
                "pressure " + ("rose" if entered else "fell"),
                rung=rung.value,
                pressure=round(pressure, 3),
                now=on if entered else off,
            )


def rung_meaning(rung: Rung) -> str:
    """What happens while a rung is in force."""
    return _MEANS[rung][1]


class DamageWatch:
    """Logs each damaged range once."""

    def __init__(self, backend: Backend, log: Logger) -> None:
        self._backend = backend
        self._log = log
        self._overflow_logged: set[int] = set()

    def check(self) -> None:
        for number, ledger in enumerate(ledgers_of(self._backend)):
            for entry in ledger.take_new():
                self._report(entry)
            if ledger.overflowed and number not in self._overflow_logged:
                self._overflow_logged.add(number)
                self._log.error(
                    "there is more damage than the list holds; run headwater verify",
                    listed=len(ledger.ranges),
                )

    def _report(self, entry: DamagedRange) -> None:
        say = self._log.warning if entry.repaired else self._log.error
        say(
            "a damaged index entry was read again from its data"
            if entry.repaired
            else "damaged records are not served; readers get a tombstone or an error",
            topic=entry.topic,
            path=entry.path,
            offset=entry.offset,
            first_seq=entry.first_seq,
            last_seq=entry.last_seq,
            reason=entry.reason,
        )
