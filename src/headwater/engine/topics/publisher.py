"""The way out: the log's answers take effect in its order, become visible, and are acknowledged.

Writes of one topic that were committed together are made visible together: one run of entries, one
chunk for readers, one round of eviction and of wake-ups. What the log refused gives its seqs back.

Keeps I2, I13, I15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.core.errors import HeadwaterError
from headwater.core.results import Appended
from headwater.core.units import KIB
from headwater.engine.pending import Change
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.tail import TailChunk
from headwater.engine.state.topic import Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.write import Write
from headwater.format.segment import SEGMENT_FRAME_BYTES_MIN
from headwater.wal.ticket import Ticket

CHUNK_BYTES_MIN: Final = 4 * KIB
"""From here on a write is a chunk of its own: copying it costs more than one chunk more."""


class Publisher:
    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics

    def take_effect(self, tickets: Sequence[Ticket]) -> None:
        """As the owner: the answers of the log, in its order."""
        broken: Exception | None = None
        for run in _runs(tickets):
            try:
                self._take(run)
            except Exception as error:  # the writes behind it are answered all the same (I15)
                broken = broken or error
        for ticket in tickets:
            ticket.taken = True
        for shard in self._core.shards:
            shard.advance()
        self._note_synced()
        if broken is not None:
            raise broken

    def _take(self, run: Sequence[Ticket]) -> None:
        context, error = run[0].context, run[0].error
        if isinstance(context, Write):
            if error is not None:
                self.failed(context, error)
                return
            self._note_syncs(run)
            writes: list[Write] = [ticket.context for ticket in run]
            if len(writes) > 1 and _is_gapless(writes):
                self._published_together(writes)
                return
            for write in writes:
                self.published(write)
        elif isinstance(context, Change):
            if error is None:
                context.carry_out()
            else:
                context.refuse(error)

    def published(self, write: Write) -> None:
        """The write is safe, by its class: make it visible and answer."""
        core, topic = self._core, write.topic
        _no_longer_under_way(write)
        topic.creation = None
        core.changed = True
        if write.on_flushed is not None:
            write.on_flushed()
        if topic.dropped:
            write.succeed(_answer(write))
            return
        log = topic.log
        if write.first_seq > log.visible_seq + 1:
            # An earlier write failed after its seqs were taken: no client has seen them.
            self._topics.fill_dead(topic, write.first_seq - 1, write.ts, logged=write.logged)
        log.publish(write.first_seq, write.lengths, write.ts, write.flags, write.tags)
        if write.scheduled is not None:
            topic.schedule(write.scheduled)
        chunk = TailChunk(write.first_seq, write.buffer, write.offsets)
        self._topics.keep_in_tail(topic, chunk, logged=write.logged)
        if write.keys:
            _complete_keys(write, core.clock.wall_ms())
        self._after(topic, write.writers, len(write.offsets))
        write.succeed(_answer(write))
        self._announce(topic)

    def _published_together(self, writes: Sequence[Write]) -> None:
        """The same for many writes of one topic, whose seqs follow each other."""
        topic = writes[0].topic
        topic.creation = None
        self._core.changed = True
        lengths: list[int] = []
        flags: list[int] = []
        tags: list[bytes] = []
        times: list[int] = []
        now = self._core.clock.wall_ms()
        for write in writes:
            _no_longer_under_way(write)
            lengths += write.lengths
            flags += write.flags
            tags += write.tags
            times += [write.ts] * len(write.offsets)
            if write.keys:
                _complete_keys(write, now)
        topic.log.publish(writes[0].first_seq, lengths, times, flags, tags)
        for chunk in _chunks(writes):
            self._topics.keep_in_tail(topic, chunk)
        self._after(topic, sum([write.writers for write in writes]), len(lengths))
        for write in writes:
            write.succeed(_answer(write))
        self._announce(topic)

    def _after(self, topic: Topic, writes: int, records: int) -> None:
        settings, counters = topic.log.settings, self._core.counters
        if settings.ttl_ms or settings.cap_records or settings.cap_bytes:
            self._topics.evict(topic)
        counters.appends += writes
        counters.records_appended += records

    def _announce(self, topic: Topic) -> None:
        """After the acks: wake the readers that wait for records of this topic."""
        announce(self._core, topic)

    def failed(self, write: Write, error: HeadwaterError) -> None:
        """The log did not take it: give the seqs back if no write took later ones."""
        topic = write.topic
        _no_longer_under_way(write)
        size = sum(write.lengths) - len(write.lengths) * SEGMENT_FRAME_BYTES_MIN
        topic.log.give_up(size)
        self._core.live_bytes = max(self._core.live_bytes - size, 0)
        for keyed in write.keys:
            topic.keys.abandon(keyed.key)
        if topic.in_flight == 0 and topic.log.inflight:
            topic.log.unassign(topic.log.visible_seq + 1)
        self._topics.forget_if_never_made(topic)
        write.fail(error)

    # -- syncs

    def _note_syncs(self, run: Sequence[Ticket]) -> None:
        """How long the sync took that acks waited for, or that there is one still to come."""
        core = self._core
        assert core.wal is not None
        topic: Topic = run[0].context.topic
        counters = core.wal.shards[topic.shard].counters
        sync_us = counters.sync_us_last
        if counters.throttle_us_last:
            for ticket in run:
                ticket.context.throttle_us = counters.throttle_us_last
        for ticket in run:
            write: Write = ticket.context
            if ticket.durability.waits_for_sync:
                write.sync_us = sync_us
                continue
            if not topic.unsynced_writes:
                topic.last_synced_seq = write.first_seq - 1
            topic.unsynced_writes += 1
            unsynced = core.shards[topic.shard].unsynced
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


def _runs(tickets: Sequence[Ticket]) -> list[list[Ticket]]:
    """Neighbours that are successful writes to one topic; anything else by itself."""
    runs: list[list[Ticket]] = []
    topic: Topic | None = None
    for ticket in tickets:
        context = ticket.context
        if ticket.error is not None or not isinstance(context, Write):
            runs.append([ticket])
            topic = None
        elif context.topic is topic:
            runs[-1].append(ticket)
        else:
            runs.append([ticket])
            topic = context.topic
    return runs


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


def _chunks(writes: Sequence[Write]) -> list[TailChunk]:
    """What readers and checkpoints are given: small writes joined, large ones as they are."""
    if len(writes[0].buffer) >= CHUNK_BYTES_MIN:
        return [TailChunk(write.first_seq, write.buffer, write.offsets) for write in writes]
    offsets: list[int] = []
    at = 0
    for write in writes:
        offsets += [at + offset for offset in write.offsets]
        at += len(write.buffer)
    joined = b"".join([write.buffer for write in writes])
    return [TailChunk(writes[0].first_seq, joined, offsets)]


def _no_longer_under_way(write: Write) -> None:
    write.topic.in_flight -= 1
    if write.waits:
        write.topic.waiting -= 1


def _complete_keys(write: Write, now_ms: int) -> None:
    keys = write.topic.keys
    for keyed in write.keys:
        keys.complete(keyed.key)
    keys.expire(now_ms)


def _answer(write: Write) -> Appended:
    head = max(write.topic.log.visible_seq, write.last_seq)
    return Appended(write.first_seq, write.last_seq, head, write.created, deduped=False)
