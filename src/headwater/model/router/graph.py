"""The graph of routes: no cycles unless allowed, and one source for each destination.

- A definition that would close a circle is refused with the way round, from its destination back
  to it, unless it says `allow_cycle`. In a circle every copy counts its hops, and the copy after
  the eighth is not made.
- All routers into a destination have the same source: what is in a destination can then be made
  again from one topic's log, in its order. A router that promises exactly_once is the only one
  into its destination, because there each source seq has one slot.
- A topic that is deleted takes its routers with it, those from it and those into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.core.errors import OverloadedError, RouterCycleError, TopicExistsIncompatibleError
from headwater.core.limits import ROUTERS_MAX
from headwater.model.router.definition import Guarantee, RouterSettings, check_router_name

HOPS_MAX: Final = 8
"""How often a record is copied on in a circle, at most."""
_ALONE: Final = Guarantee.EXACTLY_ONCE


class RouterGraph:
    __slots__ = ("_from", "_into", "_limit", "_routers")

    def __init__(self, limit: int = ROUTERS_MAX) -> None:
        self._routers: dict[str, RouterSettings] = {}
        self._from: dict[str, dict[str, str]] = {}
        """For each source its routers, each with where it goes, in the order they were made."""
        self._into: dict[str, dict[str, str]] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._routers)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._routers))

    def get(self, name: str) -> RouterSettings | None:
        return self._routers.get(name)

    def source_of(self, dest: str) -> str | None:
        """The one topic whose records are copied here; None for a topic that is no copy."""
        return next(iter(self._into.get(dest, {}).values()), None)

    def put(self, name: str, wanted: RouterSettings) -> bool:
        """Add a router, or refuse without changing anything. False when it is there already."""
        check_router_name(name)
        known = self._routers.get(name)
        if known == wanted:
            return False
        if known is not None:
            raise TopicExistsIncompatibleError(
                f"router {name!r} is there and copies between other topics, or with another "
                "guarantee; delete it first",
                detail={"reason": "router_differs", "router": name},
            )
        if len(self._routers) >= self._limit:
            raise OverloadedError(
                f"there are {self._limit} routers already; delete some",
                detail={"limit": "routers", "allowed": self._limit},
            )
        if not wanted.allow_cycle:
            self._refuse_circle(wanted)
        self._refuse_fan_in(wanted)
        self.restore(name, wanted)
        return True

    def check_change(self, wanted: RouterSettings) -> None:
        """A router is to go on with these settings: may copies come back to where they are from?"""
        if not wanted.allow_cycle:
            self._refuse_circle(wanted)

    def restore(self, name: str, settings: RouterSettings) -> None:
        """A router that was accepted before."""
        self._routers[name] = settings
        self._from.setdefault(settings.source, {})[name] = settings.dest
        self._into.setdefault(settings.dest, {})[name] = settings.source

    def remove(self, name: str) -> RouterSettings | None:
        settings = self._routers.pop(name, None)
        if settings is not None:
            for ends, topic in ((self._from, settings.source), (self._into, settings.dest)):
                del ends[topic][name]
                if not ends[topic]:
                    del ends[topic]
        return settings

    def _refuse_fan_in(self, wanted: RouterSettings) -> None:
        source = self.source_of(wanted.dest)
        if source is not None and source != wanted.source:
            raise TopicExistsIncompatibleError(
                f"{wanted.dest!r} is fed from {source!r} and takes copies of no other topic",
                detail={"reason": "router_dest_fan_in", "dest": wanted.dest, "source": source},
            )
        others = [self._routers[name] for name in self._into.get(wanted.dest, ())]
        if others and any(each.guarantee is _ALONE for each in (wanted, *others)):
            raise TopicExistsIncompatibleError(
                f"{wanted.dest!r} has a router already; with exactly_once it can have no other",
                detail={"reason": "router_dest_fan_in", "dest": wanted.dest, "source": source},
            )

    def _refuse_circle(self, wanted: RouterSettings) -> None:
        way = self.way(wanted.dest, wanted.source)
        if way is not None:
            path = [wanted.source, *way]
            raise RouterCycleError(
                f"copies would come back to where they are from: {' -> '.join(path)}",
                detail={"path": path},
            )

    def way(self, start: str, end: str) -> list[str] | None:
        """The shortest way copies go from one topic to another, both named; None when none."""
        came_from: dict[str, str | None] = {start: None}
        reached = [start]
        for topic in reached:
            if topic == end:
                way = [topic]
                while (before := came_from[way[-1]]) is not None:
                    way.append(before)
                return way[::-1]
            for after in self._from.get(topic, {}).values():
                if after not in came_from:
                    came_from[after] = topic
                    reached.append(after)
        return None

    def is_in_circle(self, name: str) -> bool:
        """True when a copy made by this router can come back to it: its copies count hops."""
        router = self._routers[name]
        return self.way(router.dest, router.source) is not None


def may_hop(hops: int) -> bool:
    """May a record that was copied this often in a circle be copied once more?"""
    return hops < HOPS_MAX
