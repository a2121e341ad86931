"""Following topics: one from a cursor, or several, those that are made later too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from headwater.core import limits
from headwater.core.driver import HandOver
from headwater.core.errors import HeadwaterError
from headwater.core.records import Record
from headwater.core.results import Diff, Tombstone, TopicGone, TopicState, Watched
from headwater.engine.operation import AsOwner, Operation, WakeSource, WatchOperation, Woken
from headwater.engine.partition import Partition, Wakeup
from headwater.engine.topics.operations import (
    DiffRequest,
    diff_request,
    ensure_loaded,
    read_operation,
)
from headwater.engine.topics.protocols import ReadSide


class TopicWatch(msgspec.Struct, frozen=True):
    """How a topic is read that is watched."""

    node: tuple[str, ...]
    match: object | None

    def request(self, from_seq: int, wait_ms: int = 0) -> DiffRequest:
        return diff_request(
            from_seq, limits.READ_RECORDS_CLAMP, wait_ms=wait_ms, node=self.node, match=self.match
        )


def topic_watch(
    node: str | Iterable[str] | None, match: object | None, from_seq: int = 0
) -> TopicWatch:
    """Check the options of a watch before it begins."""
    watch = TopicWatch((node,) if isinstance(node, str) else tuple(node or ()), match)
    watch.request(from_seq)
    return watch


def watch_operation(
    read: Callable[[DiffRequest], Operation[Diff]],
    state: Callable[[], Operation[TopicState]],
    watch: TopicWatch,
    from_seq: int | None,
    idle_ms: int | None,
) -> WatchOperation:
    """One topic, from a seq or from its end, with reads that wait; for ever, or until nothing came
    for a while."""
    cursor = (yield from state()).head_seq if from_seq is None else from_seq
    wait_ms = limits.READ_WAIT_MS_CLAMP if idle_ms is None else idle_ms
    while True:
        diff = yield from read(watch.request(cursor, wait_ms))
        cursor = diff.next_from_seq
        items = _items(diff)
        if items:
            yield HandOver(items)
        elif idle_ms is not None and diff.caught_up:
            return


def _items(diff: Diff) -> list[Record | Tombstone]:
    return [*([] if diff.tombstone is None else [diff.tombstone]), *diff.records]


@dataclass(slots=True, eq=False)
class _TopicPosition:
    topic: Partition
    cursor: int
    horizon: int = -1
    """The last seq that there was when it had been read to its end."""

    @property
    def is_behind(self) -> bool:
        return self.topic.visible_seq > self.horizon


class TopicsWatch:
    """Which topics are watched, and how far each is handed over. The owner's, between the reads."""

    def __init__(self, engine: ReadSide, starts: Mapping[str, int | None]) -> None:
        self._engine = engine
        self._names = {name: start for name, start in starts.items() if not name.endswith("*")}
        self._prefixes = {name[:-1]: start for name, start in starts.items() if name.endswith("*")}
        self._followed: dict[str, _TopicPosition] = {}
        self._known_id = 0
        """Topics with smaller ids were there at the last check for new ones."""

    @property
    def is_over(self) -> bool:
        """Nothing is left that could bring anything."""
        return not self._followed and not self._prefixes

    def begin(self) -> None:
        """A name that no topic has is refused; of a prefix, all that are there begin alike."""
        for name, start in self._names.items():
            self._follow(self._engine.topic(name), start)
        for prefix, start in self._prefixes.items():
            for topic in self._engine.listed(prefix, None):
                if topic.name not in self._followed:
                    self._follow(topic, start)
        self._known_id = self._engine.core.registry.next_topic_id

    def _follow(self, topic: Partition, start: int | None) -> None:
        at_end = topic.visible_seq
        self._followed[topic.name] = (
            _TopicPosition(topic, at_end, at_end) if start is None else _TopicPosition(topic, start)
        )

    def gone(self) -> list[Watched]:
        """What was dropped since the last call. What is made since then is followed from its
        beginning, if it is meant by a prefix."""
        names = [name for name, each in self._followed.items() if each.topic.dropped]
        for name in names:
            del self._followed[name]
        next_id = self._engine.core.registry.next_topic_id
        if next_id != self._known_id or names:
            self._known_id = next_id
            for prefix in self._prefixes:
                for topic in self._engine.listed(prefix, None):
                    if topic.name not in self._followed:
                        self._follow(topic, 0)
        return [Watched(name, TopicGone()) for name in names]

    def behind(self) -> list[_TopicPosition]:
        """Those that have more than was handed over."""
        return [each for each in self._followed.values() if each.is_behind]

    @property
    def is_ready(self) -> bool:
        """There is something to hand over, or may be."""
        return self._known_id != self._engine.core.registry.next_topic_id or any(
            each.topic.dropped or each.is_behind for each in self._followed.values()
        )

    # -- as a source that wakes

    @property
    def waiters(self) -> TopicsWatch:
        return self

    def add(self, wakeup: Wakeup, /) -> None:
        for source in self._sources():
            source.waiters.add(wakeup)

    def discard(self, wakeup: Wakeup, /) -> None:
        for source in self._sources():
            source.waiters.discard(wakeup)

    def _sources(self) -> Iterator[WakeSource]:
        for each in self._followed.values():
            yield each.topic
        if self._prefixes:
            yield self._engine.core


def watch_topics_operation(
    engine: ReadSide, watched: TopicsWatch, watch: TopicWatch
) -> WatchOperation:
    """Several topics, a page of each in turn; for ever, or until nothing is left to watch."""
    yield AsOwner(watched.begin)
    while True:
        gone: list[Watched] = yield AsOwner(watched.gone)
        if gone:
            yield HandOver(gone)
        if watched.is_over:
            return
        behind: list[_TopicPosition] = yield AsOwner(watched.behind)
        for each in behind:
            try:
                yield from ensure_loaded(each.topic)
                diff = yield from read_operation(engine, each.topic, watch.request(each.cursor))
            except HeadwaterError:
                if each.topic.dropped:
                    continue  # it is gone in the next round
                raise
            each.cursor = diff.next_from_seq
            if diff.caught_up:
                each.horizon = max(diff.head_seq, each.cursor)
            yield HandOver(map(partial(Watched, each.topic.name), _items(diff)))
        if not gone and not behind:
            yield Woken(watched, None, lambda: watched.is_ready)
