"""A data directory as its files are at one moment: snapshot, log and segments, nothing changed.

The same recovery that an owner runs, on a scan instead of an opened log. A live owner goes on
meanwhile: it trims, drops, rewrites and moves files. A view never mixes two moments: what it misses
is an error that tells the caller to take a new view (I6, I9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath

from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock
from headwater.core.errors import RequestError
from headwater.core.results import TopicState
from headwater.disk import Disk
from headwater.engine.owner import BatonOwner
from headwater.engine.start.topic_recovery import TopicRecovery
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import TailCache, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.loader import Loaded, install, load_topic
from headwater.engine.topics.reader import Reader
from headwater.format.control_frames import decode_checkpoint_mark
from headwater.format.frame import FrameType
from headwater.format.names import WAL_DIRECTORY
from headwater.model.retention import RetentionClock
from headwater.observe.waits import Waits
from headwater.recovery.topics.follower import LogFollower
from headwater.recovery.topics.replay import FrameGroup
from headwater.recovery.topics.report import inspect_until_stable, refuse_unfinished
from headwater.recovery.topics.snapshots import snapshot_numbers
from headwater.store.cold_tier import open_cold_tier
from headwater.store.pair import RecordDamage
from headwater.store.segment import SegmentChangedError
from headwater.wal.ceilings import SeqCeilings

Progress = Callable[[float], None]
Judge = Callable[[Sequence[RecordDamage]], None]
"""Called with damaged frames before they count; raises when a newer view should be tried first."""


class DirectoryView:
    """What `headwater.open` would find, as of now. Implements `ReadSide`."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        settings: EngineSettings,
        clock: Clock,
        judge: Judge | None = None,
        progress: Progress = lambda _: None,
        seen: Callable[[object], None] = lambda _: None,
    ) -> None:
        """`seen` is called with the end of the log, before anything else is read."""
        wal_directory = directory / WAL_DIRECTORY
        if not disk.is_directory(wal_directory):
            raise RequestError(
                f"{directory} is not a Headwater data directory: there is no {WAL_DIRECTORY}/ in it"
            )
        snapshots_then = snapshot_numbers(disk, directory)[:1]
        report = inspect_until_stable(disk, wal_directory)
        report.raise_if_refused()
        self.shards = report.shards
        refuse_unfinished(self.shards)
        self.core = EngineCore(
            disk,
            directory,
            settings,
            clock,
            BatonOwner(),
            Waits(clock, 0),
            RetentionClock(clock.wall_ms(), clock.monotonic_us()),
            SeqCeilings(settings.wal.head_ahead),
            TailCache(settings.cache_bytes),
            None if not settings.cold_url else open_cold_tier(disk, settings.cold_url),
            read_only=True,
        )
        self.topics = Topics(self.core)
        self.plan = Reader(self.core, self.topics).plan
        self.core.topic_store = self
        self._judge = judge
        self._follower = LogFollower(disk, wal_directory, self.shards)
        seen(self._follower.position)
        self._ahead: list[FrameGroup] = []
        """Read from the log but not taken in yet."""
        self._recovery = TopicRecovery(self.core, self.topics, self.shards, self.load)
        self._recovery.read(progress)
        if snapshot_numbers(disk, directory)[:1] != snapshots_then:
            # It may know of topics whose first records came behind what was read of the log.
            raise SegmentChangedError("a snapshot was written while the log was being read")
        self.notes = self._recovery.notes
        self._tail_bytes_at_first = self.core.tail_bytes

    def covered_frame(self, shard_directory: PurePath) -> int:
        """The last frame of this shard that the snapshot holds."""
        return self._recovery.covered_frame(shard_directory)

    @property
    def fingerprint(self) -> object:
        """Equal for two views when nothing was written to log or snapshots between them."""
        return self.notes.snapshot_number, self._follower.position

    @property
    def tail_bytes_followed(self) -> int:
        """How much came by following and is held in memory."""
        return self.core.tail_bytes - self._tail_bytes_at_first

    def follow(self) -> bool:
        """Take in what was written since. False when that was nothing."""
        groups, self._ahead = self._ahead + self._follower.poll(), []
        self._recovery.follow(iter(groups))
        return bool(groups)

    def evict(self) -> None:
        """Let caps and ages take what an owner would not show any more."""
        for topic in self._recovery.touched:
            if topic.loaded:
                self.topics.evict(topic)

    # -- what reading needs

    def topic(self, name: str) -> Topic:
        return self.core.registry.get(name)

    def load(self, topic: Topic) -> Loaded:
        loaded = load_topic(topic)
        if topic.log.settings.durability.is_logged and not _is_gapless(topic, loaded):
            # Floors are in the log before segments go. So if the log has no newer ones, nothing
            # went since it was read, and the gap is what was always there.
            self._ahead += self._follower.poll()
            if any(_moves_floors_of(topic, group) for group in self._ahead):
                raise SegmentChangedError(f"segments of {topic.name!r} were dropped meanwhile")
        return loaded

    def listed(self, prefix: str, after: str | None) -> Iterator[Topic]:
        return self.topics.list(prefix, after)

    # -- what topics ask

    def read_index(self, topic: Topic) -> Callable[[], None]:
        return partial(install, topic, self.load(topic))

    def state(self, topic: Topic) -> TopicState:
        return self.topics.state(topic)

    def note_damage(self, topic: Topic, findings: Sequence[RecordDamage]) -> None:
        if self._judge is not None:
            self._judge(findings)
        self.core.note_damage(topic, findings)


def _moves_floors_of(topic: Topic, group: FrameGroup) -> bool:
    for frame in group.frames():
        if frame.type is FrameType.TOPIC_DELETE and frame.topic_id == topic.topic_id:
            return True
        if frame.type is FrameType.CHECKPOINT_MARK and any(
            entry.topic_id == topic.topic_id for entry in decode_checkpoint_mark(frame)
        ):
            return True
    return False


def _is_gapless(topic: Topic, loaded: Loaded) -> bool:
    """Every seq that should be in segments is there."""
    stored = topic.stored
    expected = max(stored.earliest_seq, stored.evict_floor, stored.delete_below)
    for segment in loaded.segments:
        if segment.first_seq > expected:
            return False
        expected = max(expected, segment.end_seq + 1)
    return expected > topic.checkpointed_seq
