"""Backpressure: measures every 100 ms, and moves the engine up and down the governor's ladder; and
whose turn it is among the topics with something to deliver.

For the owner only. The server's loop and the maintenance thread call `tick`, and so does a write
when a sample is due: an idle database is not sampled, and one without a loop needs no thread for
it.

Nearly always one topic is ready, and it is served at once: that one costs an assignment and no
scheduling at all. With several, or while some are deferred, `model.scheduler` decides. How long
turns came late is counted for the governor. A wait that was meant, to batch records or because a
topic is deferred, is not lateness: counting it would make pressure feed itself.

Keeps I13. See docs/decisions/0014-pressure-is-measured-where-work-waits.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

from headwater.core.errors import OverloadedError
from headwater.engine.partition import Partition
from headwater.engine.state.engine_core import EngineCore
from headwater.model.pressure import (
    RETRY_AFTER_MS,
    SAMPLE_US,
    SATURATED_FROM,
    Governor,
    Rung,
    RungChange,
    Signals,
)
from headwater.model.scheduler import Scheduler, base_priority
from headwater.wal.shard import Shard
from headwater.wal.ticket import Ticket

Item = TypeVar("Item", bound=Hashable)
WORKERS: Final = 1
"""Topics are served by one thread, the owner's."""

P = TypeVar("P", bound=Partition)
Listener = Callable[[Sequence[RungChange]], None]


class ReadySet(Generic[Item]):
    """Topics with something to deliver. `priority` is called when there is a choice to make."""

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


class PoolMeter:
    """Which part of a pool of threads was working, over time and not at some moment."""

    def __init__(self, threads: int, now_us: int) -> None:
        self._threads = threads
        self.running = 0
        self._busy_us = 0
        self._since_us = self._at_us = now_us

    def began(self, now_us: int) -> None:
        self._pass(now_us)
        self.running += 1

    def ended(self, now_us: int) -> None:
        self._pass(now_us)
        self.running -= 1

    def busy(self, now_us: int) -> float:
        """Since the last call, 0 to 1."""
        self._pass(now_us)
        passed_us = now_us - self._since_us
        busy = self._busy_us / (passed_us * self._threads) if passed_us > 0 else 0.0
        self._since_us, self._busy_us = now_us, 0
        return busy

    def _pass(self, now_us: int) -> None:
        self._busy_us += min(self.running, self._threads) * (now_us - self._at_us)
        self._at_us = now_us


class _ShardWatch:
    """What one shard of the log looked like at the last sample."""

    def __init__(self, shard: Shard, now_us: int) -> None:
        self.shard = shard
        self._refused = 0
        self._oldest: Ticket | None = None
        self._seen_us = now_us

    def newly_refused(self) -> bool:
        refused, self._refused = self._refused, self.shard.counters.submit_full
        return self._refused != refused

    def stall_us(self, oldest: Ticket | None, now_us: int) -> int:
        """For how long this very ticket has been the oldest without an answer."""
        if oldest is None or oldest is not self._oldest:
            self._oldest, self._seen_us = oldest, now_us
        return now_us - self._seen_us


class PressureControl:
    def __init__(self, core: EngineCore) -> None:
        assert core.wal is not None
        self._core = core
        now_us = core.clock.monotonic_us()
        self.governor = Governor()
        self.pool = PoolMeter(core.settings.reader_threads, now_us)
        self.transitions: Counter[tuple[Rung, bool]] = Counter()
        """How often each rung was entered (True) and left."""
        self.coalesce_us = 0
        """How long updates may wait for more of them."""
        self.writes_refused = 0
        self.listeners: list[Listener] = []
        """Called with transitions, after they took effect."""
        self._ready_sets: list[ReadySet[Any]] = []
        self._shards = [_ShardWatch(shard, now_us) for shard in core.wal.shards]
        self._due_us = now_us + SAMPLE_US

    # -- for other parts

    @property
    def ready_topics(self) -> int:
        return sum(ready.size for ready in self._ready_sets)

    def ready_set(self, *, forwards: bool = False) -> ReadySet[P]:
        """A set of topics whose turns the governor watches, and defers under pressure. What
        forwards is done in the background: its turns are deferred, but they are no pressure."""
        ready: ReadySet[P] = ReadySet(self._priority, forwards=forwards)
        ready.defer(self.governor.defers)
        self._ready_sets.append(ready)
        return ready

    @property
    def refuses(self) -> bool:
        """No writes are taken now."""
        return self._core.refusing

    def refuse(self) -> OverloadedError:
        """Why a write is not taken now. Counts it."""
        self.writes_refused += 1
        return OverloadedError(
            "more is being written than the disk takes; nothing was written, try again",
            retry_after_ms=RETRY_AFTER_MS,
            detail={"pressure": round(self.governor.pressure, 3)},
        )

    # -- the sample

    def tick(self) -> None:
        """A sample, if one is due."""
        now_us = self._core.clock.monotonic_us()
        if now_us < self._due_us:
            return
        self.governor.skip((now_us - self._due_us) // SAMPLE_US)
        self._due_us = now_us + SAMPLE_US
        transitions = self.governor.sample(self._signals(now_us))
        self._apply()
        for transition in transitions:
            self.transitions[transition.rung, transition.entered] += 1
        if transitions:
            for listener in self.listeners:
                listener(transitions)

    def _signals(self, now_us: int) -> Signals:
        core = self._core
        ready = turns = late_us = 0
        for each in self._ready_sets:
            its_turns, its_late_us = each.lateness()
            if each.forwards:
                continue
            ready += each.servable
            turns += its_turns
            late_us += its_late_us
        fill = core.tail_bytes / core.settings.tail_bytes_max
        refused, stall_us = False, 0
        for watch, progress in zip(self._shards, core.shards, strict=True):
            fill = max(fill, watch.shard.queue_fill)
            refused |= watch.newly_refused()
            oldest = progress.pending[0] if progress.pending else None
            stall_us = max(stall_us, watch.stall_us(oldest, now_us))
        return Signals(
            ready_depth=ready,
            workers=WORKERS,
            latency_us=late_us // turns if turns else 0,
            pool_busy=self.pool.busy(now_us),
            channel_full=refused or fill >= SATURATED_FROM,
            backlog=fill,
            stall_us=stall_us,
        )

    def _apply(self) -> None:
        governor = self.governor
        self.coalesce_us = governor.coalesce_us
        window_pressure = governor.pressure if Rung.WIDEN in governor.rungs else 0.0
        for watch in self._shards:
            watch.shard.window.set_pressure(window_pressure)
        for ready in self._ready_sets:
            if ready.deferring is not governor.defers:
                ready.defer(governor.defers)
        self._core.refusing = governor.refuses()

    def _priority(self, topic: Partition) -> int:
        settings = topic.settings
        return base_priority(
            settings.priority,
            settings.auto_priority,
            topic.last_read_ts,
            self._core.clock.wall_ms(),
        )
