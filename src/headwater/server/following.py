"""The topics one client follows, each from its own cursor. What SSE and WebSocket streams share.

A client that does not read is not pumped: it costs a bounded buffer and loses nothing but what its
topic's own limits take (I14). A cursor belongs to a topic, not to a name: when a topic was dropped
and made again in between, the client is told of the drop first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headwater.core.errors import HeadwaterError
from headwater.engine.topic import Topic
from headwater.server.delivery import Batch, Wish, horizon

if TYPE_CHECKING:
    from headwater.server.app import App
    from headwater.server.exchange import Exchange

BATCHES_AT_ONCE: Final = 16
"""Then everybody else has a turn."""


@dataclass(slots=True, eq=False)
class Place:
    """Where a client stands in a topic."""

    topic_id: int
    address: str
    cursor: int
    wish: Wish
    caught_up: bool = False
    busy: bool = False
    """A read is under way, or the next turn is."""


class Outlet(Protocol):
    """What a stream does with what it is given."""

    @property
    def has_room(self) -> bool:
        """Asked before anything is read or rendered."""

    def send_batch(self, name: str, batch: Batch, *, caught_up: bool) -> None:
        """`caught_up` is true when this batch is the first to reach the end."""

    def send_gone(self, name: str) -> None: ...

    def send_error(self, error: HeadwaterError) -> None: ...

    def adopt(self, topic: Topic) -> bool:
        """Whether to follow a topic that appeared."""


class Following:
    def __init__(self, app: App, exchange: Exchange, outlet: Outlet) -> None:
        self._app = app
        self._exchange = exchange
        self._outlet = outlet
        self._places: dict[str, Place] = {}
        self.ended = False

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def cursors(self) -> Iterator[tuple[str, int]]:
        return ((name, place.cursor) for name, place in self._places.items())

    def follow(self, topic: Topic, cursor: int, wish: Wish) -> None:
        """From now on. A second time puts the client to another place."""
        wish = self._app.delivery.shared(wish)
        self._places[topic.name] = Place(topic.topic_id, topic.address, cursor, wish)
        self._app.delivery.follow(self, topic, strong=wish.strong)

    def unfollow(self, name: str) -> bool:
        place = self._places.pop(name, None)
        if place is not None:
            self._app.delivery.unfollow(self, place.address, strong=place.wish.strong)
        return place is not None

    def end(self) -> None:
        self.ended = True
        for name in list(self._places):
            self.unfollow(name)
        self._app.delivery.remove(self)

    # -- what happens to topics

    def appeared(self, topic: Topic) -> None:
        if topic.name not in self._places and not topic.dropped:
            self._outlet.adopt(topic)

    def pump_all(self) -> None:
        for name in list(self._places):
            topic = self._app.space(name, self._exchange.head.key).find(name)
            if topic is None:
                self._gone(name)
            else:
                self.pump(topic)

    def pump(self, topic: Topic) -> None:
        """Send what the topic has beyond the cursor, as far as the client takes it."""
        name = topic.name
        place = self._places.get(name)
        batches = 0
        while place is not None and not place.busy and not self.ended and self._outlet.has_room:
            if topic.topic_id != place.topic_id:
                if topic.dropped:
                    return  # news of an earlier topic of this name
                self._gone(name)
                self.appeared(topic)
                place = self._places.get(name)
                continue
            if topic.dropped:
                self._gone(name)
                return
            if place.caught_up and place.cursor >= horizon(topic, place.wish):
                return
            batches += 1
            batch = None
            if batches <= BATCHES_AT_ONCE:
                batch = self._app.delivery.read(topic, place.cursor, place.wish)
            if batch is None:
                place.busy = True
                self._app.spawn(self._exchange, self._read_later(topic, place))
                return
            self._take(name, place, batch)

    async def _read_later(self, topic: Topic, place: Place) -> None:
        try:
            batch = await self._app.delivery.read_later(topic, place.cursor, place.wish)
            if self._places.get(topic.name) is place:
                self._take(topic.name, place, batch)
        except HeadwaterError as error:
            if not self.ended:
                self._outlet.send_error(error)
                self.unfollow(topic.name)
        finally:
            place.busy = False
        self.pump(topic)

    def _take(self, name: str, place: Place, batch: Batch) -> None:
        place.cursor = batch.next_from_seq
        is_news = batch.caught_up and not place.caught_up
        place.caught_up = batch.caught_up
        self._outlet.send_batch(name, batch, caught_up=is_news)

    def _gone(self, name: str) -> None:
        if self.unfollow(name):
            self._outlet.send_gone(name)
