"""What routers do, in rounds, off the path of any writer.

A round takes each source that has something new, reads a stretch of it once for all of its routers
at the same position, and publishes the copies. The forwarder's own thread reads files, encodes
frames and waits for syncs; the owner only decides and publishes. One round does a bounded amount of
work for each source, so no source keeps another waiting for long. Sources have their turns by
priority; under pressure they go a band lower, and those of band 0 wait.

`pause`, `resume` and `records_per_round` are for the governor of the load.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import Final

from headwater.core.clock import Clock, Doorbell
from headwater.core.errors import ClosedError, HeadwaterError
from headwater.core.units import MIB, US_PER_MS
from headwater.engine.owner import Change, wait_for
from headwater.engine.pressure import ReadySet
from headwater.engine.routers.copies import (
    Copies,
    CopyRule,
    SourceBatch,
    SourceRecord,
    copies_for,
    decode_source,
)
from headwater.engine.routers.copy_publisher import CopyPublisher, CopyWrite
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Router, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.loader import install, load_once
from headwater.engine.topics.reader import Reader, TopicReadPlan
from headwater.model.router import RouterCursor
from headwater.model.scheduler import TURNS_A_ROUND
from headwater.observe.waits import Waits
from headwater.store.segment import SegmentChangedError
from headwater.wal.committer import LogState

RECORDS_PER_ROUND: Final = 1_000
BYTES_PER_ROUND: Final = 1 * MIB
SLOTS_PER_TRIM: Final = 4_096
"""Lost slots that are made in one go."""
DESTS_PER_TURN: Final = 32
"""Destinations that are served in one turn of the owner."""
ATTEMPTS_MAX: Final = 16
"""Reads that are begun again because files changed under them."""
RETRY_EVERY_MS: Final = 50


class CopyRounds:
    def __init__(
        self,
        core: EngineCore,
        topics: Topics,
        reader: Reader,
        ready: ReadySet[Topic],
    ) -> None:
        self._core = core
        self._ready = ready
        self._reader = reader
        self._publisher = CopyPublisher(core, topics)
        self._turn = threading.Lock()
        """Held by the thread that copies: the forwarder, or a caller that wants it done now."""
        self.paused = False
        self.records_per_round = RECORDS_PER_ROUND
        self._waiting: dict[int, Topic] = {}
        """Sources with routers that could not continue, by id."""
        self.failures: dict[str, str] = {}
        """Why a router could not continue at the last try, by name."""

    def pause(self) -> None:
        """Copy nothing until `resume`; a round that is under way ends first."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._core.owner.post(self.route_all)

    @property
    def waits(self) -> bool:
        """Something is to be tried again after a while."""
        core = self._core
        if self.paused or core.wal is None or core.wal.poison is not None:
            return False
        return bool(self._waiting or core.to_route or self._ready.size)

    def retry_waiting(self) -> None:
        """Where a router had to wait, there may be room by now."""
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._core.owner.call(lambda: self._core.to_route.update(waiting))

    def route_all(self) -> None:
        """As the owner: every source may have something."""
        self._core.to_route.clear()
        for router in self._core.routers:
            if router.lag or router.cursor.held or router.unmarked:
                self._core.route(router.source)

    def round(self) -> bool:
        """Copy what there is, within the budget. False when there was nothing to copy."""
        core = self._core
        assert core.wal is not None
        with self._turn:
            if self.paused or core.closing or core.wal.state is not LogState.WRITABLE:
                return False
            moved = self._forward(core.owner.call(self._behind))
            return moved or self._ready.servable > 0

    def run_dry(self) -> None:
        """Round after round, until every router is at the end of its source or held."""
        while self.round():
            continue

    def catch_up(self) -> None:
        """At a start, before any client reads: copies of exactly_once routers that a crash took are
        made again, so that no reader finds its destination shorter than it was."""
        core = self._core

        def short() -> list[Router]:
            return [
                router
                for router in core.routers
                if router.exactly_once
                and router.lag
                and not router.cursor.held
                and router.dest.log.visible_seq < core.ceilings.ceiling_of(router.dest.topic_id)
            ]

        with self._turn:
            while routers := core.owner.call(short):
                if not self._forward(routers):
                    return

    def _behind(self) -> list[Router]:
        """As the owner: the routers whose turn it is."""
        core, ready = self._core, self._ready
        sources, core.to_route = core.to_route, {}
        now_us = core.clock.monotonic_us()
        for source in sources.values():
            ready.mark(source, now_us)
        routers: list[Router] = []
        for _ in range(TURNS_A_ROUND):
            turn = ready.take(now_us)
            if turn is None:
                break
            routers += [router for router in turn.outbound if router.lag or router.unmarked]
        return routers

    def _forward(self, routers: Iterable[Router]) -> bool:
        moved = False
        groups: dict[tuple[int, int], list[Router]] = {}
        for router in routers:
            position = router.source.topic_id, router.cursor.source_seq
            groups.setdefault(position, []).append(router)
        for group in groups.values():
            try:
                moved = self._advance(group) or moved
            except ClosedError:
                return False
            except Exception as error:  # one router's error does not stop the others
                for router in group:
                    self._failed(router, error)
            if any(router.cursor.held for router in group):
                self._waiting[group[0].source.topic_id] = group[0].source
        return moved

    def _failed(self, router: Router, error: Exception) -> None:
        self.failures[router.name] = str(error) or repr(error)
        router.cursor.hold()

    def _has_dest(self, router: Router) -> bool:
        """False when its destination cannot be read: the routers beside it go on without it."""
        try:
            self._load(router.dest)
        except ClosedError:
            raise
        except Exception as error:
            self._failed(router, error)
            return False
        return True

    def _advance(self, group: list[Router]) -> bool:
        """These are at the same position of the same source: one step for all of them."""
        source = group[0].source
        self._load(source)
        routers = [router for router in group if self._has_dest(router)]
        if not routers:
            return False
        before = [router.cursor.source_seq for router in routers]
        self._mark_all([router for router in routers if router.unmarked])
        batch = self._read(source, routers[0].cursor)
        if batch is None:
            return False
        made: dict[CopyRule, Copies] = {}
        writes = []
        for router in routers:
            keep = CopyRule.of(router)
            if keep not in made:
                made[keep] = copies_for(keep, batch)
            writes.append(CopyWrite(router, made[keep]))
        for at in range(0, len(writes), DESTS_PER_TURN):
            self._publish(writes[at : at + DESTS_PER_TURN])
        for router in routers:
            self.failures.pop(router.name, None)
        return any(
            router.cursor.source_seq > seq for router, seq in zip(routers, before, strict=True)
        )

    def _publish(self, writes: list[CopyWrite]) -> None:
        core, publisher = self._core, self._publisher
        admitted, changes = core.owner.call(lambda: publisher.admit(writes))
        for change in changes:
            self._wait(change)
        for write in admitted:
            write.encoded = write.encode()
        core.owner.call(lambda: publisher.publish(admitted))

    def _mark_all(self, routers: list[Router]) -> None:
        for router in routers:
            self._wait(self._core.owner.call(partial(self._publisher.mark, router)))

    def _wait(self, change: Change) -> None:
        """Until the log has answered; a refusal shows by itself, as what is not covered."""
        wait_for(self._core.owner, lambda: change)

    def _load(self, topic: Topic) -> None:
        if not topic.loaded:
            loaded = load_once(self._core, topic)
            self._core.owner.call(lambda: install(topic, loaded, self._core))

    # -- reading

    def _read(self, source: Topic, cursor: RouterCursor) -> SourceBatch | None:
        """The next stretch of a source. None when there is none, or it changed underneath."""
        core = self._core
        from_seq = cursor.source_seq
        for _ in range(ATTEMPTS_MAX):
            planned = core.owner.call(partial(self._plan_next, source, cursor))
            if planned is None or isinstance(planned, SourceBatch):
                return planned
            try:
                runs, findings = planned.runs()
            except SegmentChangedError:
                continue
            if findings:
                core.owner.call(partial(planned.note_damage, findings))
                continue
            return _batch(planned, from_seq, decode_source(runs))
        raise SegmentChangedError(f"{source.name!r} is being rewritten; it is tried again")

    def _plan_next(self, source: Topic, cursor: RouterCursor) -> SourceBatch | TopicReadPlan | None:
        """As the owner: what is next. What was evicted before it was copied needs no reading."""
        log = source.log
        records = max(self.records_per_round, 1)
        stretch = cursor.next_range(log.visible_seq, records)
        if source.dropped or stretch is None:
            return None
        first = stretch[0]
        plan = self._reader.plan_copying(source, first - 1, records, BYTES_PER_ROUND, records * 4)
        trim = cursor.trimmed(log.evict_floor)
        if trim is not None:
            last = min(trim.last_seq, first + SLOTS_PER_TRIM - 1)
            return SourceBatch(first, last, lost=[range(first, last + 1)])
        gap = plan.selection.tombstone
        if gap is not None and gap.gap_to - first >= SLOTS_PER_TRIM:
            # A stretch that is damaged or was lost may be as long as a segment.
            last = max(first + SLOTS_PER_TRIM - 1, gap.gap_from)
            return SourceBatch(first, last, lost=[range(gap.gap_from, last + 1)])
        return plan


