"""What a start concludes once everything was read: which seqs have no record.

The disk class goes on above every seq it may have acked (I3); what was ephemeral is gone. Both are
losses that readers see as a tombstone (I9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.model.topic import TopicLog
from headwater.recovery.history.losses import (
    LossSink,
    lose_ephemeral,
    may_lose_ephemeral,
    reserved_seqs,
)


@dataclass(slots=True)
class RecoveryNotes:
    """What the operator should know about how the topics came back."""

    snapshot_number: int = 0
    snapshots_unreadable: list[str] = field(default_factory=list)
    topics: int = 0
    topics_loaded: int = 0
    topics_broken: list[str] = field(default_factory=list)
    """Topics whose files are damaged: refused until they are restored, the others are not."""
    frames_replayed: int = 0
    frames_checkpointed: int = 0
    seqs_reserved: int = 0
    """Seqs of the disk class that were reserved before a crash and have no record."""


def close_gaps(
    core: EngineCore,
    topics: Topics,
    notes: RecoveryNotes,
    was_ephemeral: Collection[int],
    load: Callable[[Topic], bool],
) -> list[Topic]:
    """Give lost seqs their slots; returns the topics whose losses are not on the disk yet.

    A clean stop leaves no seq between head and ceiling; so it does not matter how the last run
    ended, and opening twice gives the same as once (I4). `load` is False for a broken topic.
    """
    filled: list[Topic] = []
    for topic in core.registry:
        if topic.broken is not None:
            continue
        sink = _Losses(core, topics, topic, filled)
        ephemeral = topic.topic_id in was_ephemeral
        if topic.loaded and may_lose_ephemeral(topic.log.settings, was_ephemeral=ephemeral):
            is_logged = topic.log.settings.durability.is_logged
            topic.logged_upto = None if is_logged else topic.log.visible_seq
            lose_ephemeral(sink, topic.stored.head_seq)
        ceiling = core.ceilings.ceiling_of(topic.topic_id)
        if reserved_seqs(topic.log, ceiling):
            if not topic.loaded and not load(topic):
                continue
            notes.seqs_reserved += reserved_seqs(topic.log, ceiling)
            sink.lose(ceiling, logged=True)
        if topic.loaded:
            topics.evict(topic)
    return filled


@dataclass(frozen=True, slots=True)
class _Losses(LossSink):
    """A topic of the engine, which loses what has no record."""

    core: EngineCore
    topics: Topics
    topic: Topic
    filled: list[Topic]
    """Gets the topics of which it has to be written down."""

    @property
    def log(self) -> TopicLog:
        return self.topic.log

    def lose(self, upto_seq: int, *, logged: bool) -> None:
        self.topics.fill_dead(self.topic, upto_seq, self.topic.last_ts, lost=True, logged=logged)
        if logged:
            self.filled.append(self.topic)

    def begin_anew(self, log: TopicLog) -> None:
        topic = self.topic
        topic.log = log
        self.core.tail_bytes -= topic.tail_bytes
        topic.tail_bytes = 0
        topic.tail.clear()
        topic.meta = None
