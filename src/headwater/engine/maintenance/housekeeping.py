"""One round of maintenance: what is due, in the order that keeps every promise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from headwater.core.clock import Clock, Doorbell
from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError
from headwater.core.units import US_PER_S
from headwater.engine.maintenance.checkpointer import Checkpointer
from headwater.engine.maintenance.reclaimer import Reclaimer
from headwater.engine.maintenance.snapshotter import Snapshotter
from headwater.engine.owner import call_in_slices
from headwater.engine.start.topic_recovery import RecoveryNotes
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.loader import install, load_once
from headwater.format.control_frames import encode_checkpoint_mark
from headwater.store.reclaim import may_relocate
from headwater.store.segment import is_no_room
from headwater.store.topic_directory import TopicDirectory
from headwater.wal.committer import LogState
from headwater.wal.ticket import Ticket

CHECKS_PER_ROUND: Final = 256
"""How many directories are listed in a round: bounds how long the round takes."""
KEYS_INTERVAL_US: Final = 60 * US_PER_S
"""How often keys of writes are checked for expiry, topic by topic. Writes check their own."""


class MaintenanceThread:
    """File work that no caller waits for: `work` runs when woken and at every interval. The thread
    itself never touches domain state."""

    def __init__(self, clock: Clock, interval_ms: int, work: Callable[[], None]) -> None:
        self._clock = clock
        self._interval_us = interval_ms * 1_000
        self._work = work
        self._doorbell = Doorbell()
        self._stopping = False
        self.error: Exception | None = None
        """What the last round failed with; None after a good one."""
        self._thread = threading.Thread(target=self._run, name="headwater-maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._doorbell.ring()

    def stop(self) -> None:
        self._stopping = True
        self._doorbell.ring()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._clock.wait(self._doorbell, self._clock.monotonic_us() + self._interval_us)
            if self._stopping:
                return
            try:
                self._work()
                self.error = None
            except Exception as error:
                # A full or failing disk, or a bug: what is in the log is safe, try again next time.
                # Without this thread the log would grow until the disk is full.
                self.error = error


class BackgroundLoader:
    """Topics that are loaded though no call needs them, because maintenance has work in them.

    A start leaves a topic that was idle unread until a call needs it. Two kinds cannot wait for
    that: those whose records expire, and those that keep more in the hot tier than may stay there,
    when a cold tier was given to them since. One a round is enough: no caller waits for it.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._unchecked: Iterator[Topic] = iter(())
        self._failed: dict[int, Exception] = {}
        """Topics that could not be read, by id; the one that was tried last stands last."""

    def begin(self) -> None:
        """After a start: any topic may have more in the hot tier than the settings now say."""
        core = self._core
        if core.cold is not None:
            self._unchecked = iter([topic for topic in core.registry if not topic.loaded])

    def load_one(self) -> Exception | None:
        """Gives what is wrong with a topic that cannot be read, for the end of the round: it must
        not keep maintenance from the others (I6)."""
        call = self._core.owner.call
        topic = call(self._expiring) or self._moving() or call(self._failed_before)
        if topic is not None:
            self._failed.pop(topic.topic_id, None)
            try:
                loaded = load_once(self._core, topic)
                call(lambda: install(topic, loaded, self._core))
            except (OSError, HeadwaterError) as error:
                self._failed[topic.topic_id] = error
        return next(iter(self._failed.values()), None)

    def _expiring(self) -> Topic | None:
        for topic in self._core.expiring.values():
            if not topic.loaded and topic.topic_id not in self._failed:
                return topic
        return None

    def _moving(self) -> Topic | None:
        core = self._core
        for topic in islice(self._unchecked, CHECKS_PER_ROUND):
            if topic.loaded or topic.dropped or topic.broken is not None:
                continue
            directory = TopicDirectory(core.disk, topic.files.directory)
            try:
                directory.scan()
                moves = may_relocate(directory.hot_bytes(), core.settings.segments)
            except OSError:
                moves = True  # reading it will show what is wrong
            if moves:
                return topic
        return None

    def _failed_before(self) -> Topic | None:
        for topic_id in list(self._failed):
            topic = self._core.registry.by_id(topic_id)
            if topic is not None and not topic.loaded:
                return topic
            del self._failed[topic_id]
        return None


