"""Deletes by tag and jobs that are done, as far as files may not show them, applied to rows.

What was deleted between planning and reading counts too: a task reads the log before it gives out
a row. A plan can be minutes old when its last task begins, and Spark keeps plans and runs them
again. A record whose delete was acknowledged before a task begins must not be in its rows (I8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy
import pyarrow
import pyarrow.compute

from headwater.format.control_frames import RecordsDeleted, decode_body
from headwater.format.frame import FrameType
from headwater.model.match import TagMatcher
from headwater.recovery.history.contents import Deletion, deletion_of
from headwater.recovery.topics.follower import LogFollower
from headwater.recovery.topics.replay import replay_controls
from headwater.wire.frame_rows import Column, Mask, RecordColumns


def newest(deletions: Iterable[Deletion]) -> list[Deletion]:
    """One for each tag or prefix, the one that reaches furthest; and one for all jobs."""
    reach: dict[TagMatcher, int] = {}
    done: list[int] = []
    for each in deletions:
        if each.matcher is None:
            done += each.seqs
        else:
            reach[each.matcher] = max(each.last_seq, reach.get(each.matcher, 0))
    latest = [Deletion(last_seq, matcher) for matcher, last_seq in reach.items()]
    return [*latest, Deletion(max(done), None, tuple(done))] if done else latest


def deleted_rows(rows: RecordColumns, deletions: Iterable[Deletion]) -> Mask | None:
    """Which rows were deleted; None when none was."""
    if not len(rows):
        return None
    seqs = rows.seqs
    first, last = int(seqs.min()), int(seqs.max())
    meant = [each for each in deletions if each.last_seq >= first]
    if not meant:
        return None
    deleted = _deleted_by_tag(rows, [each for each in meant if each.matcher is not None], last)
    for each in meant:
        if each.matcher is None:
            deleted |= numpy.isin(seqs, numpy.array(each.seqs, numpy.int64))
    return deleted if deleted.any() else None


def _deleted_by_tag(rows: RecordColumns, deletions: list[Deletion], last_seq: int) -> Mask:
    if not deletions:
        return numpy.zeros(len(rows), numpy.bool_)
    tags = rows.binary("tag")
    deleted = _matched(tags, [each.matcher for each in deletions if each.last_seq >= last_seq])
    for each in deletions:
        if each.last_seq < last_seq:
            deleted |= _matched(tags, [each.matcher]) & (rows.seqs <= each.last_seq)
    return deleted


def _matched(tags: Column, wanted: Sequence[TagMatcher | None]) -> Mask:
    """A record without a tag never matches, nor does one whose tag is empty."""
    matched: Mask = numpy.zeros(len(tags), numpy.bool_)
    matchers = [matcher for matcher in wanted if matcher is not None]
    exact = [matcher.text for matcher in matchers if not matcher.prefix]
    if exact:
        matched |= _as_mask(pyarrow.compute.is_in(tags, pyarrow.array(exact, pyarrow.binary())))
    for matcher in matchers:
        if matcher.prefix:
            matched |= _as_mask(pyarrow.compute.starts_with(tags, matcher.text))
    if matched.any():
        matched &= _as_mask(pyarrow.compute.greater(pyarrow.compute.binary_length(tags), 0))
    return matched


def _as_mask(column: Column) -> Mask:
    mask: Mask = pyarrow.compute.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask.copy()


_WANTED: Final = (FrameType.TOPIC_DELETE, FrameType.DELETE)


@dataclass(slots=True)
class Changes:
    """By topic id."""

    dropped: set[int] = field(default_factory=set)
    below: dict[int, int] = field(default_factory=dict)
    """Everything below was deleted."""
    deletions: dict[int, list[Deletion]] = field(default_factory=dict)


def changes_since(follower: LogFollower) -> Changes:
    """Deletes and drops that were written since. A LogChangedError says: read everything again."""
    changes = Changes()
    for topic_id, body in _bodies(follower):
        if body is None:
            changes.dropped.add(topic_id)
            continue
        deletion = deletion_of(body)
        if isinstance(deletion, Deletion):
            changes.deletions.setdefault(topic_id, []).append(deletion)
        else:
            changes.below[topic_id] = max(deletion, changes.below.get(topic_id, 0))
    return changes


def _bodies(follower: LogFollower) -> Iterator[tuple[int, RecordsDeleted | None]]:
    """Each delete, and None for a topic that was dropped."""
    for _, frames in replay_controls(iter(follower.poll()), {}, _WANTED):
        for frame in frames:
            dropped = frame.type is FrameType.TOPIC_DELETE
            yield frame.topic_id, None if dropped else decode_body(frame, RecordsDeleted)
