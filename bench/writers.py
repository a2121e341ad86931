"""Writers that wait for their acks, in the forms a program can have them.

Threads block on their ticket. Coroutines and connections live on one event loop: the log's
listener makes one `call_soon_threadsafe` per commit, which settles all tickets of the commit.
A connection is a plain object that sends its next write from the callback, as the server does.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.log_under_test import LogUnderTest
from bench.turns import Turn
from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.wal.ticket import Ticket

clock = time.perf_counter


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        return importlib.import_module("uvloop").new_event_loop()  # type: ignore[no-any-return]
    except ImportError:
        return asyncio.new_event_loop()


def loop_name() -> str:
    loop = new_loop()
    loop.close()
    return type(loop).__module__.partition(".")[0]


class Writers:
    """`count` writers that each send `records` per ticket and wait for the ack."""

    def __init__(
        self,
        directory: Path,
        settings: WalSettings,
        count: int,
        durability: Durability = Durability.FSYNC,
        records: int = 1,
    ) -> None:
        self.settings = settings
        self.count = count
        self.durability = durability
        self.records = records
        self.log = self.open(directory)

    def open(self, directory: Path) -> LogUnderTest:
        return LogUnderTest(directory, self.settings)

    def __call__(self, seconds: float) -> Turn:
        before = dict(self.log.heads)
        syncs = self.log.counters.syncs
        latencies: list[float] = []
        started = clock()
        self.work(started + seconds, latencies)
        elapsed = clock() - started
        done = sum(self.log.heads.values()) - sum(before.values())
        return Turn(done, elapsed, self.log.counters.syncs - syncs, latencies)

    def work(self, deadline: float, latencies_us: list[float]) -> None:
        raise NotImplementedError

    def close_and_check(self) -> None:
        self.log.close_and_check()


class ThreadWriters(Writers):
    def work(self, deadline: float, latencies_us: list[float]) -> None:
        threads = [
            threading.Thread(target=self._write, args=(topic_id, deadline, latencies_us))
            for topic_id in range(1, self.count + 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write(self, topic_id: int, deadline: float, latencies_us: list[float]) -> None:
        log, records = self.log, self.records
        head = log.heads.get(topic_id, 0)
        now = clock()
        while now < deadline:
            ticket = log.ticket(topic_id, head + 1, records, self.durability, None)
            started = clock()
            log.shard.submit(ticket)
            ticket.wait()
            now = clock()
            head += records
            latencies_us.append((now - started) * 1e6)
        if head:
            log.heads[topic_id] = head


class LoopWriters(Writers):
    """Base of the writers that share one event loop."""

    def open(self, directory: Path) -> LogUnderTest:
        self.loop = new_loop()
        return LogUnderTest(directory, self.settings, self._listen)

    def _listen(self, tickets: Sequence[Ticket]) -> None:
        self.loop.call_soon_threadsafe(self.settle, tickets)

    def settle(self, tickets: Sequence[Ticket]) -> None:
        raise NotImplementedError

    def close_and_check(self) -> None:
        super().close_and_check()
        self.loop.close()


class CoroutineWriters(LoopWriters):
    def settle(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket.error is None:
                ticket.context.set_result(None)
            else:
                ticket.context.set_exception(ticket.error)

    def work(self, deadline: float, latencies_us: list[float]) -> None:
        async def all_of_them() -> None:
            topics = range(1, self.count + 1)
            await asyncio.gather(*(self._write(t, deadline, latencies_us) for t in topics))

        self.loop.run_until_complete(all_of_them())

    async def _write(self, topic_id: int, deadline: float, latencies_us: list[float]) -> None:
        log, records, loop = self.log, self.records, self.loop
        head = log.heads.get(topic_id, 0)
        now = clock()
        while now < deadline:
            future = loop.create_future()
            ticket = log.ticket(topic_id, head + 1, records, self.durability, future)
            started = clock()
            log.shard.submit(ticket)
            await future
            now = clock()
            head += records
            latencies_us.append((now - started) * 1e6)
        if head:
            log.heads[topic_id] = head


class Connection:
    """Sends a write; when its ack comes, sends the next one from the same callback."""

    __slots__ = ("head", "sent", "topic_id")

    def __init__(self, topic_id: int, head: int) -> None:
        self.topic_id = topic_id
        self.head = head
        self.sent = 0.0


class ConnectionWriters(LoopWriters):
    def settle(self, tickets: Sequence[Ticket]) -> None:
        now = clock()
        for ticket in tickets:
            if ticket.error is not None:
                raise ticket.error
            connection = ticket.context
            connection.head += self.records
            self._latencies_us.append((now - connection.sent) * 1e6)
            if now < self._deadline:
                self._send(connection)
            else:
                self._finish(connection)

    def work(self, deadline: float, latencies_us: list[float]) -> None:
        self._deadline, self._latencies_us = deadline, latencies_us
        self._open_connections = self.count
        for topic_id in range(1, self.count + 1):
            self._send(Connection(topic_id, self.log.heads.get(topic_id, 0)))
        self.loop.run_forever()

    def _send(self, connection: Connection) -> None:
        first_seq = connection.head + 1
        ticket = self.log.ticket(
            connection.topic_id, first_seq, self.records, self.durability, connection
        )
        connection.sent = clock()
        self.log.shard.submit(ticket)

    def _finish(self, connection: Connection) -> None:
        self.log.heads[connection.topic_id] = connection.head
        self._open_connections -= 1
        if self._open_connections == 0:
            self.loop.stop()


FORMS: dict[str, type[Writers]] = {
    "threads": ThreadWriters,
    "coroutines": CoroutineWriters,
    "connections": ConnectionWriters,
}
