"""Produce: a batch goes into the log as it came, and belongs to its partition once it is there.

The base offset and the leader epoch are written into the batch on the way: both are outside of the
CRC. The offset is right unless the log refuses a batch that stands in front, so a fetch has
nothing to patch, but checks.

Keeps I2, I15.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headwater.core.durability import Durability
from headwater.core.errors import BatchTooLargeError, HeadwaterError, TopicNotFoundError
from headwater.engine.kafka.configs import MAX_MESSAGE_BYTES, config_number
from headwater.engine.kafka.core import EventChange, KafkaCore
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.kafka.producers import SentBatch
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced, Repeated
from headwater.engine.turn import Submission, WriteTurn, mistake_as_answer
from headwater.format.kafka.batch import BatchHeader, assign_offset, read_header
from headwater.format.kafka.entry import PREFIX_BYTES
from headwater.observe.tracing import PRODUCE_SPAN
from headwater.wal.batch_log import BatchAddress
from headwater.wal.ticket import Ticket


class Produce(Pending[Produced]):
    """One batch on its way."""

    writers = 1
    header: BatchHeader | None = None
    sent: SentBatch | None = None
    waits = False
    """For a sync."""
    began_ms: int | None = None
    """When it came, if spans are exported."""
    _followers: list[Pending[Produced]] | None = None

    def __init__(self, partition: KafkaPartition, records: int, body: bytes) -> None:
        self.partition = partition
        self.base_offset = partition.next_offset
        self.records = records
        self.body = body
        """As the log has it: with its offset, and its length in front."""

    @property
    def size(self) -> int:
        return len(self.body)

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


class BatchSubmission(Submission[Produce]):
    __slots__ = ()

    @property
    def batches(self) -> Iterator[BatchAddress]:
        for write in self.writes:
            yield BatchAddress(write.partition.entry_key, len(write.body), write.records)


class BatchAppender:
    def __init__(self, core: KafkaCore) -> None:
        self._core = core
        self._turn: WriteTurn[Produce] = WriteTurn(
            core.owner, self._submit, core.settings.wal.queue_submissions_max
        )
        core.send_begun = self._turn.send

    def append(
        self,
        partition: KafkaPartition,
        batch: bytes | memoryview,
        durability: Durability,
        header: BatchHeader | None = None,
    ) -> Pending[Produced]:
        """Take a batch that `check_batch` checked along with this turn; its header need not be read
        again if given. Raises what refuses it at once. The answer may be there already."""
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
        if header.producer_id >= 0:
            repeat = self._sent_before(partition, header)
            if repeat is not None:
                return repeat
        body = assign_offset(batch, partition.next_offset)
        write = Produce(partition, header.record_count, body)
        write.waits = durability is Durability.FSYNC or partition.waiting > 0
        if core.spans.wanted:
            write.began_ms = core.clock.wall_ms()
        partition.waiting += write.waits
        if header.producer_id >= 0:
            write.header = header
            write.sent = core.producers_of(partition).take(
                header, write.base_offset, write, core.running_s()
            )
        partition.in_flight += 1
        partition.next_offset += write.records
        self._turn.add(write)
        if write.error is not None:
            raise write.error
        return write

    def _submit(self, writes: list[Produce]) -> None:
        """One ticket for those that wait for a sync, behind one for those that do not: of a
        partition, those come later."""
        answered: set[Produce] = set()
        try:
            for waits in (False, True):
                submission = BatchSubmission()
                for write in writes:
                    if write.waits is waits:
                        submission.add(write, write.body, write.records)
                if not submission.writes:
                    continue
                durability = Durability.FSYNC if waits else Durability.DISK
                refused = submission.hand_over(self._core.submit, durability)
                answered.update(submission.writes)
                if refused is not None:
                    self._failed(*refused)
        except Exception as mistake:
            left = [write for write in writes if not (write.done or write in answered)]
            if not left:
                raise
            self._failed(left, mistake_as_answer(mistake))

    def refused(self, partition: KafkaPartition, header: BatchHeader) -> None:
        """A batch was not taken, and will come again: what its producer sent behind it waits."""
        if header.producer_id >= 0:
            core = self._core
            core.producers_of(partition).refuse(header, core.running_s())

    def _sent_before(
        self, partition: KafkaPartition, header: BatchHeader
    ) -> Pending[Produced] | None:
        """None for a batch that is the next one; otherwise what it was answered before."""
        known = self._core.producers_of(partition).check(header)
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
        broken: list[Exception] = []
        updated: dict[KafkaPartition, None] = {}
        for ticket in tickets:
            ticket.taken = True
            try:
                self._take(ticket, updated, broken)
            except Exception as error:  # what is behind it is answered all the same (I15)
                broken.append(error)
        core = self._core
        pending = core.pending
        while pending and pending[0].taken:
            first = pending.popleft()
            if first.error is None:  # a refused one may have been numbered before it failed
                core.applied_id = max(core.applied_id, first.last_frame)
        for partition in updated:
            partition.wake()
        core.spans.refresh_if_due(core.clock.monotonic_us())
        if broken:
            raise broken[0]

    def _take(
        self, ticket: Ticket, updated: dict[KafkaPartition, None], broken: list[Exception]
    ) -> None:
        context: Any = ticket.context
        if isinstance(context, BatchSubmission):
            if ticket.error is not None:
                self._failed(context.writes, ticket.error)
                return
            end_id = ticket.last_frame - ticket.frame_count
            for write in context.writes:
                end_id += write.records
                updated[write.partition] = None
                try:
                    self._published(write, end_id)
                except Exception as error:  # those behind it are answered all the same (I15)
                    broken.append(error)
        elif isinstance(context, EventChange):
            self._core.unsaved_bytes += len(ticket.body)
            if ticket.error is None:
                context.event_id = ticket.last_frame - 1
                context.carry_out()
            else:
                context.refuse(ticket.error)

    def _published(self, write: Produce, end_id: int) -> None:
        core, partition = self._core, write.partition
        base = partition.high_watermark
        partition.own(end_id - write.records, end_id)
        body = write.body
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

    def _failed(self, writes: Sequence[Produce], error: HeadwaterError) -> None:
        """Nothing of them is in the log. They may come again: what their producers sent behind them
        waits for that."""
        for write in writes:
            producers = write.partition.producers
            if write.sent is not None and write.header is not None and producers is not None:
                producers.give_up(write.header, write.sent)
            self._no_longer_under_way(write)
        mistake: Exception | None = None
        for write in writes:
            try:
                write.fail(error)
            except Exception as broken:  # those behind it are answered all the same (I15)
                mistake = mistake or broken
        if mistake is not None:
            raise mistake

    def _no_longer_under_way(self, write: Produce) -> None:
        partition = write.partition
        partition.in_flight -= 1
        if write.waits:
            partition.waiting -= 1
        if not partition.in_flight:
            partition.next_offset = partition.high_watermark
