"""Delivery of new records to streams: topics with updates, each served in its turn.

A write makes its topic ready; delivery runs after the acks of that commit are out, a few turns at
a time, so that requests are served in between. Each follower of a topic is pumped from its own
cursor. What several streams want from one position is read and rendered once; it is kept for that
turn only, so that nothing deleted since is ever sent.

Under pressure turns wait a little, so that records share frames, and topics of band 0 wait until
it is gone. They lose nothing by that: what is theirs can be read at any time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from headwater.core.clock import Clock
from headwater.core.results import Tombstone
from headwater.core.units import US_PER_S
from headwater.engine.partition import Partition, ReadPlan, Wakeup
from headwater.engine.pressure import PressureControl, ReadySet
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import (
    DiffRequest,
    ReadResult,
    Take,
    Taken,
    ensure_loaded,
    read_as_operation,
)
from headwater.engine.topics.reader import ReadFilter, TopicReadPlan
from headwater.model.match import TagMatcher
from headwater.model.scheduler import TURNS_A_ROUND
from headwater.server.backend import Backend
from headwater.server.http.json_rows import take_rendered
from headwater.server.streams.open_streams import OpenStreams
from headwater.wire.frames import Projection


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ReadOptions:
    """What a stream reads: the same options at the same position get the same bytes.

    Streams with equal options share one object, see `Delivery.shared`: to compare or to hash it
    field by field would take longer than anything else that is done for a stream.
    """

    projection: Projection
    limit: int
    bytes_max: int
    nodes: frozenset[bytes]
    matcher: TagMatcher | None
    strong: bool = False
    """Only what is on stable storage, whatever the topic's class acks."""


_OPTION_VALUES: Final = attrgetter(*(field.name for field in fields(ReadOptions)))


@dataclass(slots=True, eq=False)
class Batch:
    """Rendered records, and where a stream stands behind them."""

    records: bytes
    count: int
    from_seq: int
    next_from_seq: int
    head_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    message: bytes | None = None
    """The same as a message, once a stream has made one of it. All streams say it alike."""
    event: bytes | None = None
    """The same with the cursor of those who follow this topic and no other."""


class TopicFollower(Protocol):
    def pump(self, topic: Partition) -> None:
        """Send what the topic has beyond this client's cursor, as far as the client takes it."""

    def appeared(self, topic: Partition) -> None:
        """A topic that it may not know has something new."""


def horizon(topic: Partition, options: ReadOptions) -> int:
    """The last seq such a stream may be given now."""
    if not options.strong:
        return topic.visible_seq
    assert isinstance(topic, Topic), "no other is watched with consistency strong"
    return topic.synced_seq


