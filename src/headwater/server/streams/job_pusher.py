"""GET /v0/topics/:queue/work: jobs pushed to workers over server-sent events.

All workers of a queue stand in one line, which one task serves: a worker that has room takes part
in the next pass, and passes share evenly. A worker has at most `max` jobs in hand; an ack or nack,
sent as for any other job, makes room. When a connection ends its jobs are free for others at once.
A client that does not read is not given more (I14).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from headwater.core.errors import HeadwaterError
from headwater.core.limits import CLAIM_JOBS_CLAMP, LEASE_MS_CLAMP
from headwater.core.units import US_PER_MS, US_PER_S
from headwater.engine.operation import Answered, Operation
from headwater.engine.owner import Change
from headwater.engine.queues.claims import Queues
from headwater.engine.queues.dead_letters import dead_letter_operation
from headwater.engine.queues.operations import check_node, serve_operation, set_aside_operation
from headwater.engine.state.topic import ClaimRequest, Topic
from headwater.engine.topics.operations import ensure_loaded
from headwater.observe.logs import Logger
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.json_rows import fetch_jobs
from headwater.server.http.queue_handlers import require_queue
from headwater.server.http.topic_handlers import number
from headwater.server.streams.open_streams import (
    OpenStreams,
    SseStream,
    answers_head,
    require_event_stream,
)
from headwater.wire import sse

HEARTBEAT_US: Final = 10 * US_PER_S
SHORTEST_WAIT_US: Final = US_PER_MS


def open_work(pusher: JobPusher, exchange: Exchange) -> None:
    require_event_stream(exchange)
    node = exchange.query().get("node", "")
    check_node(node)
    backend = pusher.backend
    require_queue(backend, exchange)
    topic = backend.engine.topic(exchange.parameters[0])
    if topic.loaded:
        _open(pusher, exchange, topic, node)
    else:
        exchange.spawn(_open_later(pusher, exchange, topic, node))


async def _open_later(pusher: JobPusher, exchange: Exchange, topic: Topic, node: str) -> None:
    backend = pusher.backend
    await backend.ready_database.drive(ensure_loaded(topic))
    _open(pusher, exchange, topic, node)


def _open(pusher: JobPusher, exchange: Exchange, topic: Topic, node: str) -> None:
    Queues(pusher.backend.engine).of(topic)  # or it is none
    limit = number(exchange, "max", 1, *CLAIM_JOBS_CLAMP)
    lease_ms = number(exchange, "lease_ms", topic.log.settings.lease_ms, *LEASE_MS_CLAMP)
    if answers_head(exchange):
        return
    pusher.streams.admit(exchange.key)
    pusher.begin(exchange, topic, node, limit, lease_ms)


class JobPusher:
    """The lines of all queues that have workers."""

    def __init__(self, backend: Backend, streams: OpenStreams, log: Logger) -> None:
        self.backend = backend
        self.streams = streams
        self._log = log
        self._lines: dict[int, WorkLine] = {}
        self._connections = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, exchange: Exchange, topic: Topic, node: str, limit: int, lease_ms: int) -> None:
        line = self._lines.get(topic.topic_id)
        if line is None:
            line = self._lines[topic.topic_id] = WorkLine(self.backend, topic, self.streams.now_us)
            task = asyncio.get_running_loop().create_task(self._serve(line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        stream = WorkStream(self.streams, exchange, line, next(self._connections))
        stream.begin(node, limit, lease_ms)

    def nudge(self, name: str) -> None:
        """Jobs of this queue were acked, given back or extended."""
        if self._lines:
            topic = self.backend.engine.find(name)
            line = None if topic is None else self._lines.get(topic.topic_id)
            if line is not None:
                line.nudge()

    async def _serve(self, line: WorkLine) -> None:
        try:
            await line.serve()
        except HeadwaterError as error:
            line.fail(error)
        except Exception as error:
            self._log.exception("a line of workers failed", error=repr(error))
            line.end()
        finally:
            del self._lines[line.topic.topic_id]


class WorkLine:
    """The workers of one queue."""

    def __init__(self, backend: Backend, topic: Topic, now_us: Callable[[], int]) -> None:
        self._backend = backend
        self._now_us = now_us
        self.topic = topic
        self.queues = Queues(backend.engine)
        self.streams: dict[WorkStream, None] = {}
        self._woken = asyncio.Event()

    def nudge(self) -> None:
        self._woken.set()

    async def serve(self) -> None:
        """As long as there are workers and jobs can come."""
        drive, engine = self._backend.ready_database.drive, self._backend.engine
        while True:
            await asyncio.sleep(0)  # other tasks that are ready come first
            self._woken.clear()
            if not self.streams:
                return
            if self.topic.dropped:
                for stream in list(self.streams):
                    stream.send_gone()
                return
            has_next = self.queues.has_next(self.topic)  # first: what ran out makes room
            hungry = [stream for stream in self.streams if stream.room > 0]
            if hungry and has_next:
                await self._hand_out(hungry)
            else:
                await drive(dead_letter_operation(engine, self.queues, self.topic))
                await self._wait()

    async def _wait(self) -> None:
        """Until something happens to the queue or to a worker, or a time comes."""
        timeout_s = None
        change_us = self.queues.next_change_us(self.topic)
        if change_us is not None:
            left_us = change_us - self._now_us()
            timeout_s = max(left_us, SHORTEST_WAIT_US) / US_PER_S
        waiters = self.topic.waiters
        waiters.add(self.nudge)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), timeout_s)
        finally:
            self.topic.waiters.discard(self.nudge)

    async def _hand_out(self, hungry: Sequence[WorkStream]) -> None:
        """One pass for all who have room."""
        backend, topic = self._backend, self.topic
        drive, engine = backend.ready_database.drive, backend.engine
        requests_made = [(stream, stream.make_request()) for stream in hungry]
        try:
            requests = [request for _, request in requests_made]
            await drive(serve_operation(engine, self.queues, topic, requests))
            granted = [
                (stream, request, self.queues.confirm(topic, request))
                for stream, request in requests_made
                if request.grant is not None and not stream.ended
            ]
            for stream, request, change in granted:
                await self._send(stream, request, change)
            await drive(dead_letter_operation(engine, self.queues, topic))
        finally:
            for stream, _ in requests_made:
                stream.give_up()

    async def _send(self, stream: WorkStream, request: ClaimRequest, change: Change) -> None:
        """The jobs of one worker, when the log has what it must have of its claim."""
        drive, engine = self._backend.ready_database.drive, self._backend.engine
        try:
            await drive(_answered(change))
            assert request.grant is not None
            jobs = await drive(fetch_jobs(engine, self.queues, self.topic, request.grant))
        except HeadwaterError as error:
            stream.send_error(error)
        else:
            stream.send_jobs(jobs)
            await drive(set_aside_operation(self.queues, self.topic, request))

    def fail(self, error: HeadwaterError) -> None:
        for stream in list(self.streams):
            stream.send_error(error)

    def end(self) -> None:
        for stream in list(self.streams):
            stream.end()


def _answered(change: Change) -> Operation[None]:
    yield Answered(lambda: change)


class WorkStream(SseStream):
    """One worker: a connection, and what it has in hand."""

    heartbeat_us = HEARTBEAT_US

    def __init__(
        self, streams: OpenStreams, exchange: Exchange, line: WorkLine, number: int
    ) -> None:
        super().__init__(streams, exchange)
        self._line = line
        self._number = number
        self._request: ClaimRequest | None = None
        """What it requested and did not get yet."""

    def begin(self, node: str, limit: int, lease_ms: int) -> None:
        self._node, self._limit, self._lease_ms = node, limit, lease_ms
        self._open(self._line.nudge)
        self._line.streams[self] = None
        self._line.nudge()

    # -- jobs

    @property
    def room(self) -> int:
        queue = self._line.topic.queue
        if self.ended or not self.has_room or queue is None:
            return 0
        return self._limit - queue.leases.held_on(self._number)

    def make_request(self) -> ClaimRequest:
        self._request = self._line.queues.request(
            self._line.topic, self._node, self.room, self._lease_ms, self._number
        )
        return self._request

    def give_up(self) -> None:
        """What was requested and not sent is free again, and was no delivery."""
        request, self._request = self._request, None
        if request is not None and (request.grant is not None or not request.served):
            self._line.queues.abandon(self._line.topic, request)
            request.served = True

    def send_jobs(self, jobs: Sequence[bytes]) -> None:
        if self.ended:
            return
        self._request = None
        self._say(b"".join([sse.event(b"job", job, _seq_of(job)) for job in jobs]))

    # -- silence, and the end

    def send_gone(self) -> None:
        self._say(sse.json_event(b"topic-deleted", {"topic": self._line.topic.name}))
        self.end()

    def _let_go(self) -> None:
        line = self._line
        del line.streams[self]
        self.give_up()
        line.queues.release(line.topic, self._number)
        line.nudge()


def _seq_of(job: bytes) -> bytes:
    """Every job begins with its seq."""
    return job[len(b'{"$seq":') : job.index(b",")]
