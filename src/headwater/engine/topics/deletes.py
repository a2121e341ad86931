"""The frame of a delete: the predicate, or the records it meant.

A predicate is short, but it takes the tags of all records to find out again what it meant. Where
records may have moved to a cold store a start would have to read them from there; so the frame
names their seqs instead, and a start needs nothing from the cold store (I7).
"""

from __future__ import annotations

from typing import Final

from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.format.topic_frames import RecordsDeleted
from headwater.model.match import TagMatcher

SEQS_MAX: Final = 100_000
"""With more of them the frame has the predicate: many megabytes would hold up its group."""


def delete_body(
    core: EngineCore,
    topic: Topic,
    before_seq: int | None,
    matcher: TagMatcher | None,
    upto_seq: int,
) -> RecordsDeleted:
    """As the owner, with the tags of the topic complete when there is a matcher."""
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
