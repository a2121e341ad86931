"""The writes that came in one turn of the loop are one submission, whatever their topics.

Fifty connections that write a record each, or a hundred, ask fifty questions and get fifty answers.
In between they are, for each topic, one run of seqs and one publication, and for all topics
together one reading of their bodies, one encoding, one ticket for each shard and one sending of
answers. A write that asks for more than its records to be stored (an expected head, a setting, the
answer of a key that was used before) goes by itself, behind those to its topic that came before it.
See docs/decisions/0039-a-turn-is-one-submission.md.

Keeps I2, I15.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.config.server import LimitSettings
from headwater.config.topic import Discard
from headwater.core import limits
from headwater.core.errors import HeadwaterError, OverloadedError
from headwater.core.results import Appended
from headwater.engine.owner import Pending
from headwater.engine.topics.appender import SUBMISSION_BYTES, SUBMISSION_WRITERS
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import EncodedRecords, KeyedPart, checked_key
from headwater.format.frame import FrameFlag
from headwater.native import compiled
from headwater.server.backend import Backend
from headwater.server.http.exchange import Exchange
from headwater.server.http.request_body import body_of
from headwater.server.http.write_handler import encode_request, write_records, write_request
from headwater.server.http.write_replies import WriteReplies
from headwater.wire.requests import WriteRequest, decode_request

if TYPE_CHECKING:
    from headwater.engine.engine import Engine
    from headwater.engine.state.topic import Topic
    from headwater.server.http.request_head import Head

_native: Final = compiled("bodies")
_HAS_TAG: Final = int(FrameFlag.HAS_TAG)


def take_write(batcher: WriteBatcher, exchange: Exchange) -> None:
    """POST /v0/topics/:topic."""
    if not (exchange.head.is_plain_write and batcher.add(exchange)):
        batcher.write_alone(exchange)


class _Batch:
    """Writes to one topic, how many records each brings, and these, in the same order."""

    __slots__ = ("came", "counts", "keys", "members", "records", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.came: list[Exchange] = []
        self.begin()

    def begin(self) -> None:
        self.members: list[Exchange] = []
        self.counts: list[int] = []
        self.records = EncodedRecords([], [], [], [])
        self.keys: set[bytes] = set()

    def take(self, counts: list[int], records: EncodedRecords) -> None:
        """All that came."""
        self.members, self.counts, self.records = self.came, counts, records

    def add(self, exchange: Exchange, encoded: EncodedRecords, key: bytes | None = None) -> None:
        exchange.usage.begin()
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


class WriteBatcher:
    """Filled by the connections, emptied when the loop has read from all that had something."""

    def __init__(self, backend: Backend, limits: LimitSettings) -> None:
        self._backend = backend
        self._record_bytes_max = limits.record_bytes
        self.replies = WriteReplies()
        self.engine: Engine | None = None
        """None until there is one to write to."""
        self._batches: dict[str, _Batch] = {}
        self._came = 0
        self._came_bytes = 0

    def add(self, exchange: Exchange) -> bool:
        """Take a write along; False when its topic has to check each by itself."""
        if self.engine is None:
            return False
        if self._came >= SUBMISSION_WRITERS or self._came_bytes >= SUBMISSION_BYTES:
            self.flush()
        name = exchange.head.parameters[0]
        batch = self._batches.get(name)
        if batch is None:
            topic = self.engine.find(name)
            if topic is None or not _takes_batches(topic):
                return False
            if not self._batches:
                self.engine.core.owner.at_end_of_turn(self.flush)
            batch = self._batches[name] = _Batch(topic)
        batch.came.append(exchange)
        self._came += 1
        self._came_bytes += len(exchange.body)
        return True

    def write_alone(self, exchange: Exchange) -> None:
        write_records(self._backend, exchange)

    def flush(self) -> None:
        """Have the writes that came take their seqs; they are submitted at the end of the turn."""
        if not self._batches:
            return
        batches, self._batches = list(self._batches.values()), {}
        self._came = self._came_bytes = 0
        bodies = [exchange.body for batch in batches for exchange in batch.came]
        counts, datas, tags = self._read(bodies)
        row = at = 0
        for batch in batches:
            first_row, row = row, row + len(batch.came)
            first, at = at, at + sum(counts[first_row:row])
            self._fill(batch, counts[first_row:row], datas[first:at], tags[first:at])
        self._send(batches)

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
        self, batch: _Batch, counts: list[int], datas: list[bytes], tags: list[bytes]
    ) -> None:
        usage, came = batch.came[0].usage, len(batch.came)
        if (
            all(counts)
            and all(exchange.head.usage is usage for exchange in batch.came)
            and usage.has_room(came)
        ):
            usage.in_flight += came
            batch.take(counts, _plain(datas, tags))
            return
        at = 0
        for exchange, count in zip(batch.came, counts, strict=True):
            first, at = at, at + count
            try:
                if count:
                    batch.add(exchange, _plain(datas[first:at], tags[first:at]))
                else:
                    self._decode(batch, exchange)
            except HeadwaterError as error:
                exchange.fail(error)
            except Exception as error:
                exchange.broken(error)

    def _decode(self, batch: _Batch, exchange: Exchange) -> None:
        """One that may bring more than payloads and tags."""
        request = decode_request(body_of(exchange), WriteRequest)
        key = None if request.idempotency_key is None else checked_key(request.idempotency_key)
        if _goes_along(request) and not (key is not None and self._is_known(batch, key)):
            batch.add(exchange, encode_request(request, self._record_bytes_max), key)
            return
        self._send([batch])
        batch.begin()
        write_request(self._backend, exchange, request)

    def _is_known(self, batch: _Batch, key: bytes) -> bool:
        """A write with this key was made before, or is among these: it gets the same answer."""
        engine = self.engine
        assert engine is not None
        now_ms = engine.core.clock.wall_ms()
        return key in batch.keys or batch.topic.keys.lookup(key, now_ms) is not None

    def _send(self, batches: Sequence[_Batch]) -> None:
        engine = self.engine
        assert engine is not None
        by_topic: dict[Topic, _Batch] = {}
        for batch in batches:
            if batch.members and engine.find(batch.topic.name) is not batch.topic:
                self._send_one_by_one(batch.members)  # it was dropped since they came
            elif batch.members:
                batch.records.writers = len(batch.members)
                by_topic[batch.topic] = batch
        try:
            started = engine.append_turn({topic: b.records for topic, b in by_topic.items()})
        except Exception as error:  # a mistake of ours: every request gets an answer (I15)
            for batch in by_topic.values():
                for exchange in batch.members:
                    exchange.usage.end()
                    exchange.broken(error)
            return
        for batch, write in zip(by_topic.values(), started, strict=True):
            if isinstance(write, HeadwaterError):
                self._send_one_by_one(batch.members)
            elif write.done:
                self._answer(batch.counts, batch.members, write)
            else:
                write.on_done = partial(self._answer, batch.counts, batch.members)

    def _send_one_by_one(self, members: Sequence[Exchange]) -> None:
        """Nothing of them was taken together. Alone, each gets the answer that is its own."""
        for exchange in members:
            exchange.usage.end()
            exchange.attempt(self.write_alone)

    def _answer(self, counts: list[int], members: list[Exchange], write: Pending[Appended]) -> None:
        assert isinstance(write, Write)
        if isinstance(write.error, OverloadedError) and len(members) > 1:
            self._send_one_by_one(members)  # there may be room for some
            return
        for exchange in members:
            exchange.usage.in_flight -= 1
        if write.error is None:
            mistakes = self.replies.add(members, counts, write)
        else:
            mistakes = _fail_all(members, write.error)
        if mistakes:
            raise mistakes[0]


def _fail_all(exchanges: Sequence[Exchange], error: HeadwaterError) -> list[Exception]:
    mistakes: list[Exception] = []
    for exchange in exchanges:
        try:
            exchange.not_written(error)
        except Exception as mistake:  # the requests behind it are answered all the same (I15)
            mistakes.append(mistake)
    return mistakes


def has_plain_head(head: Head) -> bool:
    """Nothing in the head of this write asks for more than to store what it brings."""
    return (
        head.is_plain_json
        and head.keep_alive
        and not head.query_bytes
        and b"idempotency-key" not in head.headers
    )


def _plain(datas: list[bytes], tags: list[bytes]) -> EncodedRecords:
    """Records with a payload and maybe a tag each."""
    flags = [_HAS_TAG if tag else 0 for tag in tags]
    size = sum(map(len, datas)) + sum(map(len, tags))
    return EncodedRecords([b""] * len(datas), tags, datas, flags, size)


def _goes_along(request: WriteRequest) -> bool:
    """Records, and nothing else that has to be checked for this write alone."""
    return (
        request.expect_head_seq is None
        and request.return_seqs is None
        and request.config is None
        and not request.disable_backpressure
        and all(record.deliver_at is None for record in request.records)
    )


def _takes_batches(topic: Topic) -> bool:
    """One that is there for good, and does not check each write for room."""
    return (
        topic.loaded and topic.creation is None and topic.log.settings.discard is not Discard.REJECT
    )
