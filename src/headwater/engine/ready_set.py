"""Topics with something to deliver, and whose turn is next.

Nearly always one topic is ready, and it is served at once: that one costs an assignment and no
scheduling at all. With several, or while some are deferred, `model.scheduler` decides.

How long turns came late is counted for the governor. A wait that was meant, to batch records or
because a topic is deferred, is not lateness: counting it would make pressure feed itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from headwater.model.scheduler import Scheduler

Item = TypeVar("Item", bound=Hashable)


class ReadySet(Generic[Item]):
    """For the owner only. `priority` is called when there is a choice to make."""

    def __init__(self, priority: Callable[[Item], int], *, forwards: bool = False) -> None:
        self._priority = priority
        self.forwards = forwards
        self._scheduler: Scheduler[Item] = Scheduler()
        self._only: Item | None = None
        self._only_since_us = 0
        self._turns = 0
        self._late_us = 0
        self.size = 0
        """How many there are, deferred ones too."""
        self.not_before_us = 0
        """When serving was last meant to begin; no turn is late before that."""

    @property
    def servable(self) -> int:
        """How many may have a turn now."""
        return self._scheduler.servable + (self._only is not None)

    @property
    def deferring(self) -> bool:
        return self._scheduler.deferring

    def defer(self, deferring: bool) -> None:
        """Under pressure: what forwards goes one band lower, and band 0 gets no turns."""
        self._scheduler.deferring = deferring
        if deferring:
            self._queue_only()

    def mark(self, item: Item, now_us: int) -> None:
        """There is something to deliver. It is in the set once, and keeps the time it was
        marked."""
        if item is self._only:
            return
        scheduler = self._scheduler
        if not self.size and not scheduler.deferring:
            self._only, self._only_since_us, self.size = item, now_us, 1
            return
        self._queue_only()
        self.size += scheduler.mark(item, self._priority(item), now_us, forwards=self.forwards)

    def take(self, now_us: int) -> Item | None:
        """Whose turn it is; it leaves the set. None when nothing may be served."""
        item = self._only
        if item is not None:
            self._only = None
            waited_us = now_us - self._only_since_us
        else:
            turn = self._scheduler.take(now_us) if self.size else None
            if turn is None:
                return None
            item, waited_us = turn.item, turn.waited_us
        self.size -= 1
        self._turns += 1
        late_us = min(waited_us, now_us - self.not_before_us)
        if late_us > 0:
            self._late_us += late_us
        return item

    def lateness(self) -> tuple[int, int]:
        """How many turns there were since the last call, and how late they came in all."""
        result = self._turns, self._late_us
        self._turns = self._late_us = 0
        return result

    def _queue_only(self) -> None:
        """There is a choice now: the only one joins the others in the scheduler."""
        only = self._only
        if only is not None:
            self._only = None
            priority = self._priority(only)
            self._scheduler.mark(only, priority, self._only_since_us, forwards=self.forwards)
