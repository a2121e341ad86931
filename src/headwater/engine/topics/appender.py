"""The way in: admit, take seqs, encode once, submit. The answer of the log goes to `publisher`.

The unit is the turn: the writes that one pass of the event loop brought, whatever their topics and
protocols. Each is admitted and has its seqs when it comes; at the end of the turn all are encoded
and handed over together. A lone write is a turn of one. Nothing is awaited here, and nothing is
done per record that can be done per batch, or per topic that can be done per turn. What fails
before the log took it leaves nothing behind.

Keeps I2, I3, I13.
"""

from __future__ import annotations

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
from headwater.engine.topics.record_encoding import EncodedRecords, KeyedPart, checked_key
from headwater.engine.turn import Submission, WriteTurn, mistake_as_answer
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

Address = tuple[int, Durability]
"""A shard, and the class in which it takes something."""


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
        self._turn: WriteTurn[Write] = WriteTurn(
            core.owner, self._submit, core.settings.wal.queue_submissions_max
        )
        core.send_begun = self._turn.send

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
        """Take a write along with this turn. Raises what refuses it at once; every other answer
        comes through `Write.on_done`, or is there already.

        `synced` has the ack of a disk-class topic wait for the sync, this once.
        """
        self._core.before_append()
        now = self._core.clock.wall_ms()
        self._admit(now, records.size, disable_backpressure)
        key = None if idempotency_key is None else checked_key(idempotency_key)
        topic = self._topics.for_write(name, create=create, settings=settings)
        if key is not None:
            repeat = self._repeat(topic, key, now)
            if repeat is not None:
                return repeat
        try:
            write = self._begin(topic, records, now, expect_head_seq, key)
        except RequestError:
            self._topics.forget_if_never_made(topic)
            raise
        write.synced = synced
        self._turn.add(write)
        if write.error is not None:
            raise write.error
        return write

    def append_turn(self, batches: Mapping[Topic, EncodedRecords]) -> list[Write | HeadwaterError]:
        """Take writes along, to topics that are there and loaded: a write for each topic, or what
        refuses it before it has seqs, in their order."""
        now = self._core.clock.wall_ms()
        size = sum([records.size for records in batches.values()])
        try:
            self._admit(now, size, disable_backpressure=False)
        except HeadwaterError as refusal:
            return [refusal] * len(batches)
        started: list[Write | HeadwaterError] = []
        begun: list[Write] = []
        for topic, records in batches.items():
            try:
                write = self._begin(topic, records, now)
            except HeadwaterError as refusal:
                started.append(refusal)
            else:
                started.append(write)
                begun.append(write)
        if begun:
            self._turn.add(*begun)
        return started

    def _begin(
        self,
        topic: Topic,
        records: EncodedRecords,
        now: int,
        expect_head_seq: int | None = None,
        key: bytes | None = None,
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
        write.created = topic.creation is not None and topic.in_flight == 0
        self._core.live_bytes += size
        topic.in_flight += 1
        parts = records.keys if key is None else [KeyedPart(key, 0, len(records))]
        if parts is not None:
            self._note_keys(write, parts)
        return write

    def _note_keys(self, write: Write, parts: Sequence[KeyedPart]) -> None:
        """A repeat of what is on its way waits for that."""
        topic, seq = write.topic, write.first_seq
        # Not by the time of the record, which may be ahead: no record is older than the one before.
        now = self._core.clock.wall_ms()
        write.expires_ts = now + topic.log.settings.idempotency_window_ms
        write.keys = [
            Keyed(key, seq + position, seq + position + count - 1) for key, position, count in parts
        ]
        self._core.keyed[topic.topic_id] = topic
        for key, first_seq, last_seq in write.keys:
            topic.keys.begin(
                key,
                first_seq,
                last_seq,
                created=write.created,
                expires_ts=write.expires_ts,
                waiting=write,
            )

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

    def _submit(self, writes: list[Write]) -> None:
        """Encode and hand over: one ticket for each shard and class. Writes that their shard
        refuses give their seqs back and are answered so."""
        submissions: dict[Address, Submission[Write]] = {}
        handed_over: list[Submission[Write]] = []
        is_answered = False
        try:
            frames = encode_batches([_columns_of(write) for write in writes])
            for write, made in zip(writes, frames, strict=True):
                is_answered |= self._join(write, made, submissions)
            # A topic's writes that wait for a sync stand behind those that do not.
            for (shard, durability), submission in sorted(submissions.items(), key=_waits):
                submit = partial(self._core.submit_to, shard)
                refused = submission.hand_over(submit, durability)
                handed_over.append(submission)
                if refused is not None:
                    is_answered = True
                    self._publisher.failed(*refused)
        except Exception as mistake:
            elsewhere = {write for submission in handed_over for write in submission.writes}
            left = [write for write in writes if not (write.done or write in elsewhere)]
            if not left:
                raise
            is_answered = True
            self._publisher.failed(left, mistake_as_answer(mistake))
        if is_answered and self._core.on_published is not None:
            self._core.on_published()

    def _join(
        self,
        write: Write,
        frames: FramesOfBatch,
        submissions: dict[Address, Submission[Write]],
    ) -> bool:
        """Put a write into the submission of its shard and class; or make it visible and answer it
        at once, where nothing of it goes into the log: true then."""
        topic = write.topic
        write.buffer, write.offsets, write.lengths, write.flags = frames
        write.tags = write.records.tags
        durability = topic.log.settings.durability
        control, control_frames = self._control(write) if _brings_control(write) else _NO_CONTROL
        body, count = write.buffer, len(write.offsets)
        if durability is not _FSYNC:
            write.logged = durability.is_logged
            durability = self._class_for(write, durability)
            is_next = write.first_seq == topic.log.visible_seq + 1
            if not durability.is_logged and topic.creation is None and is_next:
                self._publisher.published([write])
                return True
            if not write.logged:
                body, count = b"", 0  # only its creation, if anything, goes into the log
        if durability is _FSYNC:
            write.waits = True
            topic.waiting += 1
        address = topic.shard, durability
        submission = submissions.get(address)
        if submission is None:
            submission = submissions[address] = Submission()
        if control:
            body = b"".join((*control, body))
        submission.add(write, body, control_frames + count)
        return False

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
        if write.keys:
            control += _remember(write)
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


def _waits(submission: tuple[Address, Submission[Write]]) -> bool:
    (_, durability), _ = submission
    return durability is Durability.FSYNC


def _remember(write: Write) -> list[bytes]:
    topic_id, expires_ts = write.topic.topic_id, write.expires_ts
    return [
        encode_idempotency(topic_id, IdempotencyEntry(*keyed, expires_ts, write.created), write.ts)
        for keyed in write.keys
    ]


def _brings_control(write: Write) -> bool:
    """Something stands in front of its records in their group; of most there is nothing."""
    topic = write.topic
    return bool(
        topic.creation is not None
        or topic.inbound is not None
        or write.keys
        or write.records.deliver_at
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
