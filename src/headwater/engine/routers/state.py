"""Routers as the engine holds them, and what it knows of their destinations. For the owner only.

A copy is in its destination's memory, and nowhere else, until a checkpoint puts it into a segment.
Such copies are *unflushed*: a crash takes them, and they are made again from the source. So
whatever is written to the log about the destination, a record or a delete, is preceded in its
group by the unflushed copies and a mark that counts them. The log has then all seqs of the
destination in their order, and what was said of a copy holds for the copy that comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.core.errors import HeadwaterError
from headwater.core.limits import ROUTERS_MAX
from headwater.engine.pending import Change
from headwater.format.router_frames import RouterMark, RouterMeta
from headwater.model.match import TagMatcher
from headwater.model.router import CursorMark, Guarantee, RouterCursor, RouterGraph, RouterSettings

if TYPE_CHECKING:
    from headwater.engine.topics.topic import Topic


class Definition(Change):
    """A router on its way to the log. A second request for the same gets its answer."""

    def __init__(
        self, take_effect: Callable[[], tuple[Any, bool]], give_up: Callable[[], None]
    ) -> None:
        super().__init__(take_effect, give_up)
        self._followers: list[Change] = []

    def follow(self) -> Change:
        follower = Change(lambda: True)
        self._followers.append(follower)
        return follower

    def succeed(self, result: tuple[Any, bool]) -> None:
        super().succeed(result)
        for follower in self._followers:
            follower.succeed((result[0], False))

    def fail(self, error: HeadwaterError) -> None:
        super().fail(error)
        for follower in self._followers:
            follower.fail(error)


@dataclass(slots=True, eq=False)
class Router:
    router_id: int
    name: str
    settings: RouterSettings
    source: Topic
    dest: Topic
    cursor: RouterCursor
    number: int = 0
    """Of its newest mark."""
    matcher: TagMatcher | None = None
    made: bool = False
    """The log has its definition."""
    definition: Definition | None = None
    """Until then: what is on its way there."""
    stopped: bool = True
    """Nothing is copied: it is not made yet, or on its way out."""
    busy: bool = False
    """A batch of copies is on its way through the log."""
    in_circle: bool = False
    unmarked: bool = False
    """Its source went back in a crash; that must be durable before anything is copied."""

    def __post_init__(self) -> None:
        self.matcher = self.settings.matcher

    @property
    def exactly_once(self) -> bool:
        return self.settings.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def lag(self) -> int:
        """Records of the source it has not come to."""
        return max(self.source.log.visible_seq - self.cursor.source_seq, 0)

    def next_mark(self) -> RouterMark:
        """The mark of this moment, with everything in its destination flushed."""
        self.number += 1
        cursor = self.cursor
        return RouterMark(
            self.router_id,
            self.number,
            cursor.source_seq,
            self.dest.log.visible_seq,
            cursor.forwarded_total,
        )

    def marked(self, mark: RouterMark) -> None:
        """It is durable. Marks may become so in another order than they were made in."""
        if mark.source_seq >= self.cursor.mark.source_seq:
            self.cursor.marked(CursorMark(mark.source_seq, mark.dest_seq))

    def meta(self) -> RouterMeta:
        """What a snapshot says of it: the newest mark that what is durable allows."""
        mark = self.cursor.mark
        dest = self.dest
        if dest.inbound is not None and dest.inbound.unflushed_from is None:
            # Copies that went through the log unsynced are not in the way: they never do.
            mark = CursorMark(self.cursor.source_seq, dest.log.visible_seq)
        self.number += 1
        return RouterMeta(
            self.router_id,
            self.name,
            self.source.topic_id,
            dest.topic_id,
            self.settings.to_stored(),
            self.number,
            mark.source_seq,
            mark.dest_seq,
            self.cursor.forwarded_total,
        )


@dataclass(slots=True)
class InboundRoutes:
    """What the routers into a topic have done to it."""

    routers: list[Router] = field(default_factory=list)
    unflushed_from: int | None = None
    """The first seq of a copy that is in memory only."""
    last_copy: int = 0

    @property
    def is_exact(self) -> bool:
        """Each source seq has one seq here, so no other write may take any."""
        return any(router.exactly_once for router in self.routers)

    @property
    def is_held(self) -> bool:
        """A router waits for room here. All of them have the same source."""
        return any(router.cursor.held for router in self.routers)

    def note_copies(self, first_seq: int, last_seq: int) -> None:
        if self.unflushed_from is None:
            self.unflushed_from = first_seq
        self.last_copy = last_seq

    def marked(self, marks: Iterable[RouterMark]) -> None:
        """These marks are durable."""
        by_id = {mark.router_id: mark for mark in marks}
        for router in self.routers:
            if router.router_id in by_id:
                router.marked(by_id[router.router_id])

    def flushed(self, upto_seq: int) -> None:
        """Everything up to here is in segments or in the log, synced."""
        if self.unflushed_from is not None and upto_seq >= self.unflushed_from:
            self.unflushed_from = upto_seq + 1 if self.last_copy > upto_seq else None


class RouterTable:
    """Every router: by name, by destination and by source."""

    def __init__(self, limit: int = ROUTERS_MAX) -> None:
        self.graph = RouterGraph(limit)
        self._by_name: dict[str, Router] = {}
        self._circles_allowed = 0
        """Routers that may close a circle; while there are none, there is none to look for."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Router]:
        """In the order of their names."""
        for name in self.graph:
            router = self._by_name.get(name)
            if router is not None:
                yield router

    def find(self, name: str) -> Router | None:
        return self._by_name.get(name)

    def attach(self, router: Router) -> None:
        self.graph.restore(router.name, router.settings)
        self._by_name[router.name] = router
        router.source.outbound = [*router.source.outbound, router]
        if router.dest.inbound is None:
            router.dest.inbound = InboundRoutes()
        router.dest.inbound.routers.append(router)
        self._circles_allowed += router.settings.allow_cycle
        self._find_circles()

    def detach(self, router: Router) -> None:
        """It is gone. What is unflushed in its destination stays so, to be logged later."""
        if self._by_name.get(router.name) is not router:
            return  # gone before, and there may be another of its name
        router.stopped = True
        self.graph.remove(router.name)
        del self._by_name[router.name]
        router.source.outbound = [each for each in router.source.outbound if each is not router]
        inbound = router.dest.inbound
        if inbound is not None and router in inbound.routers:
            inbound.routers.remove(router)
            if not inbound.routers and inbound.unflushed_from is None:
                router.dest.inbound = None
        self._find_circles()
        self._circles_allowed -= router.settings.allow_cycle

    def take_out(self, topic: Topic) -> list[Router]:
        """The topic goes: so do the routers from it and into it. That needs no frames: their
        frames name the id of a topic that is gone."""
        into = [] if topic.inbound is None else topic.inbound.routers
        routers = sorted({*topic.outbound, *into}, key=lambda router: router.name)
        for router in routers:
            self.detach(router)
        return routers

    def put_back(self, routers: list[Router]) -> None:
        """The topic stays after all."""
        for router in routers:
            self.attach(router)
            router.stopped = False

    def _find_circles(self) -> None:
        if self._circles_allowed:
            for router in self._by_name.values():
                router.in_circle = self.graph.is_in_circle(router.name)
