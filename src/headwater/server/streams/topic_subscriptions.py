"""The topics one client follows, each from its own cursor. What SSE and WebSocket streams share.

A client that does not read is not pumped: it costs a bounded buffer and loses nothing but what its
topic's own limits take (I14). A cursor belongs to a topic, not to a name: when a topic was dropped
and made again in between, the client gets the drop first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headwater.core.errors import HeadwaterError
from headwater.engine.partition import Partition
from headwater.server.streams.delivery import Batch, Delivery, ReadOptions, horizon

if TYPE_CHECKING:
    from headwater.server.http.exchange import Exchange

BATCHES_AT_ONCE: Final = 16
"""Then others have a turn."""


@dataclass(slots=True, eq=False)
class TopicSubscription:
    """Where a client stands in a topic."""

    topic_id: int
    address: str
    cursor: int
    options: ReadOptions
    caught_up: bool = False
    busy: bool = False
    """A read is under way, or the next turn is."""


class RecordSink(Protocol):
    """What a stream does with what it is given."""

    @property
    def has_room(self) -> bool:
        """Checked before anything is read or rendered."""

    def send_batch(self, name: str, batch: Batch, *, caught_up: bool) -> None:
        """`caught_up` is true when this batch is the first to reach the end."""

    def send_gone(self, name: str) -> None: ...

    def send_error(self, error: HeadwaterError) -> None: ...

    def adopt(self, topic: Partition) -> bool:
        """Whether to follow a topic that appeared."""


class TopicSubscriptions:
    def __init__(self, delivery: Delivery, exchange: Exchange, sink: RecordSink) -> None:
        self._delivery = delivery
        self._exchange = exchange
        self._sink = sink
        self._by_name: dict[str, TopicSubscription] = {}
        self.ended = False

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def cursors(self) -> Iterator[tuple[str, int]]:
        return ((name, subscription.cursor) for name, subscription in self._by_name.items())

    def follow(self, topic: Partition, cursor: int, options: ReadOptions) -> None:
        """From now on. A second time moves the cursor."""
        options = self._delivery.shared(options)
        self._by_name[topic.name] = TopicSubscription(
            topic.topic_id, topic.address, cursor, options
        )
        self._delivery.follow(self, topic, strong=options.strong)

    def unfollow(self, name: str) -> bool:
        subscription = self._by_name.pop(name, None)
        if subscription is not None:
            self._delivery.unfollow(self, subscription.address, strong=subscription.options.strong)
        return subscription is not None

    def end(self) -> None:
        self.ended = True
        for name in list(self._by_name):
            self.unfollow(name)
        self._delivery.remove(self)

    # -- what happens to topics

    def appeared(self, topic: Partition) -> None:
        if topic.name not in self._by_name and not topic.dropped:
            self._sink.adopt(topic)

    def pump_all(self) -> None:
        for name in list(self._by_name):
            topic = self._delivery.backend.space(name, self._exchange.head.key).find(name)
            if topic is None:
                self._gone(name)
            else:
                self.pump(topic)

    def pump(self, topic: Partition) -> None:
        """Send what the topic has beyond the cursor, as far as the client takes it."""
        name = topic.name
        subscription = self._by_name.get(name)
        batches = 0
        while (
            subscription is not None
            and not subscription.busy
            and not self.ended
            and self._sink.has_room
        ):
            if topic.topic_id != subscription.topic_id:
                if topic.dropped:
                    return  # an update of an earlier topic of this name
                self._gone(name)
                self.appeared(topic)
                subscription = self._by_name.get(name)
                continue
            if topic.dropped:
                self._gone(name)
                return
            if subscription.caught_up and subscription.cursor >= horizon(
                topic, subscription.options
            ):
                return
            batches += 1
            batch = None
            if batches <= BATCHES_AT_ONCE:
                batch = self._delivery.read(topic, subscription.cursor, subscription.options)
            if batch is None:
                subscription.busy = True
                self._exchange.spawn(self._read_later(topic, subscription))
                return
            self._take(name, subscription, batch)

    async def _read_later(self, topic: Partition, subscription: TopicSubscription) -> None:
        try:
            batch = await self._delivery.read_later(
                topic, subscription.cursor, subscription.options
            )
            if self._by_name.get(topic.name) is subscription:
                self._take(topic.name, subscription, batch)
        except HeadwaterError as error:
            if not self.ended:
                self._sink.send_error(error)
                self.unfollow(topic.name)
        finally:
            subscription.busy = False
        self.pump(topic)

    def _take(self, name: str, subscription: TopicSubscription, batch: Batch) -> None:
        subscription.cursor = batch.next_from_seq
        reached_end = batch.caught_up and not subscription.caught_up
        subscription.caught_up = batch.caught_up
        self._sink.send_batch(name, batch, caught_up=reached_end)

    def _gone(self, name: str) -> None:
        if self.unfollow(name):
            self._sink.send_gone(name)
