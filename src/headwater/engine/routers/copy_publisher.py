"""Copies into a destination, for the owner: is there room, may the seqs be used, make them visible.

Copies are not in the log. Only while others are writing to the destination at the same moment do
they go through it, as those writes do: seqs become visible in the order they were handed out.
"""

from __future__ import annotations

import msgspec

from headwater.config.topic import Discard
from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError, TopicFullError
from headwater.engine.owner import Change
from headwater.engine.routers.copies import Copies, Encoded, log_frames
from headwater.engine.routers.definitions import reservation, reserve
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Router, TailChunk, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.publisher import announce
from headwater.format.appends import SEGMENT_SHIFT
from headwater.format.control_frames import (
    encode_router_marks,
    encode_router_places,
    encode_seq_ceilings,
)
from headwater.format.frame import FrameFlag
from headwater.model.router import Slot
from headwater.wal.ticket import Ticket


class CopyWrite(msgspec.Struct):
    """Copies of a router, and the seqs they get if no write comes between."""

    router: Router
    copies: Copies
    first_seq: int = 0
    encoded: Encoded | None = None

    @property
    def dest(self) -> Topic:
        return self.router.dest

    def encode(self) -> Encoded:
        dest = self.dest
        durable = dest.log.settings.durability is Durability.FSYNC
        base = int(FrameFlag.DURABLE) if durable else 0
        return self.copies.encode(dest.topic_id, self.first_seq, dest.last_ts, base)


