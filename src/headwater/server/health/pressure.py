"""The pressure governor in the server: its clock, its lines in the log, its samples."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from headwater.core.units import US_PER_S
from headwater.engine.pressure import PressureControl
from headwater.model.pressure import SAMPLE_US, Rung, RungChange
from headwater.observe.logs import Logger
from headwater.server.backend import Backend
from headwater.server.streams.delivery import Delivery

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
