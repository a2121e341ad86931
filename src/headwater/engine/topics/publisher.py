"""An append on its way to the log, and the way out: the log's answers take effect in its order,
become visible, and are acknowledged.

Writes of one topic that were committed together are made visible together: one run of entries, one
chunk for readers, one round of eviction and of wake-ups. What the log refused gives its seqs back.

Keeps I2, I13, I15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.core.results import Appended
from headwater.engine.owner import Change, Pending
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import TailChunk, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.engine.turn import Submission
from headwater.wal.ticket import Ticket


class Keyed(NamedTuple):
    """An idempotency key, and the records it stands for."""

    key: bytes
    first_seq: int
    last_seq: int


class PendingAppend(Pending[Appended]):
    """One append of one or more records to any partition."""

    keys: Sequence[Keyed] = ()
    """One for all of its records; or several, when it stands for writes of others."""
    expires_ts = 0
    sync_us = 0
    """How long the sync took that this write waited for."""
    throttle_us = 0
    """How much longer its group waited for company because of pressure, at most."""
    _followers: list[tuple[PendingAppend, int | None]] | None = None
    """Each with the last seq of what it repeats, when that is a part."""

    def __init__(self, first_seq: int, ts: int) -> None:
        self.first_seq = first_seq
        self.ts = ts

    def follow(self, follower: PendingAppend, last_seq: int | None = None) -> None:
        """A repeat of this write waits for it and gets the same answer, marked as a repeat. A
        repeat of a part gets that part: from the follower's own first seq to this one."""
        if self._followers is None:
            self._followers = []
        self._followers.append((follower, last_seq))

    def succeed(self, result: Appended) -> None:
        self.result = result
        if self.on_done is not None:
            self.on_done(self)
        if self._followers is not None:
            repeated = result._replace(deduped=True)
            for follower, last_seq in self._followers:
                first_seq = follower.first_seq
                follower.succeed(
                    repeated
                    if last_seq is None
                    else repeated._replace(first_seq=first_seq, last_seq=last_seq)
                )

    def fail(self, error: HeadwaterError) -> None:
        super().fail(error)
        for follower, _ in self._followers or ():
            follower.fail(error)


class Write(PendingAppend):
    """An append to a topic of the engine."""

    buffer = b""
    offsets: Sequence[int] = ()
    lengths: Sequence[int] = ()
    """Size each record will have in a segment."""
    flags: Sequence[int] = ()
    tags: Sequence[bytes] = ()
    created: bool
    writers: int
    """How many writes of others it stands for."""
    waits: bool
    """Its ack is held until a sync."""
    logged: bool
    """Its records are in the log."""
    synced = False
    """Its ack is to wait for a sync, whatever the topic's class says of disk writes."""
    scheduled: dict[int, int] | None
    """When jobs of a queue may be delivered, by seq."""
    records: EncodedRecords
    """What it brings."""
    on_flushed: Callable[[], None] | None
    """Told that the copies in front of it in its group are durable."""

    def __init__(self, topic: Topic, first_seq: int, ts: int) -> None:
        self.topic = topic
        self.first_seq = first_seq
        self.ts = ts
        # Read for each write: what is set here is found sooner than what stands in the class.
        self.writers = 1
        self.waits = self.created = False
        self.logged = True
        self.keys = ()
        self.error = self.result = self.on_done = None
        self.scheduled = self.on_flushed = self._followers = None

    @property
    def size(self) -> int:
        return self.records.size

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.records) - 1


