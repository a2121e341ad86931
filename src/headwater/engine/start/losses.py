"""What a start concludes once everything was read: which seqs have no record.

The disk class goes on above every seq it may have acked (I3); what was ephemeral is gone. Both are
losses that readers see as a tombstone (I9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from headwater.core.durability import Durability
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.model.loss import Loss
from headwater.model.topic import TopicLog


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
        settings = topic.log.settings
        volatile = not settings.durability.is_logged or topic.topic_id in was_ephemeral
        if topic.loaded and volatile and _lose_ephemeral(core, topics, topic):
            filled.append(topic)
        ceiling = core.ceilings.ceiling_of(topic.topic_id)
        if settings.durability is Durability.DISK and ceiling > topic.log.visible_seq:
            if not topic.loaded and not load(topic):
                continue
            notes.seqs_reserved += ceiling - topic.log.visible_seq
            topics.fill_dead(topic, ceiling, topic.last_ts, lost=True)
            filled.append(topic)
        if topic.loaded:
            topics.evict(topic)
    return filled


def _lose_ephemeral(core: EngineCore, topics: Topics, topic: Topic) -> bool:
    """What was not logged is gone. True when that has to be written down."""
    log, head = topic.log, topic.stored.head_seq
    is_logged = log.settings.durability.is_logged
    topic.logged_upto = None if is_logged else log.visible_seq
    if head <= log.visible_seq:
        return False
    if log.count:
        topics.fill_dead(topic, head, topic.last_ts, lost=True, logged=is_logged)
        return is_logged
    topic.log = TopicLog(log.settings, log.epoch, head + 1)
    topic.log.restore_floors(head + 1, head + 1, log.losses | Loss.LOST_TAIL)
    core.tail_bytes -= topic.tail_bytes
    topic.tail_bytes = 0
    topic.tail.clear()
    topic.meta = None
    return False
