"""What is known of a server as a whole: what probes, status and metrics are answered from."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from headwater.core.clock import Clock
from headwater.core.durability import Durability
from headwater.core.units import US_PER_MS
from headwater.engine.engine import Engine
from headwater.engine.metrics import add_topic, class_sum
from headwater.server.access.access import Access
from headwater.server.access.keys import ANYONE, ApiKey
from headwater.server.backend import Backend
from headwater.server.connection import Connections
from headwater.server.gateway_slots import GatewayFigures
from headwater.server.machines.webhooks import Webhooks
from headwater.server.streams.watch_sessions import WatchSessions
from headwater.wire.status_answers import Totals

TOPICS_PER_SAMPLE: Final = 2_000
"""One answer adds up so many topics; with more of them, a sum takes several answers."""


class TopicTotals:
    """Sums over all topics that a key may name, added up a part at a time: what one sample costs
    does not grow with the number of topics, so a page that asks for it every second delays no
    other request. Up to `TOPICS_PER_SAMPLE` topics they are exact; with more of them, each sample
    adds up some, and the answer is the last completed round.
    """

    def __init__(self, key: ApiKey = ANYONE) -> None:
        self._key = key
        self._names: Iterator[str] | None = None
        self._sums: Counter[str] = Counter()
        self._seen = 0
        self._whole: Counter[str] | None = None

    def sample(self, engine: Engine) -> Totals:
        registry = engine.core.registry
        if self._names is None or len(registry) <= TOPICS_PER_SAMPLE:
            self._names = iter([topic.name for topic in registry])
            self._sums, self._seen = Counter(), 0
        for name in itertools.islice(self._names, TOPICS_PER_SAMPLE):
            topic = registry.find(name) if self._key.may_name(name) else None
            if topic is not None:  # dropped since the round began
                add_topic(engine, topic, self._sums)
        self._seen += TOPICS_PER_SAMPLE
        if self._seen >= len(registry):
            self._whole, self._names = self._sums, None
        return self._totals(engine, self._sums if self._whole is None else self._whole)

    def topics_of(self, durability: Durability) -> int:
        """How many topics of a class there were at the last sample."""
        sums = self._sums if self._whole is None else self._whole
        return sums[class_sum(durability)]

    def _totals(self, engine: Engine, sums: Counter[str]) -> Totals:
        core, key = engine.core, self._key
        fixed = {"topics": len(core.registry), "routers": len(core.routers)}
        if key.prefixes:
            own = sum(key.may_name(router.name) for router in core.routers)
            fixed = {"topics": sums["topics"], "routers": own}
        names = (field.name for field in msgspec.structs.fields(Totals) if field.name not in fixed)
        return Totals(**fixed, **{name: sums[name] for name in names})


class Overview:
    def __init__(
        self,
        backend: Backend,
        access: Access,
        connections: Connections,
        gateways: Iterable[GatewayFigures] | None,
        sessions: WatchSessions,
        webhooks: Webhooks,
        clock: Clock,
    ) -> None:
        self.backend = backend
        self.access = access
        self.webhooks = webhooks
        self._connections = connections
        self._gateways = gateways
        self._sessions = sessions
        self._now_us = clock.monotonic_us
        self._started_us = self._now_us()
        self._topic_totals: dict[bytes, TopicTotals] = {}

    @property
    def uptime_ms(self) -> int:
        return (self._now_us() - self._started_us) // US_PER_MS

    @property
    def open(self) -> dict[str, int]:
        """How much of each is open, by its name in status and metrics."""
        return {
            "connections": self._http_connections,
            "sse_connections": self._sessions.delivery.streams.sse_count,
            "watch_sessions": len(self._sessions),
        }

    @property
    def gateways(self) -> list[GatewayFigures]:
        """What each has; none where connections are this process's own."""
        return list(self._gateways or ())

    @property
    def _http_connections(self) -> int:
        if self._gateways is None:
            return len(self._connections)
        return sum(each.http_connections for each in self._gateways)

    def topic_totals(self, key: ApiKey) -> TopicTotals:
        """Sums over the topics that a key may name."""
        totals = self._topic_totals.get(key.digest)
        if totals is None:
            totals = self._topic_totals[key.digest] = TopicTotals(key)
        return totals
