"""Following transitions: live from memory, earlier ones from the log.

A slow watcher costs only itself (I14): its buffer is bounded, and what did not fit is reported as a
range of offsets, which it can read from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from headwater.api.machine_requests import WatchFilter
from headwater.engine.machines.log_reader import CommittedLog, LogGap, body_of
from headwater.engine.machines.tables import EntryEffect
from headwater.format.machines.bodies import ApplyEventEntry
from headwater.format.machines.entry import EntryType

CATCH_UP_EVENTS: Final = 1_000


class TransitionEvent(NamedTuple):
    wal_offset: int
    instance_id: str
    machine: str
    version: int
    event: str
    from_state: str
    to_state: str
    at: int
    """Milliseconds since 1970."""
    payload: bytes | None
    """JSON."""
    ctx: bytes | None
    """JSON, after the event; not known of events that are read from the log."""
    event_id: str | None


def event_of(offset: int, body: ApplyEventEntry, ctx: bytes | None) -> TransitionEvent:
    return TransitionEvent(
        offset, body.instance_id, body.machine, body.version, body.event, body.from_state,
        body.to_state, body.at, body.payload_json, ctx, body.event_id,
    )  # fmt: skip


class Missed(NamedTuple):
    """Transitions that did not fit into the buffer; all of them are in the log."""

    first_offset: int
    last_offset: int
    events: int
    """How many, of those that were wanted."""


class Watched(NamedTuple):
    events: list[TransitionEvent]
    missed: Missed | None
    """Told when the buffer is empty: it comes after all events that were given before."""


class CaughtUp(NamedTuple):
    events: list[TransitionEvent]
    following: CatchUpPlan | None
    """What is still to be read; None when the watcher's buffer goes on from here."""
    gaps: list[LogGap]
    """What could not be read, among the events or before them: transitions may be missing there."""

    def in_order(self) -> list[TransitionEvent | LogGap]:
        """Both begin with where they are."""
        items: list[TransitionEvent | LogGap] = [*self.events, *self.gaps]
        return sorted(items, key=_offset_of) if self.gaps else items

    def runs(self) -> Iterator[list[TransitionEvent] | LogGap]:
        """The events, interrupted by gaps."""
        events: list[TransitionEvent] = []
        for each in self.in_order():
            if isinstance(each, LogGap):
                yield events
                yield each
                events = []
            else:
                events.append(each)
        yield events


def _offset_of(item: TransitionEvent | LogGap) -> int:
    return item[0]


@dataclass(frozen=True, slots=True)
class CatchUpPlan:
    """Earlier transitions, read from the log in any thread, a part at a time."""

    log: CommittedLog
    start: int
    wanted: WatchFilter
    limit: int = CATCH_UP_EVENTS
    keep: Callable[[int | None], None] | None = None
    """Told from where on the log is still needed for it; None: not at all any more."""

    def read(self) -> CaughtUp:
        events: list[TransitionEvent] = []
        gaps: list[LogGap] = []
        following = None
        for offset, entry in self.log.walk(self.start, gaps):
            if len(events) == self.limit:
                following = replace(self, start=offset)
                break
            body = body_of(entry) if entry.kind is EntryType.APPLY_EVENT else None
            if isinstance(body, ApplyEventEntry):
                event = event_of(offset, body, None)
                if self.wanted.wants(event):
                    events.append(event)
        if self.keep is not None:
            self.keep(None if following is None else following.start)
        return CaughtUp(events, following, gaps)


class Watcher:
    """One who follows. The owner's; `on_events` is called when the buffer was empty before."""

    def __init__(
        self,
        wanted: WatchFilter,
        events_max: int,
        catch_up: CatchUpPlan | None,
        close: Callable[[Watcher], None],
    ) -> None:
        self.wanted = wanted
        self.catch_up = catch_up
        """Read this first, part by part, until nothing is following."""
        self.on_events: Callable[[], None] | None = None
        self.closed = False
        self._events_max = events_max
        self._buffer: deque[TransitionEvent] = deque()
        self._missed: Missed | None = None
        self._close = close

    def __len__(self) -> int:
        return len(self._buffer)

    @property
    def is_up_to_date(self) -> bool:
        """Everything that was committed and wanted is handed over."""
        return not self._buffer and self._missed is None

    def offer(self, event: TransitionEvent) -> None:
        if not self.wanted.wants(event):
            return
        buffer, missed = self._buffer, self._missed
        quiet = not buffer and missed is None
        if missed is not None or len(buffer) >= self._events_max:
            self._miss(event)
        else:
            buffer.append(event)
        if quiet and self.on_events is not None:
            self.on_events()

    def _miss(self, event: TransitionEvent) -> None:
        first, count = event.wal_offset, 0
        if self._missed is not None:
            first, count = self._missed.first_offset, self._missed.events
        self._missed = Missed(first, event.wal_offset, count + 1)

    def next(self, limit: int = 1_000) -> Watched:
        """What is there, oldest first. What was missed is reported once the buffer is empty."""
        buffer = self._buffer
        if not buffer:
            missed, self._missed = self._missed, None
            return Watched([], missed)
        if len(buffer) <= limit:
            events = list(buffer)
            buffer.clear()
            return Watched(events, None)
        return Watched([buffer.popleft() for _ in range(limit)], None)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.catch_up is not None and self.catch_up.keep is not None:
                self.catch_up.keep(None)
            self._buffer.clear()
            self._close(self)


class Watchers:
    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._all: dict[Watcher, None] = {}
        self._by_instance: dict[str, dict[Watcher, None]] = {}

    def __len__(self) -> int:
        return len(self._all) + sum(map(len, self._by_instance.values()))

    def add(self, wanted: WatchFilter, catch_up: CatchUpPlan | None) -> Watcher:
        watcher = Watcher(wanted, self._events_max, catch_up, self._remove)
        self._watchers_of(wanted)[watcher] = None
        return watcher

    def publish(self, effects: Iterable[EntryEffect]) -> None:
        for effect in effects:
            body = effect.body
            if type(body) is not ApplyEventEntry:
                continue
            interested = self._by_instance.get(body.instance_id, {})
            if not interested and not self._all:
                continue
            assert effect.after is not None
            event = event_of(effect.offset, body, effect.after.ctx)
            for watcher in (*interested, *self._all):
                watcher.offer(event)

    def close(self) -> None:
        for watcher in [*self._all, *(w for each in self._by_instance.values() for w in each)]:
            watcher.closed = True
            if watcher.on_events is not None:
                watcher.on_events()
        self._all.clear()
        self._by_instance.clear()

    def _watchers_of(self, wanted: WatchFilter) -> dict[Watcher, None]:
        if wanted.instance_id is None:
            return self._all
        return self._by_instance.setdefault(wanted.instance_id, {})

    def _remove(self, watcher: Watcher) -> None:
        watchers = self._watchers_of(watcher.wanted)
        watchers.pop(watcher, None)
        if not watchers and watcher.wanted.instance_id is not None:
            self._by_instance.pop(watcher.wanted.instance_id, None)
