"""Which topic is delivered next: five bands by priority, each with its share, and no starvation.

A topic's priority is set by hand, or follows from the time of its last read. A topic with something
to deliver is in the ready set once, however much that is. Bands take turns by deficit round robin:
a round gives each band as many turns as its weight, the higher bands first, and a new round begins
when no band with topics has turns left. Inside a band the longest waiting topic is first. Waiting
raises a topic's priority by 100 a second, up to 1000; every 50 ms those who waited long enough move
up a band.

So in every round the longest waiting topic of each band is served. A topic with `older` topics
before it when it is marked is served within `turns_until_served(older)` turns, whatever its
priority and whatever comes after it; a topic with a priority of -250 or more is in the top band
after 10 s. Only while routers and band 0 are deferred does band 0 get no turns: then its topics
wait for the end of that, or until they have moved up.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from headwater.core.units import US_PER_MS, US_PER_S

AUTO_PRIORITY_MAX: Final = 500
HALF_LIFE_MS: Final = 30_000
FORGOTTEN_MS: Final = 300_000


def base_priority(manual: int | None, auto: bool, last_read_ts: int, now_ms: int) -> int:
    """The manual priority, else one that halves every 30 s without a reader."""
    if manual is not None:
        return manual
    idle = now_ms - last_read_ts
    if not auto or not last_read_ts or idle >= FORGOTTEN_MS:
        return 0
    return round(AUTO_PRIORITY_MAX * 2 ** (-max(idle, 0) / HALF_LIFE_MS))


Item = TypeVar("Item", bound=Hashable)


class Band(NamedTuple):
    floor: int
    """The lowest effective priority that belongs here."""
    weight: int
    """Turns in a round."""


BANDS: Final = (
    Band(-(2**63), 1),
    Band(0, 1),
    Band(250, 2),
    Band(500, 4),
    Band(750, 8),
)
"""B0 to B4."""
_FLOORS: Final = tuple(band.floor for band in BANDS)
TOP: Final = len(BANDS) - 1
TURNS_A_ROUND: Final = sum(band.weight for band in BANDS)

AGING_A_SECOND: Final = 100
AGING_MAX: Final = 1_000
AGING_TICK_US: Final = 50 * US_PER_MS
_US_A_POINT: Final = US_PER_S // AGING_A_SECOND
_SLACK: Final = 64


def age_boost(waited_us: int) -> int:
    """What waiting adds to a priority."""
    return min(max(waited_us, 0) // _US_A_POINT, AGING_MAX)


def band_of(priority: int) -> int:
    return bisect_right(_FLOORS, priority) - 1


def turns_until_served(older: int) -> int:
    """The bound: rest of a round, then at least one turn a round for each that waited longer."""
    return TURNS_A_ROUND - 1 + TURNS_A_ROUND * (older + 1)


class Turn(NamedTuple, Generic[Item]):
    item: Item
    band: int
    waited_us: int


class _Entry(Generic[Item]):
    __slots__ = ("band", "crossing_us", "forwards", "item", "order", "priority", "since_us")

    def __init__(self, item: Item, since_us: int, order: int, *, forwards: bool) -> None:
        self.item = item
        self.priority = 0
        self.since_us = since_us
        self.order = order
        self.forwards = forwards
        self.band = -1
        """-1 when it is in no band: not yet, or no longer."""
        self.crossing_us = -1
        """When it is old enough for the next band; -1 when it will not be."""


_Heap = list[tuple[int, int, _Entry[Item]]]


class Scheduler(Generic[Item]):
    __slots__ = (
        "_bands",
        "_crossings",
        "_entries",
        "_in_lowest",
        "_order",
        "_tick_us",
        "_turns",
        "deferring",
    )

    def __init__(self) -> None:
        self._entries: dict[Item, _Entry[Item]] = {}
        self._bands: tuple[_Heap[Item], ...] = tuple([] for _ in BANDS)
        """Each band as a heap by waiting time; entries that moved on are passed over."""
        self._crossings: _Heap[Item] = []
        """When an entry is old enough for the next band."""
        self._turns = [0 for _ in BANDS]
        """What is left of this round."""
        self._order = 0
        self._tick_us = 0
        self._in_lowest = 0
        """How many are in band 0."""
        self.deferring = False
        """Under pressure: forwarding goes one band lower, and band 0 gets no turns."""

    def __len__(self) -> int:
        """How many topics are ready."""
        return len(self._entries)

    @property
    def servable(self) -> int:
        """How many of them may be served: all, or all but those that are deferred."""
        return len(self._entries) - (self._in_lowest if self.deferring else 0)

    def __contains__(self, item: Item) -> bool:
        return item in self._entries

    def mark(self, item: Item, priority: int, now_us: int, *, forwards: bool = False) -> bool:
        """There is something to deliver. False when that was known: it keeps its waiting time,
        but counts with its new priority."""
        entry = self._entries.get(item)
        is_new = entry is None
        if entry is None:
            self._order += 1
            entry = _Entry(item, now_us, self._order, forwards=forwards)
            self._entries[item] = entry
        elif entry.priority == priority:
            return False
        entry.priority = priority
        self._enqueue(entry, now_us)
        return is_new

    def drop(self, item: Item) -> None:
        """There is nothing to deliver after all."""
        entry = self._entries.pop(item, None)
        if entry is not None:
            self._leave(entry)

    def take(self, now_us: int) -> Turn[Item] | None:
        """The topic whose turn it is; it leaves the ready set. None when none may be served."""
        if now_us >= self._tick_us:
            self._promote(now_us)
        band = self._next_band()
        if band is None:
            self._turns = [each.weight for each in BANDS]
            band = self._next_band()
            if band is None:
                return None
        self._turns[band] -= 1
        entry = heapq.heappop(self._bands[band])[2]
        self._leave(entry)
        del self._entries[entry.item]
        return Turn(entry.item, band, max(now_us - entry.since_us, 0))

    def _next_band(self) -> int | None:
        for band in range(TOP, -1 if not self.deferring else 0, -1):
            if self._bands[band] and self._turns[band] > 0 and self._has_any(band):
                return band
        return None

    def _has_any(self, band: int) -> bool:
        heap = self._bands[band]
        while heap and heap[0][2].band != band:
            heapq.heappop(heap)
        return bool(heap)

    def _promote(self, now_us: int) -> None:
        """The tick: everyone who is old enough moves up."""
        self._tick_us = now_us + AGING_TICK_US
        while self._crossings and self._crossings[0][0] <= now_us:
            crossing_us, _, entry = heapq.heappop(self._crossings)
            if entry.band >= 0 and entry.crossing_us == crossing_us:  # not of an earlier priority
                self._enqueue(entry, now_us)
        if len(self._crossings) > 2 * len(self._entries) * TOP + _SLACK:
            self._crossings = [each for each in self._crossings if each[2].band >= 0]
            heapq.heapify(self._crossings)

    def _enqueue(self, entry: _Entry[Item], now_us: int) -> None:
        """Put it into the band it belongs to now, and note when it may leave it."""
        boosted = entry.priority + age_boost(now_us - entry.since_us)
        own = band_of(boosted)
        band = max(own - 1, 0) if self.deferring and entry.forwards else own
        entry.crossing_us = -1
        if own < TOP:
            points = BANDS[own + 1].floor - entry.priority
            if points <= AGING_MAX:
                entry.crossing_us = entry.since_us + points * _US_A_POINT
                heapq.heappush(self._crossings, (entry.crossing_us, entry.order, entry))
        if band != entry.band:
            self._leave(entry)
            entry.band = band
            self._in_lowest += band == 0
            heapq.heappush(self._bands[band], (entry.since_us, entry.order, entry))

    def _leave(self, entry: _Entry[Item]) -> None:
        self._in_lowest -= entry.band == 0
        entry.band = -1
