"""How hard the machine is pressed, from 0 to 1, and what is done about it: the ladder.

Every 100 ms three signals become one number, the largest of them: how many topics are ready for
each worker, how long they wait for their turn (smoothed) against 5 ms, and how busy those are who
do the work: the readers, and the log with what waits for it. Each rung costs latency or eagerness,
never a record; only the last one refuses, before anything is taken (I13).

| rung | on | off | what it does |
|---|---|---|---|
| coalesce | above 0.2 | at 0.2 | records wait up to 20 ms to share a frame |
| widen | above 0.4 | at 0.4 | commits wait longer: 0.5 ms + 9.5 ms x pressure |
| defer | above 0.8 for 3 samples | below 0.6 | routers one band lower, band 0 not served |
| refuse | from 0.95 and a full channel | otherwise | 429 with Retry-After |
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from headwater.core.units import MS_PER_S, US_PER_MS

SAMPLE_US: Final = 100 * US_PER_MS
LATENCY_CEILING_US: Final = 5 * US_PER_MS
LATENCY_SMOOTHING: Final = 0.3
"""How much of the smoothed latency is the newest sample."""
LATENCY_COUNTED_US_MAX: Final = 10 * LATENCY_CEILING_US
"""A longer wait counts as this one, or a single pause would be remembered for seconds."""
STALL_CEILING_US: Final = 1_000 * US_PER_MS
"""A log that answered nothing for so long is as busy as can be."""
READY_A_WORKER: Final = 256
"""Ready topics a worker can have in front of it before that alone is full pressure."""

COALESCE_ABOVE: Final = 0.2
WIDEN_ABOVE: Final = 0.4
DEFER_ABOVE: Final = 0.8
DEFER_SAMPLES: Final = 3
DEFER_UNTIL_BELOW: Final = 0.6
SATURATED_FROM: Final = 0.95

COALESCE_US_MAX: Final = 20 * US_PER_MS
RETRY_AFTER_MS: Final = MS_PER_S


class Rung(Enum):
    COALESCE = "coalesce"
    WIDEN = "widen"
    DEFER = "defer"
    REFUSE = "refuse"


class RungChange(NamedTuple):
    """A rung was entered or left, for metrics and the log."""

    rung: Rung
    entered: bool
    pressure: float


class Signals(NamedTuple):
    """What was measured since the last sample."""

    ready_depth: int
    workers: int
    latency_us: int
    """How long the turns since then had waited, on average; 0 when there were none."""
    pool_busy: float
    """Which part of the reader pool is working, 0 to 1."""
    channel_full: bool = False
    """A write found no room in its channel, or the next one would not."""
    backlog: float = 0.0
    """Which part of the room for writes that wait for the log, or for segments, is taken."""
    stall_us: int = 0
    """For how long the oldest write under way has been seen to wait."""

    def parts(self, latency_us: float) -> dict[str, float]:
        """Each signal as a pressure of its own, by name."""
        return {
            "ready": self.ready_depth / (READY_A_WORKER * max(self.workers, 1)),
            "latency": latency_us / LATENCY_CEILING_US,
            "pool": self.pool_busy,
            "backlog": self.backlog,
            "stall": self.stall_us / STALL_CEILING_US,
        }


class Governor:
    __slots__ = ("_high_samples", "latency_us", "parts", "pressure", "rungs")

    def __init__(self) -> None:
        self.pressure = 0.0
        self.parts = Signals(0, 1, 0, 0.0).parts(0.0)
        """What each signal would have made of it alone."""
        self.latency_us = 0.0
        """Smoothed."""
        self.rungs: frozenset[Rung] = frozenset()
        """Those in force."""
        self._high_samples = 0

    def sample(self, signals: Signals) -> tuple[RungChange, ...]:
        """Every 100 ms: a new pressure, and which rungs were entered or left by it."""
        latency_us = min(signals.latency_us, LATENCY_COUNTED_US_MAX)
        self.latency_us += LATENCY_SMOOTHING * (latency_us - self.latency_us)
        parts = signals.parts(self.latency_us)
        self.parts = {name: min(max(part, 0.0), 1.0) for name, part in parts.items()}
        self.pressure = pressure = max(self.parts.values())
        self._high_samples = self._high_samples + 1 if pressure > DEFER_ABOVE else 0
        wanted = {
            Rung.COALESCE: pressure > COALESCE_ABOVE,
            Rung.WIDEN: pressure > WIDEN_ABOVE,
            Rung.DEFER: self._defers(pressure),
            Rung.REFUSE: pressure >= SATURATED_FROM and signals.channel_full,
        }
        before = self.rungs
        self.rungs = frozenset(rung for rung, in_force in wanted.items() if in_force)
        return tuple(
            RungChange(rung, in_force, pressure)
            for rung, in_force in wanted.items()
            if in_force is not (rung in before)
        )

    def skip(self, samples: int) -> None:
        """So many samples were not taken, since there were no requests: latency is forgotten."""
        self.latency_us *= (1 - LATENCY_SMOOTHING) ** samples

    def _defers(self, pressure: float) -> bool:
        if Rung.DEFER in self.rungs:
            return pressure >= DEFER_UNTIL_BELOW
        return self._high_samples >= DEFER_SAMPLES

    @property
    def defers(self) -> bool:
        """Routers go one band lower and band 0 is not served."""
        return Rung.DEFER in self.rungs

    @property
    def coalesce_us(self) -> int:
        """How long records may wait to share a frame: from nothing at 0.2 to 20 ms at 1."""
        if Rung.COALESCE not in self.rungs:
            return 0
        above = (self.pressure - COALESCE_ABOVE) / (1 - COALESCE_ABOVE)
        return round(COALESCE_US_MAX * above)

    def refuses(self, *, disable_backpressure: bool = False) -> bool:
        """A write is to be refused now, before anything of it is taken."""
        return Rung.REFUSE in self.rungs and not disable_backpressure
