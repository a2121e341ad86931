"""One running server, put together: who is handed what. Nothing below knows this module."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from headwater.config.server import ServerSettings
from headwater.core.clock import Clock
from headwater.engine.async_database import AsyncDatabase
from headwater.observe.logs import Logger
from headwater.server.access.access import Access
from headwater.server.backend import Backend
from headwater.server.connection import Ports, Room
from headwater.server.health.garbage import GarbageSchedule
from headwater.server.health.overview import Overview
from headwater.server.health.watches import DamageWatch, LogWatch, MaintenanceWatch, PressureWatch
from headwater.server.http.dispatcher import Dispatcher
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.exchange import Exchange
from headwater.server.http.queue_handlers import WorkerLines
from headwater.server.http.route_table import RouteTable
from headwater.server.http.turn_writer import TurnWriter
from headwater.server.http.write_batcher import LocalWrites, WriteBatcher
from headwater.server.intake import Intake
from headwater.server.kafka.listener import KafkaListener, KafkaListing
from headwater.server.machines.instance_stream import InstanceStreams
from headwater.server.machines.transition_follower import TransitionFeed
from headwater.server.machines.webhooks import Webhooks
from headwater.server.metrics import Scrape
from headwater.server.rcpx import listener
from headwater.server.routes import LATE_ROUTES, ROUTES
from headwater.server.streams import websocket
from headwater.server.streams.delivery import Delivery
from headwater.server.streams.job_pusher import JobPusher
from headwater.server.streams.open_streams import OpenStreams
from headwater.server.streams.watch_sessions import WatchSessions

if TYPE_CHECKING:
    from headwater.server.gateway_slots import GatewaySlots
    from headwater.server.rcpx.listener import RcpxListener


class App:
    def __init__(
        self,
        settings: ServerSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        kafka: KafkaListener,
        connections_max: int,
        gateways: GatewaySlots | None = None,
    ) -> None:
        """`connections_max`: as many as the operating system allows, if not fewer are wanted.
        `gateways`: their figures, where they have the connections."""
        self.clock = clock
        log = Logger("headwater.server")
        self.backend = backend = Backend()
        self.access = access = Access(settings)
        room = Room(min(settings.limits.connections, connections_max))
        access.quotas.connections.total = room.connections_max
        self.turn_writer = TurnWriter(backend, loop)
        writes = LocalWrites(backend, self.turn_writer, settings.limits)
        self._write_batcher = write_batcher = WriteBatcher(writes, settings.limits, loop)
        intake = Intake(loop, self._write_batcher.flush)
        shares = access.quotas.connections
        self.ports = Ports(room, shares, intake, clock, settings.deadlines)
        self.http = HttpEndpoint(self.ports, settings.limits, log)
        streams = OpenStreams(access.quotas, settings, clock)
        self.delivery = Delivery(backend, streams, clock, loop)
        self.sessions = WatchSessions(self.delivery, access.quotas.watches, settings.session_ttl_ms)
        feed = TransitionFeed(backend, loop, log)
        self.webhooks = Webhooks(settings, feed, clock)
        self._pressure = PressureWatch(backend, self.delivery, loop, log)
        self._watches = (
            MaintenanceWatch(backend, log),
            LogWatch(backend, log),
            DamageWatch(backend, log),
        )
        self.garbage = GarbageSchedule(lambda: backend.engine.core.counters.requests, clock, loop)
        self.kafka = kafka
        kafka.on_open = backend.serve_kafka
        self.rcpx: RcpxListener | None = None
        if settings.rcpx_port is not None:
            self.rcpx = listener.RcpxListener(self.ports, settings.limits, access, feed)
        overview = Overview(
            backend, access, self.http.connections, gateways, self.sessions, self.webhooks, clock
        )
        pusher = JobPusher(backend, streams, log)
        self.services: dict[type, object] = {
            Backend: backend,
            InstanceStreams: InstanceStreams(feed, streams),
            JobPusher: pusher,
            KafkaListing: KafkaListing(backend, kafka),
            Overview: overview,
            Scrape: Scrape(overview, kafka, self.rcpx),
            WatchSessions: self.sessions,
            WorkerLines: pusher,
            WriteBatcher: write_batcher,
        }
        """What handlers of routes get, each as much of the server as it needs."""
        self.dispatcher = Dispatcher(
            self.http,
            backend,
            access,
            RouteTable(ROUTES, self.services, LATE_ROUTES),
            write_batcher.add,
            partial(_upgrade, self.delivery),
        )

    def serve_from(self, database: AsyncDatabase) -> None:
        """Recovery is done: answer everything."""
        engine = database.engine
        self.backend.serve_from(database)
        self.turn_writer.engine = engine
        self._pressure.begin(engine.pressure_control)
        engine.core.on_update = self.delivery.on_news
        engine.core.before_append = self._write_batcher.flush
        engine.core.on_published = self.turn_writer.send_answers
        engine.core.on_synced = self.delivery.on_synced
        self.webhooks.begin()
        self.ports.intake.after_turn.append(engine.core.owner.end_turn)
        self.ports.intake.time_turns(engine.core.waits.timed)
        self.garbage.begin(engine.core.waits)

    def check_deadlines(self) -> None:
        now_us = self.clock.monotonic_us()
        self.http.connections.check_deadlines()
        self.sessions.expire(now_us)
        self.delivery.streams.heartbeat(now_us)
        if self.rcpx is not None:
            self.rcpx.check_deadlines()
        if self.backend.database is not None:
            for watch in self._watches:
                watch.check()
            self.garbage.check()

    def begin_drain(self) -> None:
        """Begin nothing more; what waits for something new is answered now."""
        self.backend.draining = True
        self.garbage.end()
        self.delivery.streams.close_all()
        if self.backend.database is not None:
            for topic in self.backend.engine.core.registry:
                topic.wake()

    async def drain(self) -> None:
        """Finish what is under way, then end every connection."""
        await self.http.drain()
        self.ports.intake.close()


def _upgrade(delivery: Delivery, exchange: Exchange, rest: bytes) -> None:
    websocket.upgrade(delivery, exchange, rest)