class Housekeeping:
    def __init__(
        self,
        core: EngineCore,
        topics: Topics,
        checkpointer: Checkpointer,
        snapshotter: Snapshotter,
    ) -> None:
        self._core = core
        self._topics = topics
        self._checkpointer = checkpointer
        self._snapshotter = snapshotter
        self._reclaimer = Reclaimer(core, topics)
        self._unasked = BackgroundLoader(core)
        self._rotations_seen = 0
        self._snapshot_at_us = core.clock.monotonic_us()
        self._bytes_at_snapshot = 0
        self._keys_at_us = core.clock.monotonic_us()
        self._turn = threading.Lock()
        """Held by the thread that does file work: the maintenance thread, or a caller that wants it
        now."""

    def round(self) -> None:
        """What is due now. Called by the maintenance thread; the next round tries a failure
        again."""
        core = self._core
        assert core.wal is not None
        if core.wal.state is LogState.POISONED:
            return
        with self._turn:
            with core.waits.activity("loading of a topic"):
                unreadable = self._unasked.load_one()
            call_in_slices(core.owner, core.clock, self._sweep())
            if core.settings.total_bytes_max:
                core.owner.call(self._count_bytes)
            try:
                if self._snapshot_due():
                    self._checkpoint_all()
                else:
                    with core.waits.activity("checkpoint"):
                        self._checkpointer.run(full=False)
            except (OSError, HeadwaterError) as error:
                if is_no_room(error):
                    self._reclaim()  # what was deleted gives the room that was missing
                raise
            self._reclaim()
            if unreadable is not None:
                raise unreadable

    def checkpoint_all(self) -> None:
        """A full checkpoint and a snapshot, now."""
        with self._turn:
            self._checkpoint_all()

    def _checkpoint_all(self) -> None:
        core = self._core
        with core.waits.activity("checkpoint"):
            cut = self._checkpointer.run(full=True)
        if (core.changed or cut.jobs or self._log_takes_the_room()) and not core.broken:
            with core.waits.activity("snapshot"):
                self._reclaimer.hide_dropped_topics()
                self._snapshotter.write(cut.covered)
                self._reclaimer.remove_hidden()
        self._snapshot_at_us = core.clock.monotonic_us()
        self._bytes_at_snapshot = self._wal_bytes()
        self._rotations_seen = self._rotations()

    def _reclaim(self) -> None:
        with self._core.waits.activity("sealing, rewriting and retention"):
            self._reclaimer.run()

    def begin(self) -> None:
        """What an earlier process left half done in the topics' directory."""
        core = self._core
        self._reclaimer.find_hidden()
        self._unasked.begin()
        core.keyed = {topic.topic_id: topic for topic in core.registry if len(topic.keys)}
        if core.settings.total_bytes_max:
            self._count_bytes()

    def note_recovery(self, notes: RecoveryNotes, lossy: list[Topic]) -> None:
        """Before any client writes: which seqs a crash took must survive the next crash, and what
        was replayed need not be replayed again. A process killed over and over, sooner than a
        snapshot is due, would have more to replay each time."""
        try:
            if notes.frames_replayed > self._core.settings.replay_frames_max:
                self.checkpoint_all()
            else:
                self._checkpointer.checkpoint(lossy)
        except (OSError, HeadwaterError):
            return  # a full disk stops no reader; the next checkpoint tries again

    def finish(self) -> None:
        """The last round before closing; a poisoned or full log has all it needs already."""
        core = self._core
        assert core.wal is not None
        if core.wal.state is LogState.WRITABLE:
            try:
                self._drain()
                core.owner.call(self._lower_ceilings)
                self.checkpoint_all()
            except (OSError, HeadwaterError):
                return  # the log has everything; the next start replays it

    def _drain(self) -> None:
        """Wait until everything that was submitted has been answered."""
        core = self._core
        mark = encode_checkpoint_mark([], core.clock.wall_ms())
        tickets = [Ticket(mark, 1, Durability.FSYNC, essential=True) for _ in core.shards]
        for shard, ticket in enumerate(tickets):
            core.owner.call(partial(core.submit_to, shard, ticket))
        for ticket in tickets:
            ticket.wait()

    def _lower_ceilings(self) -> None:
        """Nothing is on its way any more, so no write has a seq above the heads."""
        core = self._core
        for topic in core.registry:
            head = topic.log.visible_seq
            if topic.loaded and core.ceilings.ceiling_of(topic.topic_id) > head:
                core.ceilings.restore(topic.topic_id, head)
                self._topics.touched(topic)

    def _sweep(self) -> Iterator[None]:
        for topic in list(self._core.expiring.values()):
            if topic.loaded and not topic.dropped:
                self._topics.evict(topic)
                yield
        yield from self._topics.persist_floors()
        now_us = self._core.clock.monotonic_us()
        if now_us - self._keys_at_us >= KEYS_INTERVAL_US:
            self._keys_at_us = now_us
            yield from self._forget_keys()

    def _forget_keys(self) -> Iterator[None]:
        """Keys of writes whose time is over, also where no client writes any more."""
        now = self._core.clock.wall_ms()
        for topic in list(self._core.keyed.values()):
            keys = topic.keys
            keys.shorten(now + topic.log.settings.idempotency_window_ms)
            if keys.expire(now) and topic.meta is not None:
                kept = tuple(key for key in topic.meta.keys if now < key.expires_ts)
                topic.meta = msgspec.structs.replace(topic.meta, keys=kept)
            if not len(keys):
                self._core.keyed.pop(topic.topic_id, None)
            yield

    def _count_bytes(self) -> None:
        """Deletes, evictions and drops make room; between two counts only writes are added, each
        when it is admitted."""
        self._core.live_bytes = sum(topic.log.bytes_admitted for topic in self._core.registry)

    def _snapshot_due(self) -> bool:
        core = self._core
        if self._log_takes_the_room():
            return True
        if not core.changed:
            return False
        elapsed_us = core.clock.monotonic_us() - self._snapshot_at_us
        return (
            self._rotations() != self._rotations_seen
            or self._wal_bytes() - self._bytes_at_snapshot >= core.settings.snapshot_wal_bytes
            or elapsed_us >= core.settings.snapshot_interval_ms * 1_000
            # Copies fill the memory without filling the log.
            or core.tail_bytes > core.settings.tail_bytes_max // 4
        )

    def _log_takes_the_room(self) -> bool:
        """There is none, and log files could go. That takes two snapshots, and as no client can
        write, nothing need change between them (I12)."""
        core = self._core
        assert core.wal is not None
        return core.wal.state is LogState.FULL and self._snapshotter.has_files_to_let_go()

    def _rotations(self) -> int:
        assert self._core.wal is not None
        return sum(shard.counters.rotations for shard in self._core.wal.shards)

    def _wal_bytes(self) -> int:
        assert self._core.wal is not None
        return sum(shard.counters.bytes_written for shard in self._core.wal.shards)
