"""What is gone from a topic: lost to caps and ages, deleted, or never given a record.

Floors only rise (I10). A delete from the front of a topic is a floor too; a delete by tag or by
seq names records behind the floors.

When the log of a topic was read to its end, these seqs never get a record:

- Of a class that is not logged, or was not until now: what was given out and is in no file. The
  files say how far that was.
- Of the disk class: what was reserved before a crash. Some of it may have been acknowledged, so the
  topic goes on above all of it (I3).

Both are losses, which readers see as a tombstone (I9). Done twice, nothing more is lost (I4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headwater.config.topic import TopicSettings
from headwater.core.durability import Durability
from headwater.format.control_frames import RecordsDeleted, decode_body, decode_evict_watermark
from headwater.format.frame import Frame, FrameType
from headwater.model.loss import Loss
from headwater.model.match import TagMatcher
from headwater.model.topic import TopicLog


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


class LossSink(Protocol):
    """What a reader does about it."""

    __slots__ = ()

    @property
    def log(self) -> TopicLog:
        raise NotImplementedError

    def lose(self, upto_seq: int, *, logged: bool) -> None:
        """The seqs from the head up to this one are lost. `logged`: segments and log say so."""

    def begin_anew(self, log: TopicLog) -> None:
        """No record is left; the topic goes on with this log, which is empty."""


def may_lose_ephemeral(settings: TopicSettings, *, was_ephemeral: bool) -> bool:
    return not settings.durability.is_logged or was_ephemeral


def lose_ephemeral(sink: LossSink, stored_head: int) -> None:
    """What was not logged is gone, up to the last seq that the files know of."""
    log = sink.log
    if stored_head <= log.visible_seq:
        return
    if log.count:
        sink.lose(stored_head, logged=log.settings.durability.is_logged)
        return
    anew = TopicLog(log.settings, log.epoch, stored_head + 1)
    anew.restore_floors(stored_head + 1, stored_head + 1, log.losses | Loss.LOST_TAIL)
    sink.begin_anew(anew)


def reserved_seqs(log: TopicLog, ceiling: int) -> int:
    """How many seqs behind the head may have been acknowledged, up to a ceiling. A clean stop
    leaves none."""
    is_disk = log.settings.durability is Durability.DISK
    return max(ceiling - log.visible_seq, 0) if is_disk else 0
