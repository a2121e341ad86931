"""The writes that came in one turn of the loop are one submission, whatever their topics.

Fifty connections that write a record each, or a hundred, ask fifty questions and get fifty answers.
In between they are, for each topic, one run of seqs and one publication, and for all topics
together one reading of their bodies, one encoding, one ticket for each shard and one sending of
answers. A write that asks for more than its records to be stored (an expected head, a setting, the
answer of a key that was used before) goes by itself, behind those to its topic that came before it.
See docs/decisions/0039-a-turn-is-one-submission.md.

Where it is compiled, the answers of a turn are printed and handed to the kernel in one go, without
the interpreter: meanwhile the log's thread has it. A connection that has more to send than this, or
seals what it sends, gets its answer the usual way.

Keeps I2, I15.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from headwater.config.server import LimitSettings
from headwater.core import limits
from headwater.core.errors import HeadwaterError
from headwater.core.units import MIB
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import (
    EncodedRecords,
    KeyedPart,
    checked_key,
    plain_records,
)
from headwater.native import compiled
from headwater.server.backend import Backend
from headwater.server.http.endpoint import HttpEndpoint
from headwater.server.http.exchange import Exchange, body_of
from headwater.server.http.turn_writer import TurnWriter, WriteGroup
from headwater.server.http.write_handler import encode_request, write_records, write_request
from headwater.wire.answers import write_answer, write_opening, write_reply
from headwater.wire.http_response import SHORT_HEAD
from headwater.wire.requests import WriteRequest, decode_request

if TYPE_CHECKING:
    from headwater.server.access.quotas import Usage
    from headwater.server.http.request_head import Head


_native: Final = compiled("bodies")

MEMBERS_MAX: Final = 512
"""Of one submission, roughly: the next turn need not wait for a larger one."""
TURN_BYTES: Final = 1 * MIB
"""Of bodies: with so many, what is done once for a submission costs little beside them."""
_native_answers: Final = compiled("answers")

_opening_of: Final = lru_cache(maxsize=4_096)(write_opening)
"""How the answers of a topic begin."""

Reply = tuple[int, int, int, int, int, bytes, int, int, int]
"""A socket, the number of a request, its first seq and how many it has, when it came; then what the
writes of its topic have in common: how the answers begin, the head, how long the sync and the wait
for pressure took."""
Told = tuple[str, int, int, int]
"""What is said of all writes of a group: the topic, its head, how long the sync and the wait for
pressure took."""
_SHORT_RECORDS_MAX: Final = 25
"""The answer to a write of so many records is too short to be packed, whatever its numbers."""


def take_write(batcher: WriteBatcher, exchange: Exchange) -> None:
    """POST /v0/topics/:topic."""
    if not (exchange.head.is_plain_write and batcher.add(exchange)):
        batcher.flush()  # what came before it on its connection stays before it
        batcher.write_alone(exchange)


class ExchangeGroup(WriteGroup):
    """Requests of connections of this process, how many records each brings, and these."""

    __slots__ = ("came", "counts", "keys", "members", "sink")

    def __init__(self, name: str, usage: Usage, sink: WriteSink) -> None:
        super().__init__(name, usage, 0, EncodedRecords([], [], [], []))
        self.sink = sink
        self.came: list[Exchange] = []
        self.members: list[Exchange] = []
        """Those of them whose records these are."""
        self.counts: list[int] = []
        self.keys: set[bytes] = set()

    def take(self, counts: list[int], records: EncodedRecords) -> None:
        """All that came."""
        self.members, self.counts, self.records = self.came, counts, records
        self.requests = records.writers = len(counts)

    def add(self, exchange: Exchange, encoded: EncodedRecords, key: bytes | None = None) -> None:
        records = self.records
        if key is not None:
            records.keys = records.keys or []
            records.keys.append(KeyedPart(key, len(records), len(encoded)))
            self.keys.add(key)
        records.nodes += encoded.nodes
        records.tags += encoded.tags
        records.datas += encoded.datas
        records.flags += encoded.flags
        records.size += encoded.size
        self.members.append(exchange)
        self.counts.append(len(encoded))
        self.requests += 1
        records.writers = self.requests

    def cut(self) -> ExchangeGroup:
        """Those that were added so far; this one begins anew."""
        filled = ExchangeGroup(self.name, self.usage, self.sink)
        filled.members, self.members = self.members, filled.members
        filled.counts, self.counts = self.counts, filled.counts
        filled.records, self.records = self.records, filled.records
        filled.requests, self.requests = self.requests, 0
        self.keys.clear()
        return filled

    def written(self, write: Write, first_seq: int) -> None:
        assert write.result is not None, "it is done"
        self.told(first_seq, write.result.head_seq, write.sync_us, write.throttle_us)

    def told(self, first_seq: int, head_seq: int, sync_us: int, throttle_us: int) -> None:
        shared = self.name, head_seq, sync_us, throttle_us
        mistakes = self.sink.replies.add(self.members, self.counts, first_seq, shared)
        if mistakes:
            raise mistakes[0]

    def alone(self) -> None:
        for exchange in self.members:
            exchange.attempt(self.sink.write_alone)

    def failed(self, error: HeadwaterError) -> None:
        mistakes: list[Exception] = []
        for exchange in self.members:
            try:
                exchange.not_written(error)
            except Exception as mistake:  # the requests behind it are answered all the same (I15)
                mistakes.append(mistake)
        if mistakes:
            raise mistakes[0]

    def broken(self, error: Exception) -> None:
        for exchange in self.members:
            exchange.broken(error)


class WriteSink(Protocol):
    """Where the writes of a turn go: into the engine of this process, or to another one."""

    replies: WriteReplies
    takes_pipelined: bool
    """Also those behind others on their connection that are not answered yet."""

    def takes(self, name: str) -> bool:
        """Whether writes to this topic can go together."""

    def submit(self, groups: Sequence[ExchangeGroup]) -> None:
        """Have them written; none is empty."""

    def take_unusual(self, group: ExchangeGroup, exchange: Exchange) -> None:
        """One whose body may bring more than payloads and tags, or be wrong. Those of the group
        that were added come before it."""

    def write_alone(self, exchange: Exchange) -> None:
        """One write by itself."""


class WriteBatcher:
    """Filled by the connections, emptied when the loop has read from all that had something."""

    def __init__(
        self, sink: WriteSink, limits: LimitSettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._sink = sink
        self._record_bytes_max = limits.record_bytes
        self._loop = loop
        self._groups: dict[str | tuple[str, Usage], ExchangeGroup] = {}
        """By the name of the topic; with the key where another one came first."""
        self._came = 0
        self._came_bytes = 0

    def add(self, exchange: Exchange) -> bool:
        """Take a write along; False when its topic has to check each by itself."""
        if self._came >= MEMBERS_MAX or self._came_bytes >= TURN_BYTES:
            self.flush()
        follows = exchange.connection.is_waiting
        if follows and not self._sink.takes_pipelined:
            return False
        name, usage = exchange.head.parameters[0], exchange.usage
        place: str | tuple[str, Usage] = name
        group = self._groups.get(name)
        if group is not None and group.usage is not usage:
            if follows:
                self.flush()  # the one before it may be of another key, and stays before it
            place = name, usage
            group = self._groups.get(place)
        if group is None:
            if not self._sink.takes(name):
                return False
            if not self._groups:
                self._loop.call_soon(self.flush)
            group = self._groups[place] = ExchangeGroup(name, usage, self._sink)
        group.came.append(exchange)
        if not self._sink.takes_pipelined:
            exchange.is_slow = True
        self._came += 1
        self._came_bytes += len(exchange.body)
        return True

    def write_alone(self, exchange: Exchange) -> None:
        self._sink.write_alone(exchange)

    def flush(self) -> None:
        """Have what came read, and given to where it goes."""
        if not self._groups:
            return
        groups, self._groups = list(self._groups.values()), {}
        self._came = self._came_bytes = 0
        bodies = [exchange.body for group in groups for exchange in group.came]
        counts, datas, tags = self._read(bodies)
        row = at = 0
        for group in groups:
            first_row, row = row, row + len(group.came)
            first, at = at, at + sum(counts[first_row:row])
            self._fill(group, counts[first_row:row], datas[first:at], tags[first:at])
        filled = [group for group in groups if group.requests]
        if filled:
            self._sink.submit(filled)

    def _read(self, bodies: list[bytes | bytearray]) -> tuple[list[int], list[bytes], list[bytes]]:
        """How many records each of the bodies brings that brings payloads, maybe tags, and nothing
        else, and these of all; 0 where that is not so, or not certain."""
        read: tuple[list[int], list[bytes], list[bytes]] = [0] * len(bodies), [], []
        if _native is not None:
            # Without memory for all at once each is decoded alone, and answered (I15).
            with contextlib.suppress(MemoryError):
                read = _native.plain_records(
                    bodies, limits.BATCH_RECORDS_MAX, self._record_bytes_max, limits.TAG_BYTES_MAX
                )
        return read

    def _fill(
        self, group: ExchangeGroup, counts: list[int], datas: list[bytes], tags: list[bytes]
    ) -> None:
        if all(counts):
            group.take(counts, plain_records(datas, tags))
            return
        at = 0
        for exchange, count in zip(group.came, counts, strict=True):
            first, at = at, at + count
            try:
                if count:
                    group.add(exchange, plain_records(datas[first:at], tags[first:at]))
                else:
                    self._sink.take_unusual(group, exchange)
            except HeadwaterError as error:
                exchange.fail(error)
            except Exception as error:
                exchange.broken(error)


class LocalWrites:
    """Into the engine of this process."""

    takes_pipelined = True

    def __init__(self, backend: Backend, writer: TurnWriter, limits: LimitSettings) -> None:
        self._backend = backend
        self._writer = writer
        self._record_bytes_max = limits.record_bytes
        self.replies = WriteReplies()
        writer.senders.append(self.replies.send)
        self.takes = writer.takes
        self.submit = writer.submit

    def take_unusual(self, group: ExchangeGroup, exchange: Exchange) -> None:
        request = decode_request(body_of(exchange), WriteRequest)
        key = None if request.idempotency_key is None else checked_key(request.idempotency_key)
        if _goes_along(request) and not (key is not None and self._is_known(group, key)):
            group.add(exchange, encode_request(request, self._record_bytes_max), key)
            return
        if group.requests:
            self.submit([group.cut()])
        write_request(self._backend, exchange, request)

    def _is_known(self, group: ExchangeGroup, key: bytes) -> bool:
        """A write with this key was made before, or is among these: it gets the same answer."""
        engine = self._backend.engine
        topic = engine.find(group.name)
        known = None if topic is None else topic.keys.lookup(key, engine.core.clock.wall_ms())
        return key in group.keys or known is not None

    def write_alone(self, exchange: Exchange) -> None:
        write_records(self._backend, exchange)


def has_plain_head(head: Head) -> bool:
    """Nothing in the head of this write asks for more than to store what it brings."""
    return (
        head.is_plain_json
        and head.keep_alive
        and not head.query_bytes
        and b"idempotency-key" not in head.headers
    )


def _goes_along(request: WriteRequest) -> bool:
    """Records, and nothing else that has to be checked for this write alone."""
    return (
        request.expect_head_seq is None
        and request.return_seqs is None
        and request.config is None
        and not request.disable_backpressure
        and all(record.deliver_at is None for record in request.records)
    )


class WriteReplies:
    """Of the connections of one endpoint."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._replies: list[Reply] = []

    def add(
        self, exchanges: list[Exchange], counts: list[int], first_seq: int, told: Told
    ) -> list[Exception]:
        """Answer requests whose records, so many of each, have the seqs from the first one on. What
        cannot go straight to its socket is sent now, the rest in `send`. Gives the failures that
        are mistakes of ours: the requests behind such a one are answered all the same."""
        shared = (_opening_of(told[0]), *told[1:])
        mistakes: list[Exception] = []
        seq = first_seq
        for exchange, count in zip(exchanges, counts, strict=True):
            connection = exchange.connection
            own = (exchange.number, seq, count, exchange.started_us)
            seq += count
            try:
                if count > _SHORT_RECORDS_MAX and exchange.takes_gzip:
                    endpoint = connection.endpoint
                    exchange.answer_json(200, write_answer(*_told((0, *own, *shared), endpoint)))
                elif _native_answers is not None and connection.takes_direct_answer:
                    self._replies.append((connection.reading.descriptor, *own, *shared))
                    self._exchanges.append(exchange)
                else:
                    exchange.answer_whole(_printed((0, *own, *shared), connection.endpoint))
            except Exception as mistake:
                mistakes.append(mistake)
        return mistakes

    def send(self) -> None:
        """Send what was added."""
        if not self._replies:
            return
        exchanges, self._exchanges = self._exchanges, []
        replies, self._replies = self._replies, []
        endpoint = exchanges[0].connection.endpoint
        now_us = endpoint.now_us()
        try:
            assert _native_answers is not None, "no request was taken for direct"
            unsent = _native_answers.send_write_replies(
                SHORT_HEAD, endpoint.request_prefix, replies, now_us
            )
        except Exception:  # before anything was sent: every request gets an answer (I15)
            for exchange, reply in zip(exchanges, replies, strict=True):
                exchange.answer_whole(_printed(reply, endpoint))
            raise
        for exchange in exchanges:
            exchange.connection.answered(now_us)
        for row, rest in unsent.items():
            exchanges[row].connection.send(rest)


def _printed(reply: Reply, endpoint: HttpEndpoint) -> bytes:
    opening, *told = _told(reply, endpoint)
    return write_reply(endpoint.request_prefix, opening, reply[1], *told)


def _told(reply: Reply, endpoint: HttpEndpoint) -> tuple[bytes, int, int, int, int, int, int]:
    """What the body says."""
    _, _, first_seq, count, started_us, opening, head_seq, sync_us, throttle_us = reply
    total_us = endpoint.now_us() - started_us
    return opening, first_seq, count, head_seq, total_us, sync_us, throttle_us