class Publisher:
    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics

    def take_effect(self, tickets: Sequence[Ticket]) -> None:
        """As the owner: the answers of the log. They take effect in its order for each topic; the
        writes of one topic are taken together unless something else was answered between them."""
        broken: list[Exception] = []
        by_topic: dict[Topic, tuple[Write] | list[Write]] = {}
        for ticket in tickets:
            context = ticket.context
            if ticket.error is None and isinstance(context, Submission):
                self._note_syncs(ticket, context.writes)
                for write in context.writes:
                    writes = by_topic.get(write.topic)
                    if writes is None:
                        by_topic[write.topic] = (write,)
                    elif isinstance(writes, tuple):
                        by_topic[write.topic] = [*writes, write]
                    else:
                        writes.append(write)
            else:
                self._publish(by_topic, broken)
                self._take(ticket, broken)
        self._publish(by_topic, broken)
        for ticket in tickets:
            ticket.taken = True
        for shard in self._core.shards:
            shard.advance()
        self._note_synced()
        if self._core.on_published is not None:
            self._core.on_published()
        if broken:
            raise broken[0]

    def _publish(
        self, by_topic: dict[Topic, tuple[Write] | list[Write]], broken: list[Exception]
    ) -> None:
        """Make these writes visible. One that fails is noted in `broken`: those behind it are
        answered all the same (I15)."""
        for writes in by_topic.values():
            runs = [writes] if len(writes) == 1 or _is_gapless(writes) else [[w] for w in writes]
            for run in runs:
                try:
                    self.published(run)
                except Exception as error:
                    broken.append(error)
        by_topic.clear()

    def _take(self, ticket: Ticket, broken: list[Exception]) -> None:
        """A change of something else than records; or what the log refused."""
        context, error = ticket.context, ticket.error
        try:
            if isinstance(context, Change):
                if error is None:
                    context.carry_out()
                else:
                    context.refuse(error)
            elif error is not None and isinstance(context, Submission):
                self.failed(context.writes, error)
        except Exception as mistake:
            broken.append(mistake)

    def published(self, writes: Sequence[Write]) -> None:
        """Writes of one topic are safe, by its class: make them visible and answer. If there are
        several, their seqs follow each other and what is visible, and none is special."""
        core, first = self._core, writes[0]
        topic = first.topic
        log = topic.log
        topic.in_flight -= len(writes)
        topic.creation = None
        core.changed = True
        if first.on_flushed is not None:
            first.on_flushed()
        if topic.dropped:
            self._answer(topic, writes)
            return
        if first.first_seq > log.visible_seq + 1:
            # An earlier write failed after its seqs were taken: no client has seen them.
            self._topics.fill_dead(topic, first.first_seq - 1, first.ts, logged=first.logged)
        if len(writes) == 1:
            if len(first.offsets) == 1:
                log.publish_one(
                    first.first_seq, first.lengths[0], first.ts, first.flags[0], first.tags[0]
                )
            else:
                log.publish(first.first_seq, first.lengths, first.ts, first.flags, first.tags)
        else:
            lengths = [*chain.from_iterable([write.lengths for write in writes])]
            flags = [*chain.from_iterable([write.flags for write in writes])]
            tags = [*chain.from_iterable([write.tags for write in writes])]
            each = [repeat(write.ts, len(write.lengths)) for write in writes]
            times = [*chain.from_iterable(each)]
            log.publish(first.first_seq, lengths, times, flags, tags)
        for write in writes:
            if write.logged and topic.logged_upto is None:
                core.add_to_tail(topic, write.first_seq, write.buffer, write.offsets)
            else:
                chunk = TailChunk(write.first_seq, write.buffer, write.offsets)
                core.keep_in_tail(topic, chunk, logged=write.logged)
        if first.scheduled is not None:
            topic.schedule(first.scheduled)
        settings = log.settings
        if settings.ttl_ms or settings.cap_records or settings.cap_bytes:
            self._topics.evict(topic)
        self._answer(topic, writes)
        announce(core, topic)  # after the acks

    def _answer(self, topic: Topic, writes: Sequence[Write]) -> None:
        counters, head_seq = self._core.counters, topic.log.visible_seq
        for write in writes:
            if write.waits:
                topic.waiting -= 1
            if write.keys:
                _complete_keys(write, self._core.clock.wall_ms())
            count = len(write.offsets)
            counters.appends += write.writers
            counters.records_appended += count
            first_seq = write.first_seq
            last_seq = first_seq + count - 1
            if last_seq > head_seq:
                head_seq = last_seq
            write.succeed(Appended(first_seq, last_seq, head_seq, write.created, deduped=False))

    def failed(self, writes: Sequence[Write], error: HeadwaterError) -> None:
        """The log did not take them."""
        for write in reversed(writes):
            self._give_back(write)
        mistake: Exception | None = None
        for write in writes:
            self._topics.forget_if_never_made(write.topic)
            try:
                write.fail(error)
            except Exception as broken:  # those behind it are answered all the same (I15)
                mistake = mistake or broken
        if mistake is not None:
            raise mistake

    def _give_back(self, write: Write) -> None:
        """Its seqs, if no write took later ones, and its keys."""
        topic, log, size = write.topic, write.topic.log, write.records.size
        topic.in_flight -= 1
        topic.waiting -= write.waits
        self._core.live_bytes = max(self._core.live_bytes - size, 0)
        for keyed in write.keys:
            topic.keys.abandon(keyed.key)
        log.give_up(size)
        if topic.in_flight == 0 and log.inflight:
            log.unassign(log.visible_seq + 1)
        elif write.last_seq == log.head_seq:
            log.unassign(write.first_seq)

    # -- syncs

    def _note_syncs(self, ticket: Ticket, writes: Sequence[Write]) -> None:
        """How long the sync took that acks waited for, or that there is one still to come."""
        core = self._core
        assert core.wal is not None
        shard = writes[0].topic.shard
        counters = core.wal.shards[shard].counters
        throttle_us = counters.throttle_us_last
        if throttle_us:
            for write in writes:
                write.throttle_us = throttle_us
        if ticket.durability.waits_for_sync:
            sync_us = counters.sync_us_last
            for write in writes:
                write.sync_us = sync_us
            return
        unsynced = core.shards[shard].unsynced
        for write in writes:
            topic = write.topic
            if not topic.unsynced_writes:
                topic.last_synced_seq = write.first_seq - 1
            topic.unsynced_writes += 1
            unsynced.append((ticket.last_frame, topic, write.last_seq))

    def _note_synced(self) -> None:
        """What was visible before its sync is synced now: call the streams that waited for that."""
        core = self._core
        assert core.wal is not None
        for shard, progress in zip(core.wal.shards, core.shards, strict=True):
            synced_frame = shard.synced_frame
            while progress.unsynced and progress.unsynced[0][0] <= synced_frame:
                _, topic, last_seq = progress.unsynced.popleft()
                topic.last_synced_seq = last_seq
                topic.unsynced_writes -= 1
                if core.on_synced is not None:
                    core.on_synced(topic)


def announce(core: EngineCore, topic: Topic) -> None:
    """The topic has something new: wake readers, streams and routers."""
    if topic.waiters:
        topic.wake()
    if core.waiters:
        core.wake()
    if core.on_update is not None:
        core.on_update(topic)
    if topic.outbound:
        core.route(topic)


def _is_gapless(writes: Sequence[Write]) -> bool:
    """True when nothing stands between these writes and what is visible, and none is special."""
    topic = writes[0].topic
    seq = topic.log.visible_seq + 1
    for write in writes:
        if write.first_seq != seq or not write.logged or write.scheduled is not None:
            return False
        if write.on_flushed is not None:
            return False
        seq += len(write.offsets)
    return not topic.dropped


def _complete_keys(write: Write, now_ms: int) -> None:
    keys = write.topic.keys
    for keyed in write.keys:
        keys.complete(keyed.key)
    keys.expire(now_ms)