def _batch(plan: TopicReadPlan, from_seq: int, records: list[SourceRecord]) -> SourceBatch:
    selection = plan.selection
    lost: list[range] = []
    if selection.tombstone is not None:
        lost.append(range(selection.tombstone.gap_from, selection.tombstone.gap_to + 1))
    if len(records) < len(selection.seqs):
        # Damaged: never served, and reported as a gap.
        read = {record.seq for record in records}
        lost += [range(seq, seq + 1) for seq in selection.seqs.tolist() if seq not in read]
        lost.sort(key=lambda gap: gap.start)
    return SourceBatch(from_seq + 1, selection.next_from_seq, records, lost)


class ForwarderThread:
    """The thread on which routers copy. There is none until there is a router.

    It works when a source has new records, and tries again after a while where a router had to
    wait: for room in its destination, or for memory.
    """

    def __init__(self, clock: Clock, copy_rounds: CopyRounds, waits: Waits) -> None:
        self._clock = clock
        self._waits = waits
        self._copy_rounds = copy_rounds
        self._doorbell = Doorbell()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """What the last round failed with; None after a good one."""

    def wake(self) -> None:
        """As the owner: there may be something to copy."""
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(
                target=self._run, name="headwater-forwarder", daemon=True
            )
            self._thread.start()
        self._doorbell.ring()

    def stop(self) -> None:
        """Not for the owner's own thread: a round that is under way may need it."""
        self._stopping = True
        self._doorbell.ring()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            until_us = None
            if self._copy_rounds.waits:
                until_us = self._clock.monotonic_us() + RETRY_EVERY_MS * US_PER_MS
            self._clock.wait(self._doorbell, until_us)
            if self._stopping:
                return
            try:
                with self._waits.activity("routers"):
                    self._copy_rounds.retry_waiting()
                    while self._copy_rounds.round():
                        continue
                self.error = None
            except (OSError, HeadwaterError) as error:
                self.error = error  # tried again with the next records, or after a while
