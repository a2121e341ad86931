"""Producing to a log topic: the records of a batch become one append of the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from headwater.core import limits
from headwater.core.durability import Durability
from headwater.core.errors import (
    BatchTooLargeError,
    InvalidRequestError,
    RecordTooLargeError,
    UnavailableError,
)
from headwater.core.results import Appended
from headwater.core.units import KIB
from headwater.engine.engine import Engine
from headwater.engine.kafka.producers import Producers, SentBatch
from headwater.engine.operation import Answered, AsOwner, InFiles, Operation
from headwater.engine.owner import Owner, Pending
from headwater.engine.partition import Produced, Repeated
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import ensure_loaded
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.format.kafka.batch import BatchHeader, read_header
from headwater.format.kafka.mapping import to_native
from headwater.format.kafka.records import KafkaRecord, decode_records

_KEY: Final = "kafka-producer"
PRODUCERS_MAX: Final = 10_000
IN_PASSING_BYTES_MAX: Final = 16 * KIB
"""A batch that is not compressed and not longer is decoded at once, by the owner."""


class Turns:
    """Hands batches to the log in the order they came, in whatever order they are decoded."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Pending[bool]] = deque()

    def take(self) -> Pending[bool]:
        """Answered when it is this one's turn."""
        turn: Pending[bool] = Pending()
        if self._is_taken:
            self._waiting.append(turn)
        else:
            self._is_taken = True
            turn.succeed(True)
        return turn

    def end(self, owner: Owner) -> None:
        if self._waiting:
            turn = self._waiting.popleft()
            owner.post(lambda: turn.succeed(True))
        else:
            self._is_taken = False


class NativeAppender:
    __slots__ = ("_engine", "_producers", "_topic", "_turns")

    def __init__(self, engine: Engine, topic: Topic) -> None:
        self._engine = engine
        self._topic = topic
        self._turns = Turns()
        self._producers = Producers(PRODUCERS_MAX)
        """Of this run; keys in the log of the topic know what an earlier run took."""

    def refused(self, header: BatchHeader) -> None:
        if header.producer_id >= 0:
            self._producers.refuse(header)

    def produce_operation(self, batch: bytes, durability: Durability) -> Operation[Produced]:
        """The batch was checked by `check_batch`.

        Long and compressed batches are decoded by a reader; those behind them wait for their turn,
        so that a producer's batches stay in order. A turn ends when the log was given the records.
        """
        topic, header = self._topic, read_header(batch)
        turn: Pending[bool] = yield AsOwner(self._turns.take)
        yield Answered(lambda: turn)
        try:
            yield from ensure_loaded(topic)
            sent: SentBatch | None = yield AsOwner(lambda: self._sent_before(header))
            if sent is None:
                decode = partial(_decoded, batch)
                in_passing = not header.codec and len(batch) <= IN_PASSING_BYTES_MAX
                records: EncodedRecords = decode() if in_passing else (yield InFiles(decode))
                try:
                    write = self._start(header, records, durability)
                except UnavailableError:
                    self.refused(header)
                    raise
            elif sent.pending is not None:
                write = _follow(sent.pending)
            else:
                return Repeated(sent.base_offset, topic.last_ts, topic.earliest_seq - 1)
        finally:
            self._turns.end(self._engine.core.owner)
        appended: Appended = yield Answered(lambda: write)
        answer_type = Produced if sent is None and not appended.deduped else Repeated
        return answer_type(appended.first_seq - 1, topic.last_ts, topic.earliest_seq - 1)

    def _sent_before(self, header: BatchHeader) -> SentBatch | None:
        return None if header.producer_id < 0 else self._producers.check(header)

    def _start(
        self, header: BatchHeader, records: EncodedRecords, durability: Durability
    ) -> Pending[Appended]:
        key = None
        if header.producer_id >= 0:
            key = f"{_KEY}:{header.producer_id}:{header.producer_epoch}:{header.base_sequence}"
        write = self._engine.append(
            self._topic.name,
            records,
            idempotency_key=key,
            create=False,
            synced=durability is Durability.FSYNC,
        )
        if key is None:
            return write
        sent = self._producers.take(header, write.first_seq - 1, None if write.done else write)
        if write.done:
            return write
        response = Write(write.topic, write.first_seq, write.ts)
        write.on_done = partial(self._complete, header, sent, response)
        return response

    def _complete(
        self, header: BatchHeader, sent: SentBatch, response: Write, write: Pending[Appended]
    ) -> None:
        sent.pending = None
        if write.error is not None:
            self._producers.give_up(header, sent)
            response.fail(write.error)
        else:
            response.succeed(write.answer())


def _decoded(batch: bytes) -> EncodedRecords:
    return encoded(decode_records(batch))


def _follow(write: Write) -> Write:
    if write.done:
        return write
    follower = Write(write.topic, write.first_seq, write.ts)
    write.follow(follower)
    return follower


def encoded(records: Sequence[KafkaRecord]) -> EncodedRecords:
    """Records as the engine takes them. One that is over a limit refuses all of them."""
    if len(records) > limits.BATCH_RECORDS_MAX:
        raise BatchTooLargeError(
            f"a write takes up to {limits.BATCH_RECORDS_MAX} records, not {len(records)}"
        )
    batch = EncodedRecords([], [], [], [])
    for position, record in enumerate(records):
        fields = to_native(record.key, record.value, record.headers)
        joined, meta = fields.joined, fields.meta
        if len(joined) > limits.RECORD_BYTES_MAX:
            raise RecordTooLargeError(
                f"record {position} has {len(joined)} bytes; "
                f"at most {limits.RECORD_BYTES_MAX} are taken"
            )
        if meta is not None and len(meta) > limits.META_BYTES_MAX:
            raise RecordTooLargeError(
                f"record {position}: headers and key have over {limits.META_BYTES_MAX} bytes"
            )
        if len(record.headers) > limits.META_KEYS_MAX:
            raise InvalidRequestError(f"record {position} has over {limits.META_KEYS_MAX} headers")
        batch.flags.append(fields.flags)
        batch.nodes.append(fields.node)
        batch.tags.append(fields.tag)
        batch.datas.append(joined)
        batch.size += len(fields.node) + len(fields.tag) + len(joined)
    return batch
