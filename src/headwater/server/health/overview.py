"""What is known of a server as a whole: what probes, status and metrics are answered from."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.core.clock import Clock
from headwater.core.units import US_PER_MS
from headwater.server.access.access import Access
from headwater.server.access.keys import ApiKey
from headwater.server.backend import Backend
from headwater.server.connection import Connections
from headwater.server.gateway_slots import GatewayFigures
from headwater.server.health.topic_totals import TopicTotals
from headwater.server.machines.webhooks import Webhooks
from headwater.server.streams.watch_sessions import WatchSessions


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