class Delivery:
    def __init__(
        self,
        backend: Backend,
        streams: OpenStreams,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.backend = backend
        self.streams = streams
        self._loop = loop
        self._now_us = clock.monotonic_us
        self._followers: dict[str, set[TopicFollower]] = {}
        self._prefix_watchers: set[TopicFollower] = set()
        self._wakeups: dict[str, Wakeup] = {}
        self._strong: Counter[str] = Counter()
        self._pressure_control: PressureControl | None = None
        self._ready: ReadySet[Partition]
        self._scheduled = False
        self._delivering = False
        self._rendered: dict[tuple[int, int, ReadOptions], Batch] = {}
        self._shared: WeakValueDictionary[tuple[Any, ...], ReadOptions] = WeakValueDictionary()

    def govern(self, pressure_control: PressureControl) -> None:
        """Recovery is done: there will be updates."""
        self._pressure_control = pressure_control
        self._ready = pressure_control.ready_set()

    def follow(self, follower: TopicFollower, topic: Partition, *, strong: bool) -> None:
        address = topic.address
        followers = self._followers.setdefault(address, set())
        if follower not in followers:
            followers.add(follower)
            self._strong[address] += strong
        if not topic.is_announced:
            self._register_wakeup(topic)

    def unfollow(self, follower: TopicFollower, address: str, *, strong: bool) -> None:
        followers = self._followers.get(address)
        if followers is None or follower not in followers:
            return
        followers.discard(follower)
        if not followers:
            del self._followers[address]
            self._wakeups.pop(address, None)
        self._strong[address] -= strong
        if not self._strong[address]:
            del self._strong[address]

    def _register_wakeup(self, topic: Partition) -> None:
        """Waiters are called once for an update; what is announced always calls us."""
        wakeup = self._wakeups.get(topic.address)
        if wakeup is None:
            wakeup = self._wakeups[topic.address] = partial(self._on_wakeup, topic)
        topic.waiters.add(wakeup)

    def _on_wakeup(self, topic: Partition) -> None:
        if topic.address in self._followers:
            topic.waiters.add(self._wakeups[topic.address])
            self._mark(topic)

    def watch_prefixes(self, follower: TopicFollower) -> None:
        self._prefix_watchers.add(follower)

    def remove(self, follower: TopicFollower) -> None:
        """A follower that follows nothing any more."""
        self._prefix_watchers.discard(follower)

    # -- updates

    def on_news(self, topic: Partition) -> None:
        """A topic has something new. Called by the engine, as the owner, for every write."""
        if topic.name not in self._followers and not self._prefix_watchers:
            return
        self._mark(topic)

    def _mark(self, topic: Partition) -> None:
        now_us = self._now_us()
        self._ready.mark(topic, now_us)
        if not self._scheduled:
            self._schedule(now_us)

    def on_synced(self, topic: Partition) -> None:
        """Records that were visible before are synced now."""
        if topic.name in self._strong:
            self.on_news(topic)

    def resume(self) -> None:
        """Those who wait may be served by now: pressure went, or they have grown old."""
        if self._pressure_control is not None and self._ready.size and not self._scheduled:
            self._schedule(self._now_us())

    def _schedule(self, now_us: int) -> None:
        assert self._pressure_control is not None
        self._scheduled = True
        wait_us = self._pressure_control.coalesce_us
        self._ready.not_before_us = now_us + wait_us
        if wait_us:
            self._loop.call_later(wait_us / US_PER_S, self._deliver)
        else:
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """As many turns as a round has. Then everything else the loop has to do comes first."""
        ready, now_us = self._ready, self._now_us
        turns = TURNS_A_ROUND
        self._delivering = True
        try:
            while turns and ready.size and (topic := ready.take(now_us())) is not None:
                turns -= 1
                self._serve(topic)
        finally:
            self._delivering = False
            self._rendered.clear()
            self._scheduled = ready.size > 0 and ready.servable > 0
            if self._scheduled:
                self._loop.call_soon(self._deliver)

    def _serve(self, topic: Partition) -> None:
        if topic.is_announced:
            for watcher in list(self._prefix_watchers):
                watcher.appeared(topic)
        for follower in list(self._followers.get(topic.address, ())):
            follower.pump(topic)
        self._rendered.clear()

    # -- reading for streams

    def shared(self, options: ReadOptions) -> ReadOptions:
        """The one object for all equal options."""
        return self._shared.setdefault(_OPTION_VALUES(options), options)

    def read(self, topic: Partition, cursor: int, options: ReadOptions) -> Batch | None:
        """The next batch if no file is needed; None when it must be read later."""
        key = (topic.topic_id, cursor, options)
        known = self._rendered.get(key)
        if known is not None:
            return known
        if not topic.loaded:
            return None
        last_seq = horizon(topic, options)
        operation = read_as_operation(
            self.backend.engine, topic, _request(cursor, options), _take(options, last_seq)
        )
        result = self.backend.ready_database.driver.drive_at_once(operation)
        if result is None:
            return None
        batch = _batch(result, cursor, options, last_seq)
        if self._delivering:
            self._rendered[key] = batch
        return batch

    async def read_later(self, topic: Partition, cursor: int, options: ReadOptions) -> Batch:
        database, engine = self.backend.ready_database, self.backend.engine
        await database.drive(ensure_loaded(topic))
        last_seq = horizon(topic, options)
        take = _take(options, last_seq)
        result = await database.drive(
            read_as_operation(engine, topic, _request(cursor, options), take)
        )
        return _batch(result, cursor, options, last_seq)


def _request(cursor: int, options: ReadOptions) -> DiffRequest:
    return DiffRequest(cursor, options.limit, options.bytes_max, 0, options.nodes, options.matcher)


def _take(options: ReadOptions, last_seq: int) -> Take[bytes]:
    take = take_rendered(options.projection)
    if not options.strong:
        return take

    def take_synced(plan: ReadPlan, keep: ReadFilter) -> Taken[bytes]:
        """Only the tail can hold what is not synced: segments are, before they count."""
        assert isinstance(plan, TopicReadPlan)
        return take(plan.upto(last_seq), keep)

    return take_synced


def _batch(result: ReadResult[bytes], cursor: int, options: ReadOptions, last_seq: int) -> Batch:
    next_from_seq, caught_up = result.next_from_seq, result.caught_up
    if options.strong and next_from_seq > last_seq:
        lost_to = 0 if result.tombstone is None else result.tombstone.gap_to
        next_from_seq = max(last_seq, min(cursor, next_from_seq), lost_to)
        caught_up = True
    return Batch(
        b"[%b]" % result.payload,
        result.records,
        cursor,
        next_from_seq,
        result.head_seq,
        caught_up,
        result.tombstone,
    )
