"""Every router of the engine. For the owner only."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.core.limits import ROUTERS_MAX
from headwater.engine.state.topic import InboundRoutes, Router, Topic
from headwater.model.router import RouterGraph


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
