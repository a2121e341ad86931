"""Following transitions for one client: history first, then live, at the pace it takes them.

What RCPX subscriptions, event streams and webhooks have in common. A transition is printed once,
however many follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.core.units import MIB
from headwater.engine.machines import log_reader, operations, responses
from headwater.observe.logs import Logger
from headwater.server.backend import Backend

if TYPE_CHECKING:
    from headwater.engine.machines.log_reader import GapReason
    from headwater.engine.machines.watchers import CatchUpPlan, Missed, TransitionEvent, Watcher

EVENTS_AT_ONCE: Final = 16
"""Each may have a payload and a context of a MiB; whether there is room is seen after that."""
PRINTED_BYTES_MAX: Final = 8 * MIB
ENTRY_BYTES: Final = 256
"""What remembering one costs besides."""
_encode = msgspec.json.Encoder().encode


class TransitionCache:
    """Transitions as JSON: each with its context, and without."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool, str], bytes] = {}
        self._bytes = 0

    def of(self, event: TransitionEvent, *, with_ctx: bool) -> bytes:
        with_ctx = with_ctx and event.ctx is not None
        key = (event.wal_offset, with_ctx, event.instance_id)  # tenants have it by their own id
        page = self._known.get(key)
        if page is None:
            if self._bytes >= PRINTED_BYTES_MAX:
                self._known.clear()
                self._bytes = 0
            page = self._known[key] = _printed(event, with_ctx)
            self._bytes += len(page) + ENTRY_BYTES
        return page


def _printed(event: TransitionEvent, with_ctx: bool) -> bytes:
    return _encode(responses.transition(event if with_ctx else event._replace(ctx=None)))


class TransitionFeed:
    """What all followers share. Those with new events in this turn of the loop are served one
    after the other: a hundred followers of one transition cost the loop one call."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop, log: Logger) -> None:
        self.backend = backend
        self.loop = loop
        self.log = log
        self.cache = TransitionCache()
        self._waiting: list[TransitionFollower] = []

    def serve(self, follower: TransitionFollower) -> None:
        """In this turn of the loop, behind what it has to do first."""
        self._waiting.append(follower)
        if len(self._waiting) == 1:
            self.loop.call_soon(self._go)

    def _go(self) -> None:
        waiting, self._waiting = self._waiting, []
        broken = None
        for follower in waiting:
            try:
                follower.run()
            except Exception as error:  # the followers behind it are served all the same (I14)
                broken = broken or error
        if broken is not None:
            raise broken


class EventSink(Protocol):
    """Where transitions go."""

    @property
    def has_room(self) -> bool: ...

    def send_events(self, events: Sequence[TransitionEvent]) -> None: ...

    def send_missed(
        self, first_offset: int, last_offset: int, count: int | None, reason: GapReason
    ) -> None:
        """These could not be delivered; `count` is not known of those that are gone."""

    def end(self) -> None:
        """There will be no more."""


class TransitionFollower:
    """The owner's, as its watcher is."""

    def __init__(
        self,
        feed: TransitionFeed,
        watcher: Watcher,
        sink: EventSink,
        read_again: Callable[[int], CatchUpPlan] | None = None,
    ) -> None:
        """`read_again`: what was missed is read from the log instead of reported as missed."""
        self._feed = feed
        self._watcher = watcher
        self._sink = sink
        self._read_again = read_again
        self._catching_up: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._scheduled = False

    def begin(self) -> None:
        self._watcher.on_events = self._on_event
        if self._watcher.catch_up is not None:
            self._begin_catching_up(self._watcher.catch_up)
        else:
            self._on_event()

    def _begin_catching_up(self, plan: CatchUpPlan) -> None:
        self._catching_up = self._feed.loop.create_task(self._catch_up(plan))

    @property
    def is_up_to_date(self) -> bool:
        """Everything that was committed and wanted is in the sink."""
        return self._catching_up is None and self._watcher.is_up_to_date

    def _on_event(self) -> None:
        """Something is new: run once for all events of a commit."""
        if not self._scheduled:
            self._scheduled = True
            self._feed.serve(self)

    def run(self) -> None:
        self._scheduled = False
        self.pump()

    def pump(self) -> None:
        """Hand over what is there, as long as there is room."""
        if self._catching_up is not None:
            self._room.set()
            return
        watcher, sink = self._watcher, self._sink
        while sink.has_room and not watcher.closed:
            events, missed = watcher.next(EVENTS_AT_ONCE)
            if missed is not None and self._read_again is not None:
                # Now, before anything else is committed: the buffer goes on where the plan ends.
                self._begin_catching_up(self._read_again(missed.first_offset))
                return
            if missed is not None:
                self._send_gap(missed)
            elif events:
                sink.send_events(events)
            if watcher.is_up_to_date and not watcher.closed:
                return
        if watcher.closed:
            sink.end()

    def _send_gap(self, missed: Missed) -> None:
        first, last, count = missed
        self._sink.send_missed(first, last, count, log_reader.GapReason.BEHIND)

    async def _catch_up(self, plan: CatchUpPlan) -> None:
        """Read the log part by part. Ends the follower when it cannot be read."""
        following: CatchUpPlan | None = plan
        drive = self._feed.backend.ready_database.drive
        try:
            while following is not None and not self._watcher.closed:
                page = await drive(operations.catch_up_operation(following))
                for run in page.runs():
                    if isinstance(run, log_reader.LogGap):
                        self._sink.send_missed(run.offset, run.resume - 1, None, run.reason)
                    else:
                        await self._hand_over(run)
                following = page.following
        except (HeadwaterError, OSError) as error:
            self._feed.log.warning("a watch ended: the log cannot be read", error=str(error))
            self.close()
            self._sink.end()
            return
        self._catching_up = None
        self.pump()

    async def _hand_over(self, events: Sequence[TransitionEvent]) -> None:
        for at in range(0, len(events), EVENTS_AT_ONCE):
            while not self._sink.has_room and not self._watcher.closed:
                self._room.clear()
                await self._room.wait()
            if self._watcher.closed:
                return
            self._sink.send_events(events[at : at + EVENTS_AT_ONCE])

    def close(self) -> None:
        """The client is gone."""
        self._watcher.on_events = None
        self._watcher.close()
        self._room.set()
        if self._catching_up is not None:
            self._catching_up.cancel()
