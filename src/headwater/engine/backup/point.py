"""Back to a point: what came after it is deleted for good in the restored directory.

The seqs of what is deleted stay used: head_seq is what it was, so nothing that a reader elsewhere
still holds can come back under a number it knows (I3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath

from headwater.config.engine import EngineSettings
from headwater.config.machines import CompactionSettings, MachineSettings
from headwater.config.wal import WalSettings
from headwater.core.arrays import numpy
from headwater.core.clock import Clock
from headwater.core.errors import RequestError
from headwater.disk import Disk
from headwater.engine.engine import Engine
from headwater.engine.owner import BatonOwner
from headwater.engine.state.topic import Topic
from headwater.format.segment import IndexFlag
from headwater.model.idempotency import IdempotencyWindow

_DEAD = int(IndexFlag.DELETED)


@dataclass(frozen=True, slots=True)
class RestorePoint:
    seqs: Mapping[str, int] = field(default_factory=dict)
    """Topic -> the last seq to keep."""
    time_ms: int | None = None
    """The last commit time to keep, for every topic."""

    @property
    def is_the_end(self) -> bool:
        return not self.seqs and self.time_ms is None

    def refuse_unknown(self, names: set[str]) -> None:
        for name in self.seqs:
            if name not in names:
                raise RequestError(f"there is no topic {name!r} in the backup")


def cut_back(
    disk: Disk, directory: PurePath, shards: int, clock: Clock, point: RestorePoint
) -> int:
    """Delete what came after the point; gives how many records that were."""
    # The machines stay as they are: nothing is published or compacted before the first start.
    still = CompactionSettings(enabled=False)
    machines = MachineSettings(transitions_topic=None, compaction=still)
    settings = EngineSettings(wal=WalSettings(shards=shards), machines=machines)
    engine = Engine(disk, directory, settings, clock, BatonOwner())
    deleted = 0
    try:
        for topic in list(engine.core.registry):
            if point.time_ms is None and topic.name not in point.seqs:
                continue
            if not topic.loaded:
                installed = topic.read_index()
                installed()
            deleted += engine.core.owner.call(partial(_cut, engine, topic, point))
        engine.checkpoint()
    finally:
        engine.close()
    return deleted


def _cut(engine: Engine, topic: Topic, point: RestorePoint) -> int:
    log = topic.log
    base, head = log.index.base_seq, log.visible_seq
    if head < base:
        return 0
    entries = log.index.entries(base, head)
    seqs = numpy.arange(base, head + 1, dtype=numpy.int64)
    beyond = seqs > point.seqs.get(topic.name, head)
    if point.time_ms is not None:
        beyond |= entries["ts"] > max(point.time_ms, 0)
    to_delete = seqs[beyond & (entries["flags_check"] & _DEAD == 0)]
    if not len(to_delete):
        return 0
    _forget_keys(topic, int(to_delete[0]))
    log.delete_seqs(to_delete)
    topic.unflagged.append(to_delete)
    engine.core.dirty[topic.topic_id] = topic
    engine.core.shed(topic)
    engine.topics.touched(topic)
    return len(to_delete)


def _forget_keys(topic: Topic, first_gone: int) -> None:
    """A write that is gone may be made again under its key."""
    kept = IdempotencyWindow()
    for entry in topic.keys.entries():
        if entry.last_seq < first_gone:
            kept.remember(entry)
    topic.keys = kept
