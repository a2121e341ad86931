"""Delivery of new records to streams: dirty topics, each served once per round.

A write marks its topic dirty; delivery runs after the acks of that commit are out. Whoever follows
a topic is pumped from its own cursor: a stream whose client does not read is simply not pumped,
costs nobody anything and loses nothing (I14). What several streams want at the same place is read
and rendered once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headwater.engine.steps import DiffRequest, Found, found_steps, loaded_steps
from headwater.engine.topic import Topic
from headwater.model.loss import Tombstone
from headwater.model.match import TagMatcher
from headwater.server.rendering import take_rendered
from headwater.wire.render import Projection

if TYPE_CHECKING:
    from headwater.server.app import App
    from headwater.server.connection import HttpConnection

RENDERED_MAX: Final = 512
"""Batches kept for the next stream that wants the same."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a stream reads: equal wishes at equal places get the same bytes."""

    projection: Projection
    limit: int
    bytes_max: int
    nodes: frozenset[bytes]
    matcher: TagMatcher | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rendered records, and where a stream stands behind them."""

    records: bytes
    count: int
    from_seq: int
    next_from_seq: int
    head_seq: int
    caught_up: bool
    tombstone: Tombstone | None


class Follower(Protocol):
    """A stream, as delivery knows it."""

    @property
    def connection(self) -> HttpConnection: ...

    def pump(self, topic: Topic) -> None:
        """Send what the topic has beyond this stream's cursor, as far as the client takes it."""

    def pump_all(self) -> None: ...

    def new_topic(self, topic: Topic) -> bool:
        """A topic appeared; True when this stream follows it from now on."""

    def beat(self, now_us: int) -> None:
        """Send a heartbeat if nothing was sent for a while."""

    def end(self) -> None: ...


class Delivery:
    def __init__(self, app: App) -> None:
        self._app = app
        self._followers: dict[str, set[Follower]] = {}
        self._streams: set[Follower] = set()
        self._prefix_watchers: set[Follower] = set()
        self._known: set[str] = set()
        self._ready: dict[int, Topic] = {}
        self._scheduled = False
        self._rendered: OrderedDict[tuple[int, int, int, Wish], Batch] = OrderedDict()

    @property
    def streams(self) -> int:
        return len(self._streams)

    def add(self, follower: Follower, names: list[str], *, watches_prefixes: bool) -> None:
        self._streams.add(follower)
        for name in names:
            self.follow(follower, name)
        if watches_prefixes:
            self._prefix_watchers.add(follower)

    def follow(self, follower: Follower, name: str) -> None:
        self._followers.setdefault(name, set()).add(follower)

    def unfollow(self, follower: Follower, name: str) -> None:
        followers = self._followers.get(name)
        if followers is not None:
            followers.discard(follower)
            if not followers:
                del self._followers[name]

    def remove(self, follower: Follower, names: list[str]) -> None:
        self._streams.discard(follower)
        self._prefix_watchers.discard(follower)
        for name in names:
            self.unfollow(follower, name)

    # -- news

    def on_news(self, topic: Topic) -> None:
        """A topic has something new. Called by the engine, as the owner, for every write."""
        if not self._streams:
            return
        if topic.name not in self._followers and not self._prefix_watchers:
            return
        self._ready[topic.topic_id] = topic
        if not self._scheduled:
            self._scheduled = True
            self._app.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        ready, self._ready = self._ready, {}
        for topic in ready.values():
            for watcher in list(self._prefix_watchers):
                watcher.new_topic(topic)
            for follower in list(self._followers.get(topic.name, ())):
                follower.pump(topic)

    # -- reading for streams

    def read(self, topic: Topic, cursor: int, wish: Wish) -> Batch | None:
        """The next batch if no file is needed; None when it must be read later."""
        key = (topic.topic_id, cursor, topic.log.visible_seq, wish)
        known = self._rendered.get(key)
        if known is not None:
            return known
        if not topic.loaded:
            return None
        request = self._request(cursor, wish)
        take = take_rendered(wish.projection)
        steps = found_steps(self._app.engine, topic, request, take)
        found = self._app.ready_database.drive_at_once(steps)
        return None if found is None else self._keep(key, found)

    async def read_later(self, topic: Topic, cursor: int, wish: Wish) -> Batch:
        database, engine = self._app.ready_database, self._app.engine
        await database.drive(loaded_steps(engine, topic))
        key = (topic.topic_id, cursor, topic.log.visible_seq, wish)
        take = take_rendered(wish.projection)
        request = self._request(cursor, wish)
        found = await database.drive(found_steps(engine, topic, request, take))
        return self._keep(key, found)

    def _request(self, cursor: int, wish: Wish) -> DiffRequest:
        return DiffRequest(cursor, wish.limit, wish.bytes_max, 0, wish.nodes, wish.matcher)

    def _keep(self, key: tuple[int, int, int, Wish], found: Found[bytes]) -> Batch:
        batch = Batch(
            b"[%b]" % found.payload,
            found.records,
            key[1],
            found.next_from_seq,
            found.head_seq,
            found.caught_up,
            found.tombstone,
        )
        self._rendered[key] = batch
        if len(self._rendered) > RENDERED_MAX:
            self._rendered.popitem(last=False)
        return batch

    # -- slow clients and silence

    def paused(self, connection: HttpConnection) -> None:
        """Nothing to do: a stream asks its connection before it sends."""

    def resumed(self, connection: HttpConnection) -> None:
        for follower in list(self._streams):
            if follower.connection is connection:
                follower.pump_all()

    def heartbeat(self, now_us: int) -> None:
        for follower in list(self._streams):
            follower.beat(now_us)

    def close_all(self) -> None:
        for follower in list(self._streams):
            follower.end()
