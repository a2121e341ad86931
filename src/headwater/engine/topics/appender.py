"""The way in: admit, take seqs, encode once, submit. The answer of the log goes to `publisher`.

The unit is the turn: the writes that one pass of the event loop brought, whatever their topics. A
lone write is a turn of one. Nothing is awaited here, and nothing is done per record that can be
done per batch, or per topic that can be done per turn. What fails before the log took it leaves
nothing behind.

Keeps I2, I3, I13.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from headwater.config.topic import Discard, TopicType
from headwater.core.durability import Durability
from headwater.core.errors import (
    HeadwaterError,
    NotAQueueError,
    OverloadedError,
    RequestError,
    TopicExistsIncompatibleError,
)
from headwater.core.results import Appended
from headwater.core.units import US_PER_MS
from headwater.engine.owner import Change
from headwater.engine.pressure import PressureControl
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.lifecycle import Topics, flush_copies
from headwater.engine.topics.publisher import Keyed, Publisher, Write
from headwater.engine.topics.record_encoding import EncodedRecords, checked_key
from headwater.format.appends import Columns, FramesOfBatch, encode_batches
from headwater.format.control_frames import (
    IdempotencyEntry,
    LeaseEvent,
    LeaseKind,
    encode_head_watermark,
    encode_idempotency,
    encode_lease_event,
)
from headwater.format.frame import FrameFlag
from headwater.model.pressure import SAMPLE_US
from headwater.wal.ticket import Ticket

_DURABLE: Final = int(FrameFlag.DURABLE)
_FSYNC: Final = Durability.FSYNC
_REJECT: Final = Discard.REJECT
_NO_CONTROL: Final[tuple[Sequence[bytes], int]] = ((), 0)
_SAMPLE_MS: Final = SAMPLE_US // US_PER_MS


class _Submission:
    """What one turn brings to one shard in one class: it becomes one ticket."""

    __slots__ = ("durability", "frame_count", "parts", "shard", "writers", "writes")

    def __init__(self, shard: int, durability: Durability) -> None:
        self.shard = shard
        self.durability = durability
        self.parts: list[bytes] = []
        self.frame_count = 0
        self.writers = 0
        self.writes: list[Write] = []

    def ticket(self) -> Ticket:
        body = b"".join(self.parts)
        ticket = Ticket(body, self.frame_count, self.durability, context=self.writes)
        ticket.writers = self.writers
        return ticket


class Appender:
    def __init__(
        self,
        core: EngineCore,
        topics: Topics,
        publisher: Publisher,
        pressure_control: PressureControl,
    ) -> None:
        self._core = core
        self._topics = topics
        self._publisher = publisher
        self._pressure_control = pressure_control
        self._sampled_at = 0

    def append(
        self,
        name: str,
        records: EncodedRecords,
        *,
        idempotency_key: str | None = None,
        expect_head_seq: int | None = None,
        create: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
        synced: bool = False,
    ) -> Write:
        """Start a write by itself: a turn of one. The answer comes through `Write.on_done`, or is
        there already.

        `synced` has the ack of a disk-class topic wait for the sync, this once.
        """
        now = self._core.clock.wall_ms()
        self._admit(now, records.size, disable_backpressure)
        key = None if idempotency_key is None else checked_key(idempotency_key)
        topic = self._topics.for_write(name, create=create, settings=settings)
        if key is not None:
            repeat = self._repeat(topic, key, now)
            if repeat is not None:
                return repeat
        try:
            write = self._begin(topic, records, now, expect_head_seq)
        except RequestError:
            self._topics.forget_if_never_made(topic)
            raise
        write.created = topic.creation is not None and topic.in_flight == 0
        write.synced = synced
        if key is not None:
            write.keys = [Keyed(key, write.first_seq, write.first_seq + len(records) - 1)]
        self._submit([write])
        if write.refusal is not None:
            raise write.refusal
        return write

    def append_turn(self, batches: Mapping[Topic, EncodedRecords]) -> list[Write | HeadwaterError]:
        """Start the writes that one turn of the loop brought, to topics that are there and loaded:
        a write for each topic, or its refusal, in their order."""
        now = self._core.clock.wall_ms()
        size = sum([records.size for records in batches.values()])
        try:
            self._admit(now, size, disable_backpressure=False)
        except HeadwaterError as refusal:
            return [refusal] * len(batches)
        started: list[Write | HeadwaterError] = []
        writes: list[Write] = []
        for topic, records in batches.items():
            try:
                write = self._begin(topic, records, now)
            except HeadwaterError as refusal:
                started.append(refusal)
            else:
                started.append(write)
                writes.append(write)
        if self._submit(writes):
            return started
        return [each.refusal or each if isinstance(each, Write) else each for each in started]

    def _begin(
        self, topic: Topic, records: EncodedRecords, now: int, expect_head_seq: int | None = None
    ) -> Write:
        """Admit a batch by the rules of its topic and give it seqs. A refusal takes none."""
        log = topic.log
        settings = log.settings
        if records.deliver_at is not None and settings.type is not TopicType.QUEUE:
            raise NotAQueueError(f"{topic.name!r} is a log; deliver_at needs a queue")
        if topic.inbound is not None and topic.inbound.is_exact:
            raise _takes_copies_only(topic)
        if settings.discard is _REJECT:
            self._topics.evict(topic)  # what expired makes room
        size = records.size
        first_seq = log.assign(len(records.datas), size, expect_head_seq)
        if now > topic.last_ts:
            topic.last_ts = now
        write = Write(topic, first_seq, topic.last_ts)
        write.records = records
        write.writers = records.writers
        self._core.live_bytes += size
        return write

    def _admit(self, now_ms: int, size: int, disable_backpressure: bool) -> None:
        core = self._core
        sample = now_ms // _SAMPLE_MS
        if (
            sample != self._sampled_at
        ):  # a wall clock that jumps only causes a sample: that is harmless
            self._sampled_at = sample
            self._pressure_control.tick()
        if core.refusing and not disable_backpressure:
            raise self._pressure_control.refuse()
        if core.tail_bytes > core.settings.tail_bytes_max:
            core.wake_maintenance()
            raise OverloadedError(
                "checkpointing is behind; nothing was written, try again", retry_after_ms=200
            )
        allowed = core.settings.total_bytes_max
        if allowed and core.live_bytes + size > allowed:
            raise OverloadedError(
                f"the topics hold {core.live_bytes} of {allowed} bytes and this write has {size}; "
                "nothing was written. "
                "Delete records, lower a cap, or raise limit_total_bytes",
                detail={"limit": "total_bytes", "allowed": allowed},
            )

    def _repeat(self, topic: Topic, key: bytes, now: int) -> Write | None:
        """The answer to a key that was seen before: at once, or with the write under way."""
        known = topic.keys.lookup(key, now)
        if known is None:
            return None
        if isinstance(known.pending, Write):
            follower = Write(topic, known.first_seq, now)
            known.pending.follow(follower, known.last_seq)
            return follower
        repeat = Write(topic, known.first_seq, now)
        repeat.result = Appended(
            known.first_seq, known.last_seq, topic.log.visible_seq, known.created, deduped=True
        )
        return repeat

    def _submit(self, writes: Sequence[Write]) -> bool:
        """Encode and hand over what was begun, each topic once: one ticket for each shard and
        class. False when a shard refused: its writes have given their seqs back, and have the
        reason."""
        submissions: list[_Submission] = []
        all_taken = True
        try:
            frames = encode_batches([_columns_of(write) for write in writes])
            for write, made in zip(writes, frames, strict=True):
                self._join(write, made, submissions)
        except BaseException:
            self._take_back(writes)
            raise
        left = deque(submissions)
        while left:
            submission = left[0]
            try:
                self._core.submit_to(submission.shard, submission.ticket())
            except HeadwaterError as refusal:
                all_taken = False
                self._take_back(submission.writes)
                for write in submission.writes:
                    write.refusal = refusal
            except BaseException:
                for unsent in left:
                    self._take_back(unsent.writes)
                raise
            else:
                waits = submission.durability is _FSYNC
                for write in submission.writes:
                    write.waits = waits
                    write.topic.waiting += waits
                    self._under_way(write)
            left.popleft()
        return all_taken

    def _take_back(self, writes: Sequence[Write]) -> None:
        """Nothing of these reached the log."""
        for write in writes:
            if not write.done:
                topic, size = write.topic, write.records.size
                topic.log.unassign(write.first_seq, size)
                self._core.live_bytes -= size
                self._topics.forget_if_never_made(topic)

    def _join(
        self,
        write: Write,
        frames: FramesOfBatch,
        submissions: list[_Submission],
    ) -> None:
        """Put a write into the submission of its shard and class; or make it visible at once, where
        nothing of it goes into the log."""
        topic = write.topic
        write.buffer, write.offsets, write.lengths, write.flags = frames
        write.tags = write.records.tags
        durability = topic.log.settings.durability
        body, count = write.buffer, len(write.offsets)
        control, control_frames = self._control(write) if _brings_control(write) else _NO_CONTROL
        if durability is not _FSYNC:
            write.logged = durability.is_logged
            durability = self._class_for(write, durability)
            if not durability.is_logged and topic.creation is None and topic.in_flight == 0:
                self._under_way(write)
                self._publisher.published([write])
                return
            if not write.logged:
                body, count = b"", 0  # only its creation, if anything, goes into the log
        shard = topic.shard
        for submission in submissions:
            if submission.shard == shard and submission.durability is durability:
                break
        else:
            submission = _Submission(shard, durability)
            submissions.append(submission)
        if control:
            submission.parts += control
        submission.parts.append(body)
        submission.frame_count += control_frames + count
        submission.writers += write.writers
        submission.writes.append(write)

    def _control(self, write: Write) -> tuple[Sequence[bytes], int]:
        """What stands in front of its records in their group, and how many frames these are."""
        topic, records = write.topic, write.records
        control = [] if topic.creation is None else [topic.creation]
        count = len(control)
        flush = None if topic.inbound is None else flush_copies(self._core, topic)
        if flush is not None:
            write.on_flushed = flush.confirm
            control.append(flush.body)
            count += flush.frame_count
        if records.keys is not None:
            seq = write.first_seq
            write.keys = [
                Keyed(key, seq + position, seq + position + count - 1)
                for key, position, count in records.keys
            ]
        if write.keys:
            control += self._remember(write)
            count += len(write.keys)
        if records.deliver_at is not None:
            control.append(_schedule(write, records.deliver_at))
            count += 1
        return control, count

    def _class_for(self, write: Write, durability: Durability) -> Durability:
        """The class this very write is committed with; stronger than its topic's where it must.

        Behind a write that waits for a sync all wait, or records would be seen out of order. A
        creation is always synced, and so is a seq that is not covered by a durable ceiling (I3).
        """
        topic = write.topic
        waits = topic.waiting > 0 or topic.creation is not None or write.on_flushed is not None
        if durability is Durability.DISK:
            self._reserve(write)
            waits = (
                waits
                or write.synced
                or not self._core.ceilings.is_durable(topic.topic_id, write.last_seq)
            )
        return Durability.FSYNC if waits else durability

    def _under_way(self, write: Write) -> None:
        write.topic.in_flight += 1
        if write.keys:
            self._core.keyed[write.topic.topic_id] = write.topic
            for key, first_seq, last_seq in write.keys:
                write.topic.keys.begin(
                    key,
                    first_seq,
                    last_seq,
                    created=write.created,
                    expires_ts=write.expires_ts,
                    waiting=write,
                )

    def _reserve(self, write: Write) -> None:
        """Have a durable ceiling over the seqs of a class whose acks do not wait (I3).

        It is a ticket of its own: it must be synced before it counts, and the write must not be
        held up by that as long as the ceiling before still covers it.
        """
        core, topic_id = self._core, write.topic.topic_id
        ceiling = core.ceilings.reserve(topic_id, write.first_seq, write.last_seq)
        if ceiling is not None:
            confirm = Change(
                partial(self._confirm, write.topic, ceiling),
                partial(core.ceilings.take_back, topic_id),
            )
            frame = encode_head_watermark(topic_id, ceiling, write.ts)
            ticket = Ticket(frame, 1, Durability.FSYNC, essential=True, context=confirm)
            core.submit_to(write.topic.shard, ticket)

    def _confirm(self, topic: Topic, ceiling: int) -> bool:
        self._core.ceilings.confirm(topic.topic_id, ceiling)
        topic.meta = None
        return True

    def _remember(self, write: Write) -> list[bytes]:
        settings = write.topic.log.settings
        # Not by the time of the record, which may be ahead: no record is older than the one before.
        write.expires_ts = self._core.clock.wall_ms() + settings.idempotency_window_ms
        topic_id, expires_ts = write.topic.topic_id, write.expires_ts
        return [
            encode_idempotency(
                topic_id, IdempotencyEntry(*keyed, expires_ts, write.created), write.ts
            )
            for keyed in write.keys
        ]


def _brings_control(write: Write) -> bool:
    """Something stands in front of its records in their group; of most there is nothing."""
    topic, records = write.topic, write.records
    return bool(
        topic.creation is not None
        or topic.inbound is not None
        or records.keys
        or write.keys
        or records.deliver_at
    )


def _columns_of(write: Write) -> Columns:
    topic, records = write.topic, write.records
    return (
        topic.topic_id,
        write.first_seq,
        write.ts,
        _DURABLE if topic.log.settings.durability is Durability.FSYNC else 0,
        records.flags,
        records.nodes,
        records.tags,
        records.datas,
    )


def _schedule(write: Write, deliver_at: Mapping[int, int]) -> bytes:
    """The frame that keeps jobs back; it stands in the group of their records."""
    write.scheduled = {write.first_seq + at: time for at, time in deliver_at.items()}
    event = LeaseEvent(
        LeaseKind.APPOINTED,
        tuple(write.scheduled),
        times=tuple(write.scheduled.values()),
    )
    return encode_lease_event(write.topic.topic_id, event, write.ts)


def _takes_copies_only(topic: Topic) -> TopicExistsIncompatibleError:
    return TopicExistsIncompatibleError(
        f"{topic.name!r} is fed by an exactly_once router and takes no other records; "
        "write to its source, or make the router at_least_once",
        detail={"reason": "router_dest_exactly_once", "dest": topic.name},
    )
