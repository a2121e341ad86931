"""Produce: a batch goes into the log as it came, and belongs to its partition once it is there.

The base offset and the leader epoch are written into the batch on the way: both are outside of the
CRC. The offset is right unless the log refuses a batch that stands in front, so a fetch has
nothing to patch, but checks.

Keeps I2, I15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.core.durability import Durability
from headwater.core.errors import BatchTooLargeError, HeadwaterError, TopicNotFoundError
from headwater.engine.kafka.configs import MAX_MESSAGE_BYTES, config_number
from headwater.engine.kafka.core import EventChange, KafkaCore
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.producers import SentBatch
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced, Repeated
from headwater.format.kafka.batch import BatchHeader, assign_offset, read_header
from headwater.format.kafka.entry import PREFIX_BYTES
from headwater.observe.tracing import PRODUCE_SPAN
from headwater.wal.ticket import Ticket


class Produce(Pending[Produced]):
    """One batch on its way."""

    header: BatchHeader | None = None
    sent: SentBatch | None = None
    waits = False
    began_ms: int | None = None
    """When it came, if spans are exported."""
    _followers: list[Pending[Produced]] | None = None

    def __init__(self, partition: KafkaPartition, base_offset: int, records: int) -> None:
        self.partition = partition
        self.entry_key = partition.entry_key
        self.base_offset = base_offset
        self.records = records

    def follow(self) -> Pending[Produced]:
        """The same batch came again while it was under way: it gets the same answer."""
        follower: Pending[Produced] = Pending()
        if self._followers is None:
            self._followers = []
        self._followers.append(follower)
        return follower

    def succeed(self, result: Produced) -> None:
        super().succeed(result)
        for follower in self._followers or ():
            follower.succeed(Repeated(*result))

    def fail(self, error: HeadwaterError) -> None:
        super().fail(error)
        for follower in self._followers or ():
            follower.fail(error)


class BatchAppender:
    def __init__(self, core: KafkaCore) -> None:
        self._core = core

    def append(
        self,
        partition: KafkaPartition,
        batch: bytes | memoryview,
        durability: Durability,
        header: BatchHeader | None = None,
    ) -> Pending[Produced]:
        """Start a write of a batch that `check_batch` checked; its header need not be read again
        if given. The answer may be there already."""
        core, topic = self._core, partition.topic
        if topic.dropped:
            raise TopicNotFoundError(f"topic {topic.name!r} is gone")
        bytes_max = core.settings.batch_bytes_max
        if topic.configs:
            bytes_max = min(bytes_max, config_number(topic.configs, MAX_MESSAGE_BYTES))
        if len(batch) > bytes_max:
            raise BatchTooLargeError(
                f"a batch of {len(batch)} bytes; {topic.name!r} takes {bytes_max}",
            )
        if header is None:
            header = read_header(batch)
        records = header.record_count
        write = Produce(partition, partition.next_offset, records)
        if header.producer_id >= 0:
            repeat = self._check_sequence(write, header)
            if repeat is not None:
                return repeat
        body = assign_offset(batch, write.base_offset)
        if durability is Durability.FSYNC or partition.waiting:
            durability = Durability.FSYNC  # behind a write that waits for a sync all wait
            write.waits = True
        if core.spans.wanted:
            write.began_ms = core.clock.wall_ms()
        try:
            core.submit(Ticket(body, records, durability, context=write))
        except HeadwaterError:
            self.refused(partition, header)
            raise
        if write.waits:
            partition.waiting += 1
        if write.header is not None:
            write.sent = core.producers_of(partition).take(
                write.header, write.base_offset, write, core.running_s()
            )
        partition.in_flight += 1
        partition.next_offset += records
        return write

    def refused(self, partition: KafkaPartition, header: BatchHeader) -> None:
        """A batch was not taken, and will come again: what its producer sent behind it waits."""
        if header.producer_id >= 0:
            core = self._core
            core.producers_of(partition).refuse(header, core.running_s())

    def _check_sequence(self, write: Produce, header: BatchHeader) -> Pending[Produced] | None:
        """None for a batch that is the next one; otherwise what it was answered before."""
        partition = write.partition
        known = self._core.producers_of(partition).check(header)
        write.header = header
        if known is None:
            return None
        self._core.counters.duplicates += 1
        if isinstance(known.pending, Produce):
            return known.pending.follow()
        repeat: Pending[Produced] = Pending()
        repeat.result = Repeated(known.base_offset, -1, partition.log_start_offset)
        return repeat

    def take_effect(self, tickets: Sequence[Ticket]) -> None:
        """As the owner: the answers of the log, in its order."""
        broken: Exception | None = None
        updated: dict[KafkaPartition, None] = {}
        for ticket in tickets:
            ticket.taken = True
            try:
                self._take(ticket, updated)
            except Exception as error:  # writes behind it get their answers all the same (I15)
                broken = broken or error
        core = self._core
        pending = core.pending
        while pending and pending[0].taken:
            first = pending.popleft()
            if first.error is None:  # a refused one may have been numbered before it failed
                core.applied_id = max(core.applied_id, first.last_frame)
        for partition in updated:
            partition.wake()
        core.spans.refresh_if_due(core.clock.monotonic_us())
        if broken is not None:
            raise broken

    def _take(self, ticket: Ticket, updated: dict[KafkaPartition, None]) -> None:
        context: Any = ticket.context
        if isinstance(context, Produce):
            if ticket.error is None:
                self._published(ticket, context)
                updated[context.partition] = None
            else:
                self._failed(context, ticket.error)
        elif isinstance(context, EventChange):
            self._core.unsaved_bytes += len(ticket.body)
            if ticket.error is None:
                context.event_id = ticket.last_frame - 1
                context.carry_out()
            else:
                context.refuse(ticket.error)

    def _published(self, ticket: Ticket, write: Produce) -> None:
        core, partition = self._core, write.partition
        base = partition.high_watermark
        end_id = ticket.last_frame
        partition.own(end_id - write.records, end_id)
        body = ticket.body
        size = len(body)
        if base != write.base_offset:
            # A batch in front was refused after its offsets were taken.
            body = assign_offset(memoryview(body)[PREFIX_BYTES:], base)
        partition.bytes += size
        core.unsaved_bytes += size
        core.keep_in_memory(partition, base, body)
        counters = core.counters
        counters.batches_appended += 1
        counters.records_appended += write.records
        counters.bytes_appended += size
        if write.sent is not None:
            write.sent.base_offset = base
            write.sent.pending = None
            partition.topic.saved = None
        self._no_longer_under_way(write)
        if write.began_ms is not None:
            facts: dict[str, str | int] = {
                "virtual_topic": partition.key_text,
                "record_count": write.records,
                "base_offset": base,
            }
            core.spans.record(PRODUCE_SPAN, write.began_ms, core.clock.wall_ms(), facts)
        write.succeed(Produced(base, -1, partition.log_start_offset))

    def _failed(self, write: Produce, error: HeadwaterError) -> None:
        partition = write.partition
        if write.sent is not None and write.header is not None and partition.producers is not None:
            partition.producers.give_up(write.header, write.sent)
        self._no_longer_under_way(write)
        write.fail(error)

    def _no_longer_under_way(self, write: Produce) -> None:
        partition = write.partition
        partition.in_flight -= 1
        if write.waits:
            partition.waiting -= 1
        if not partition.in_flight:
            partition.next_offset = partition.high_watermark
