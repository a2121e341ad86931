"""What was deleted between planning and reading: a task reads the log before it gives out a row.

A plan can be minutes old when its last task begins, and Spark keeps plans and runs them again. A
record whose delete was acknowledged before a task begins must not be in its rows (I8).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headwater.format.control_frames import RecordsDeleted, decode_body
from headwater.format.frame import FrameType
from headwater.recovery.history.floors import Deletion, deletion_of
from headwater.recovery.topics.follower import LogFollower
from headwater.recovery.topics.rows import replay_controls

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
