"""What the log says is gone from a topic: lost to caps and ages, or deleted.

Floors only rise (I10). A delete from the front of a topic is a floor too; a delete by tag or by
seq names records behind the floors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headwater.format.control_frames import RecordsDeleted, decode_body, decode_evict_watermark
from headwater.format.frame import Frame, FrameType
from headwater.model.match import TagMatcher


class Deletion(NamedTuple):
    """Records up to `last_seq` were deleted: those whose tag matches, or jobs that are done."""

    last_seq: int
    matcher: TagMatcher | None
    seqs: tuple[int, ...] = ()
    """Jobs of a queue; without a matcher."""


def deletion_of(body: RecordsDeleted) -> Deletion | int:
    """By tag or by seq; or the first seq that is kept, when everything before it was deleted."""
    if body.seqs:
        return Deletion(max(body.seqs), None, body.seqs)
    end = body.upto_seq + 1
    if body.before_seq is not None:
        end = min(body.before_seq, end)
    if body.match is None:
        return end
    return Deletion(end - 1, TagMatcher(body.match.encode(), body.prefix))


@dataclass(slots=True)
class Floors:
    evict_floor: int = 1
    """The first seq that was not lost to a cap or an age."""
    earliest_seq: int = 1
    """The first live seq, as the log was told last."""
    delete_below: int = 0
    losses: int = 0
    """Why records were lost: bits of `Loss`."""

    def take(self, frame: Frame) -> None:
        """A control frame of this topic, if it is about floors."""
        if frame.type is FrameType.EVICT_WATERMARK:
            self.evict(*decode_evict_watermark(frame))
        elif frame.type is FrameType.DELETE:
            deletion = deletion_of(decode_body(frame, RecordsDeleted))
            if not isinstance(deletion, Deletion):
                self.delete_before(deletion)

    def evict(self, evict_floor: int, earliest_seq: int, losses: int = 0) -> None:
        self.evict_floor = max(self.evict_floor, evict_floor)
        self.earliest_seq = max(self.earliest_seq, earliest_seq)
        self.losses |= losses

    def delete_before(self, seq: int) -> None:
        self.delete_below = max(self.delete_below, seq)

    def rise_to(self, other: Floors) -> None:
        self.evict(other.evict_floor, other.earliest_seq, other.losses)
        self.delete_before(other.delete_below)

    @property
    def first_needed(self) -> int:
        """Below it no record is alive, so that segments may be gone."""
        return max(self.earliest_seq, self.evict_floor, self.delete_below)