class CopyPublisher:
    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics
        self._requested: list[Change] = []
        """Ceilings that are on their way to the log."""

    def admit(self, writes: list[CopyWrite]) -> tuple[list[CopyWrite], list[Change]]:
        """Which of these can be published, as far as there is room; and what to wait for before.

        A batch without copies moves its router at once.
        """
        core = self._core
        admitted: list[CopyWrite] = []
        ceilings: dict[int, dict[Topic, int]] = {}
        for write in writes:
            router, dest = write.router, write.dest
            if not self._may_copy(router):
                continue
            if not len(write.copies):
                self._passed(router, write.copies)
                continue
            if not self._has_memory(dest) or not self._fit(write):
                router.cursor.hold()
                continue
            write.first_seq = dest.log.visible_seq + 1
            ceiling = reserve(core, dest, len(write.copies))
            if ceiling is not None:
                ceilings.setdefault(dest.shard, {})[dest] = ceiling
            admitted.append(write)
        self._requested = [change for change in self._requested if not change.done]
        self._requested += [self._reserve(shard, wanted) for shard, wanted in ceilings.items()]
        return admitted, [] if all(map(self._is_covered, admitted)) else self._requested

    def _may_copy(self, router: Router) -> bool:
        dest = router.dest
        if router.stopped or router.busy or router.unmarked or router.source.dropped:
            return False
        return not dest.dropped and dest.loaded and dest.creation is None

    def _has_memory(self, dest: Topic) -> bool:
        """Copies never take the room that writers need; checkpoints make more."""
        core = self._core
        settings = core.settings
        tight = core.tail_bytes > settings.tail_bytes_max // 2
        if tight or dest.tail_bytes > 2 * settings.checkpoint_tail_bytes:
            core.wake_maintenance()
            return False
        return True

    def _fit(self, write: CopyWrite) -> bool:
        """Cut down to what a destination takes that refuses when full. False when that is none."""
        log = write.dest.log
        settings = log.settings
        if settings.discard is not Discard.REJECT:
            return True
        self._topics.evict(write.dest)  # what expired makes room
        count, size = log.count + log.inflight, log.bytes
        fits = 0
        for slot, payload in zip(write.copies.slots, write.copies.payloads(), strict=True):
            if slot is Slot.COPY:
                count += 1
                size += payload
            if settings.cap_records and count > settings.cap_records:
                break
            if settings.cap_bytes and size > settings.cap_bytes:
                break
            fits += 1
        if fits:
            write.copies = write.copies.until(fits)
        return fits > 0

    def _reserve(self, shard: int, ceilings: dict[Topic, int]) -> Change:
        core = self._core
        pairs = [(dest.topic_id, ceiling) for dest, ceiling in ceilings.items()]
        return self._submit(
            shard,
            encode_seq_ceilings(pairs, core.clock.wall_ms()),
            reservation(core, ceilings),
        )

    def mark(self, router: Router) -> Change:
        """Write down where it is, before it goes on from there."""
        mark = router.next_mark()
        body = encode_router_marks(router.dest.topic_id, [mark], self._core.clock.wall_ms())

        def take_effect() -> bool:
            router.unmarked = False
            return True

        return self._submit(router.dest.shard, body, Change(take_effect))

    def _submit(self, shard: int, body: bytes, change: Change) -> Change:
        ticket = Ticket(body, 1, Durability.FSYNC, essential=True, context=change)
        try:
            self._core.submit_to(shard, ticket)
        except HeadwaterError as error:
            change.refuse(error)
        return change

    def _is_covered(self, write: CopyWrite) -> bool:
        """True when its seqs may be used: a ceiling over them is durable."""
        dest = write.dest
        if not dest.log.settings.durability.is_logged:
            return True
        last_seq = dest.log.head_seq + len(write.copies)
        return self._core.ceilings.is_durable(dest.topic_id, last_seq)

    # -- making visible

    def publish(self, writes: list[CopyWrite]) -> None:
        """Make copies visible, or hand them to the log."""
        for write in writes:
            router, dest = write.router, write.dest
            if not self._may_copy(router):
                continue
            log = dest.log
            logged = log.settings.durability.is_logged
            is_quiet = dest.in_flight == 0 and log.inflight == 0
            if not self._is_covered(write) or not (is_quiet or logged):
                router.cursor.hold()
                continue
            if not is_quiet:
                self._through_log(write)
                continue
            if write.encoded is None or write.first_seq != log.visible_seq + 1:
                write.first_seq = log.visible_seq + 1
                write.encoded = write.encode()
            if logged and dest.inbound is not None:
                last_seq = write.first_seq + len(write.copies) - 1
                dest.inbound.note_copies(write.first_seq, last_seq)
            self._publish(write, write.encoded, logged=logged)

    def _through_log(self, write: CopyWrite) -> None:
        """Another write is on its way: take the seqs behind it, and go through the log too."""
        router, dest, copies = write.router, write.dest, write.copies
        size = sum(copies.payloads())
        try:
            write.first_seq = first_seq = dest.log.assign(len(copies), size)
        except TopicFullError:
            router.cursor.hold()
            return
        encoded = write.encode()
        frames: list[bytes] = []
        count = 0
        for slot, end, body, frame_count in log_frames(copies, encoded.frames):
            if slot is Slot.COPY:
                frames.append(body)
                count += frame_count
            else:
                last_seq, lost = first_seq + end - 1, slot is Slot.LOST
                frames.append(
                    encode_router_places(dest.topic_id, last_seq, encoded.times[end - 1], lost=lost)
                )
                count += 1

        def take_effect() -> bool:
            self._no_longer_under_way(router)
            if not dest.dropped:
                if first_seq > dest.log.visible_seq + 1:
                    self._topics.fill_dead(dest, first_seq - 1, encoded.times[0])
                self._publish(write, encoded, logged=True)
            return True

        def give_up() -> None:
            self._no_longer_under_way(router)
            log = dest.log
            log.give_up(size)
            if dest.in_flight == 0 and log.inflight:
                log.unassign(log.visible_seq + 1)
            router.cursor.hold()

        change = Change(take_effect, give_up)
        body = b"".join(frames)
        router.busy = True
        dest.in_flight += 1
        dest.waiting += 1
        try:
            self._topics.submit(dest, body, change, frame_count=count, essential=False)
        except HeadwaterError as error:
            change.refuse(error)

    def _no_longer_under_way(self, router: Router) -> None:
        router.busy = False
        router.dest.in_flight -= 1
        router.dest.waiting -= 1

    def _publish(self, write: CopyWrite, encoded: Encoded, *, logged: bool) -> None:
        core, dest, copies = self._core, write.dest, write.copies
        log, first_seq = dest.log, write.first_seq
        lengths = [size + SEGMENT_SHIFT for size in encoded.frames.sizes]
        for slot, begin, end in copies.runs():
            if slot is Slot.COPY:
                some = slice(begin, end)
                log.publish(
                    first_seq + begin,
                    lengths[some],
                    encoded.times[some],
                    encoded.flags[some],
                    copies.tags[some],
                )
            else:
                log.load_gap(first_seq + end, encoded.times[end - 1], lost=slot is Slot.LOST)
        dest.last_ts = max(dest.last_ts, encoded.times[-1])
        chunk = TailChunk(first_seq, encoded.frames.buffer, encoded.frames.offsets)
        core.keep_in_tail(dest, chunk, logged=logged)
        core.shed(dest)
        settings = log.settings
        if settings.ttl_ms or settings.cap_records or settings.cap_bytes:
            self._topics.evict(dest)
        core.counters.records_forwarded += copies.copies
        self._passed(write.router, copies)
        announce(core, dest)

    def _passed(self, router: Router, copies: Copies) -> None:
        core = self._core
        router.cursor.passed(copies.upto_seq, copies.copies)
        core.changed = True
        if router.lag:
            core.route(router.source)
