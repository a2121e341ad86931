"""Making, changing, emptying and dropping topics; floors; what a topic looks like from outside.

A control change is a frame in the topic's own shard and takes effect when the log has it, in the
log's order. That order is the only truth, for records and for metadata (I3, I8, I10).

What the log says of a topic comes behind the copies in it that are in memory only; see
`headwater.engine.state.topic` for why. What is dead leaves no frame: slots without a record are
filled when the log is read back; ROUTER_PLACES names them where no other frame does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headwater.config.topic import (
    TopicSettings,
    TopicType,
    changed,
    check_topic_name,
    may_refuse,
    refuse_letters,
    topic_settings,
)
from headwater.core.arrays import numpy
from headwater.core.durability import Durability
from headwater.core.errors import OverloadedError, TopicNotEmptyError, TopicNotFoundError
from headwater.core.results import Deleted, TopicState
from headwater.engine.owner import Change
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import TailChunk, Topic
from headwater.format.control_frames import (
    RecordsDeleted,
    RouterMark,
    SettingsChanged,
    TopicCreated,
    encode_body,
    encode_evict_watermark,
    encode_router_marks,
    encode_router_places,
)
from headwater.format.frame import FrameType, encode_frame
from headwater.model.loss import Eviction
from headwater.model.match import TagMatcher
from headwater.model.slots import DEAD, LOST
from headwater.model.topic import DeleteEffect, TopicLog
from headwater.wal.ticket import Ticket

_ESSENTIAL: Final = True
SEQS_MAX: Final = 100_000
"""With more of them the frame has the predicate: many megabytes would hold up its group."""


class CopyFlush(NamedTuple):
    """Frames that go in front of others, and what they mean once those are durable."""

    topic: Topic
    body: bytes
    frame_count: int
    upto_seq: int
    marks: list[RouterMark]

    def confirm(self) -> None:
        inbound = self.topic.inbound
        if inbound is None:
            return
        inbound.flushed(self.upto_seq)
        inbound.marked(self.marks)


def flush_copies(core: EngineCore, topic: Topic) -> CopyFlush | None:
    """The frames that flush everything copied so far; None when all is flushed."""
    inbound = topic.inbound
    if inbound is None or inbound.unflushed_from is None:
        return None
    first, last = inbound.unflushed_from, topic.log.visible_seq
    marks = [router.next_mark() for router in inbound.routers if router.made]
    # The mark stands first: it keeps what follows apart from the records of the group before.
    frames = [encode_router_marks(topic.topic_id, marks, core.clock.wall_ms())]
    count = 1
    for body, frame_count in _slot_frames(topic, first, last):
        frames.append(body)
        count += frame_count
    return CopyFlush(topic, b"".join(frames), count, last, marks)


def _slot_frames(topic: Topic, first_seq: int, last_seq: int) -> Iterator[tuple[bytes, int]]:
    """What these slots hold: bytes for the log, with how many frames they have."""
    index = topic.log.index
    start = max(first_seq, index.base_seq)
    if start > last_seq:
        yield encode_router_places(topic.topic_id, last_seq, topic.last_ts, lost=False), 1
        return
    flags = index.flags(start, last_seq + 1)
    kinds = flags & (DEAD | LOST)
    borders = (numpy.flatnonzero(numpy.diff(kinds)) + 1).tolist()
    for low, high in itertools.pairwise([0, *borders, len(kinds)]):
        if kinds[low] & DEAD:
            lost = bool(kinds[low] & LOST)
            end = start + high - 1
            yield encode_router_places(topic.topic_id, end, topic.last_ts, lost=lost), 1
        else:
            yield from _frames_of_tail(topic, start + low, start + high - 1)


def _frames_of_tail(topic: Topic, first_seq: int, last_seq: int) -> Iterator[tuple[bytes, int]]:
    for chunk in topic.tail.chunks(first_seq, last_seq):
        low = max(first_seq - chunk.first_seq, 0)
        high = min(last_seq + 1 - chunk.first_seq, len(chunk.offsets))
        end = int(chunk.offsets[high]) if high < len(chunk.offsets) else len(chunk.buffer)
        yield chunk.buffer[int(chunk.offsets[low]) : end], high - low


class Topics:
    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def create(self, name: str, settings: Mapping[str, Any]) -> Change:
        """Make a topic, or change the settings of one that is there. Result: (state, created)."""
        existing = self._core.registry.find(name)
        if existing is not None:
            return self._configure(existing, settings)
        topic = self.make(name, topic_settings(settings, topic=name))
        assert topic.creation is not None

        def take_effect() -> tuple[TopicState, bool]:
            topic.in_flight -= 1
            topic.creation = None
            self._core.changed = True
            return self.state(topic), True

        def give_up() -> None:
            topic.in_flight -= 1
            self.forget_if_never_made(topic)

        change = Change(take_effect, give_up)
        try:
            self.submit(topic, topic.creation, change, essential=False)
        except BaseException:
            self.forget_if_never_made(topic)
            raise
        topic.in_flight += 1
        return change

    def check_dead_letters(
        self, name: str, settings: TopicSettings, *, is_exact: bool = False
    ) -> None:
        """A dead letter topic takes every letter: one that may refuse leaves jobs that no worker
        can get. `is_exact`: an exactly-once router is to feed the topic."""
        registry = self._core.registry
        target = None if settings.dead_letter is None else registry.find(settings.dead_letter)
        if target is not None and settings.type is TopicType.QUEUE:
            fed = target.inbound is not None and target.inbound.is_exact
            refuse_letters(target.name, target.log.settings, name, is_exact=fed)
        if is_exact or may_refuse(settings):
            for topic in registry:
                theirs = topic.log.settings
                if theirs.dead_letter == name and theirs.type is TopicType.QUEUE:
                    refuse_letters(name, settings, topic.name, is_exact=is_exact)

    def for_write(
        self, name: str, *, create: bool | None, settings: Mapping[str, Any] | None
    ) -> Topic:
        """The topic to write to, made on the fly when that is allowed."""
        topic = self._core.registry.find(name)
        if topic is not None:
            assert topic.loaded, "a topic is written to that was not read back"
            return topic
        wanted = topic_settings(settings or {}, topic=name)
        if not (wanted.auto_create if create is None else create):
            check_topic_name(name)
            raise TopicNotFoundError(
                f"there is no topic {name!r}, and it may not be made here", detail={"topic": name}
            )
        return self.make(name, wanted)

    def make(self, name: str, settings: TopicSettings) -> Topic:
        check_topic_name(name, is_new=True)
        core = self._core
        self.check_dead_letters(name, settings)
        if len(core.registry) >= core.settings.topics_max:
            raise OverloadedError(
                f"there are {core.settings.topics_max} topics already; "
                "drop some or raise topics_max",
                detail={"limit": "topics", "allowed": core.settings.topics_max},
            )
        epoch = core.registry.epoch_of(name) + 1
        topic_id = core.registry.take_id()
        topic = core.new_topic(topic_id, name, TopicLog(settings, epoch))
        body = TopicCreated(name, epoch, settings.to_stored())
        topic.creation = encode_body(FrameType.TOPIC_CREATE, topic_id, core.clock.wall_ms(), body)
        core.registry.add(topic)
        return topic

    def forget_if_never_made(self, topic: Topic) -> None:
        """Take back a topic whose creation reached no client and no log."""
        if topic.creation is not None and topic.in_flight == 0:
            self._core.registry.remove(topic)
            self._core.registry.epochs.pop(topic.name, None)
            if topic.log.epoch > 1:
                self._core.registry.epochs[topic.name] = topic.log.epoch - 1
            topic.dropped = True
            self._core.expiring.pop(topic.topic_id, None)

    def _configure(self, topic: Topic, settings: Mapping[str, Any]) -> Change:
        wanted = topic_settings(settings, topic.log.settings, topic=topic.name)
        is_changed = bool(changed(topic.log.settings, wanted))
        if is_changed:
            self.check_dead_letters(topic.name, wanted)
        body = SettingsChanged(wanted.to_stored())
        now = self._core.clock.wall_ms()
        frames = [encode_body(FrameType.CONFIG_UPDATE, topic.topic_id, now, body)]
        if topic.log.evict_floor > 1:
            # A wider cap must not bring back what an earlier one lost.
            frames.append(self.watermark(topic))

        def take_effect() -> tuple[TopicState, bool]:
            self.reconfigure(topic, wanted)
            self.touched(topic)
            self.evict(topic)
            give_up()
            return self.state(topic), False

        def give_up() -> None:
            topic.configuring = False
            topic.wake()  # for who has the next change, or waits for a job of a paused queue

        change = Change(take_effect, give_up)
        if not is_changed and topic.creation is None:
            change.result = (self.state(topic), False)
            return change
        if topic.creation is not None:
            frames.insert(0, topic.creation)  # not known to be safe yet: this change may be first
        self.submit(topic, b"".join(frames), change, frame_count=len(frames))
        topic.configuring = True
        return change

    def reconfigure(self, topic: Topic, settings: TopicSettings) -> None:
        """The settings are these from now on. A change of class is about later records only."""
        was_logged = topic.log.settings.durability.is_logged
        topic.log.settings = settings
        self._core.note_expiry(topic)
        if was_logged and not settings.durability.is_logged:
            topic.logged_upto = topic.log.visible_seq
        elif settings.durability.is_logged and not was_logged:
            # What was never promised to last goes into segments now; until then a crash takes it.
            first = (topic.logged_upto or 0) + 1
            topic.logged_upto = None
            for chunk in topic.tail.chunks(first, topic.log.visible_seq):
                if chunk.first_seq >= first:
                    self._core.count_tail(topic, len(chunk.buffer))

    def delete(self, topic: Topic, before_seq: int | None, matcher: TagMatcher | None) -> Change:
        """Delete records for good: all below a seq, all that match, or those that are both."""
        # What is on its way is not meant: should it fail, its seqs are used again, and a replay
        # of this delete must not take the records that came after it.
        upto_seq = topic.log.visible_seq
        body = delete_body(self._core, topic, before_seq, matcher, upto_seq)

        def take_effect() -> Deleted:
            deletion = self.apply_deletion(topic, before_seq, matcher, upto_seq)
            log = topic.log
            return Deleted(
                deletion.records, log.earliest_seq, log.visible_seq, log.count, log.bytes
            )

        change = Change(take_effect)
        self.submit_deletion(topic, body, change)
        return change

    def submit_deletion(
        self, topic: Topic, body: RecordsDeleted, change: Change, *more: bytes
    ) -> None:
        """Have it written, with more frames behind it; or carried out at once, where no record of
        the topic is in the log."""
        if not topic.is_logged:
            change.carry_out()
            return
        now = self._core.clock.wall_ms()
        frames = [encode_body(FrameType.DELETE, topic.topic_id, now, body), *more]
        if topic.topic_id in self._core.moved:
            # The room this makes must not bring back what a cap took before.
            frames.insert(0, self.watermark(topic))
        self.submit(topic, b"".join(frames), change, frame_count=len(frames))

    def apply_deletion(
        self, topic: Topic, before_seq: int | None, matcher: TagMatcher | None, upto_seq: int
    ) -> DeleteEffect:
        deletion = topic.log.delete(before_seq=before_seq, matcher=matcher, upto_seq=upto_seq)
        if len(deletion.seqs):
            topic.unflagged.append(deletion.seqs)
        if topic.queue is not None:
            topic.queue.leases.forget(deletion.seqs.tolist())
            topic.queue.leases.forget_below(deletion.earliest_seq)
        self._core.dirty[topic.topic_id] = topic  # the next mark makes its floor durable
        self._core.shed(topic)
        self.touched(topic)
        self._core.counters.records_deleted += deletion.records
        return deletion

    def apply_seqs_deletion(self, topic: Topic, seqs: Sequence[int]) -> int:
        """Delete these records, as far as they are there; gives how many were."""
        newly = topic.log.delete_seqs(list(seqs))
        if len(newly):
            topic.unflagged.append(newly)
        self._core.dirty[topic.topic_id] = topic
        self._core.shed(topic)
        self.touched(topic)
        self._core.counters.records_deleted += len(newly)
        return len(newly)

    def drop(self, topic: Topic, *, if_empty: bool = False) -> Change:
        """Drop a topic and everything in it. The name is free at once; the id is never reused.
        Its routers go with it; the result is their names."""
        count = self.state(topic).count
        if if_empty and (count or topic.log.inflight):
            raise TopicNotEmptyError(f"{topic.name!r} holds {count} record(s)")
        core = self._core
        frame = encode_body(FrameType.TOPIC_DELETE, topic.topic_id, core.clock.wall_ms(), None)
        core.registry.remove(topic)
        routers = core.routers.take_out(topic)

        def take_effect() -> list[str]:
            self.discard(topic)
            core.dropped.append(topic.topic_id)
            core.wake_maintenance()
            topic.wake()
            if core.on_update is not None:
                core.on_update(topic)
            return [router.name for router in routers]

        def give_up() -> None:
            topic.dropped = False
            if core.registry.find(topic.name) is None:
                core.registry.add(topic)
                core.routers.put_back(routers)

        change = Change(take_effect, give_up)
        try:
            self.submit(topic, frame, change, flush_first=False)
        except BaseException:
            give_up()
            raise
        return change

    def discard(self, topic: Topic) -> None:
        """The topic is gone: give back what it held in memory."""
        topic.dropped = True
        core = self._core
        for by_id in (core.dirty, core.moved, core.expiring, core.keyed, core.reclaim, core.broken):
            by_id.pop(topic.topic_id, None)
        self._core.tail_bytes -= topic.tail_bytes
        topic.tail_bytes = 0
        topic.tail.clear()
        if core.damage.count:
            core.damage.forget(topic.name)
        self._core.ceilings.forget(topic.topic_id)
        self._core.lease_ceilings.forget(topic.topic_id)
        self._core.changed = True

    def evict(self, topic: Topic) -> None:
        """Move the floors as caps and age ask."""
        eviction = topic.log.evict(self._core.retention_ms())
        if eviction is not None:
            self.evicted(topic, eviction)

    def evicted(self, topic: Topic, eviction: Eviction) -> None:
        """Records are gone: remember to write the floors down, free the memory."""
        self._core.moved[topic.topic_id] = topic
        self._core.dirty[topic.topic_id] = topic
        self._core.counters.records_evicted += eviction.records
        if topic.queue is not None:
            topic.queue.leases.forget_below(topic.log.earliest_seq)
        self._core.shed(topic)
        self.touched(topic)

    def touched(self, topic: Topic) -> None:
        topic.meta = None
        self._core.changed = True
        if topic.inbound is not None and topic.inbound.is_held:
            self._core.route(topic.inbound.routers[0].source)  # there may be room now

    def fill_dead(
        self, topic: Topic, upto_seq: int, ts: int, *, lost: bool = False, logged: bool = True
    ) -> None:
        """Give seqs that will never have a record their slots, so that positions stay dense."""
        first = topic.log.visible_seq + 1
        seqs = range(first, upto_seq + 1)
        frames = [encode_frame(FrameType.APPEND, topic.topic_id, seq=s, ts=ts) for s in seqs]
        buffer = b"".join(frames)
        topic.log.load_gap(upto_seq + 1, ts, lost=lost)
        chunk = TailChunk(first, buffer, range(0, len(buffer), len(frames[0])))
        self._core.keep_in_tail(topic, chunk, logged=logged)
        self._core.shed(topic)  # where nothing is alive before them, no read will need them

    def persist_floors(self) -> Iterator[None]:
        """Write floors that moved to the log, topic by topic; they are folded into the next
        checkpoint too."""
        moved, self._core.moved = self._core.moved, {}
        for topic in moved.values():
            if not topic.dropped and topic.is_logged:
                change = Change(lambda: True)
                body = self.watermark(topic)
                self.submit(topic, body, change, durability=Durability.MEMORY, flush_first=False)
                yield

    def watermark(self, topic: Topic) -> bytes:
        log = topic.log
        return encode_evict_watermark(
            topic.topic_id,
            self._core.clock.wall_ms(),
            log.evict_floor,
            log.earliest_seq,
            int(log.losses),
        )

    def state(self, topic: Topic) -> TopicState:
        log = topic.log
        known = topic.meta if not topic.loaded else None
        return TopicState(
            topic=topic.name,
            type=log.settings.type.value,
            head_seq=log.visible_seq,
            earliest_seq=topic.earliest_seq,
            next_seq=log.head_seq + 1,
            count=log.count if known is None else known.count,
            bytes=topic.live_bytes,
            evict_floor=log.evict_floor if known is None else known.evict_floor,
            epoch=log.epoch,
            last_write_ts=log.last_write_ts or None,
            last_read_ts=log.last_read_ts or None,
            config=log.settings.to_wire(),
        )

    def list(self, prefix: str, after: str | None) -> Iterator[Topic]:
        registry = self._core.registry
        return (registry.get(name) for name in registry.names(prefix, after))

    def submit(
        self,
        topic: Topic,
        body: bytes,
        change: Change,
        *,
        frame_count: int = 1,
        durability: Durability = Durability.FSYNC,
        essential: bool = _ESSENTIAL,
        flush_first: bool = True,
    ) -> None:
        """Have it written. What is said of a topic comes behind the copies in it."""
        flush = (
            flush_copies(self._core, topic) if flush_first and topic.inbound is not None else None
        )
        if flush is not None:
            change.on_flushed = flush.confirm
            body = flush.body + body
            frame_count += flush.frame_count
        ticket = Ticket(body, frame_count, durability, essential=essential, context=change)
        self._core.submit_to(topic.shard, ticket)


def delete_body(
    core: EngineCore,
    topic: Topic,
    before_seq: int | None,
    matcher: TagMatcher | None,
    upto_seq: int,
) -> RecordsDeleted:
    """The frame of a delete: the predicate, or the records it meant. As the owner, with the tags of
    the topic complete when there is a matcher.

    A predicate is short, but it takes the tags of all records to find out again what it meant.
    Where records may have moved to a cold store a start would have to read them from there; so the
    frame names their seqs instead, and a start needs nothing from the cold store (I7).
    """
    if matcher is None:
        return RecordsDeleted(upto_seq, before_seq)
    if core.cold is not None:
        seqs = _matching_seqs(topic, before_seq, matcher, upto_seq)
        if not seqs:
            return RecordsDeleted(upto_seq, 0)
        if len(seqs) <= SEQS_MAX:
            return RecordsDeleted(0, 0, seqs=seqs)
    return RecordsDeleted(upto_seq, before_seq, matcher.text.decode(), matcher.prefix)


def _matching_seqs(
    topic: Topic, before_seq: int | None, matcher: TagMatcher, upto_seq: int
) -> tuple[int, ...]:
    if topic.log.tags is None:
        return ()
    end = upto_seq + 1 if before_seq is None else min(before_seq, upto_seq + 1)
    seqs = topic.log.tags.find(matcher, end).tolist()
    return tuple(seqs if topic.logged_upto is None else filter(topic.logs, seqs))
