"""What one topic holds: its records and what happened to them, in the order of the log.

records          Those that are there already are passed over; of the rest, each run without a gap
                 is appended. The seqs in a gap have no record: they were lost if the topic was of
                 a class that is not logged until then; else they were never promised, or deleted.
CONFIG_UPDATE    The settings are these from here on.
DELETE           Everything before a seq, what a tag matches up to a seq, or these seqs.
EVICT_WATERMARK  Floors rise.
HEAD_WATERMARK   No seq up to it may be given out again.
IDEMPOTENCY      Stands in front of the records it protects, and holds if they came.
LEASE            What happened to the jobs of a queue.
ROUTER_PLACES    The seqs up to the frame's have no record: their source lost it, or has none.

Floors only rise (I10). A delete from the front of a topic is a floor too; a delete by tag or by
seq names records behind the floors.

When the log of a topic was read to its end, these seqs never get a record:

- Of a class that is not logged, or was not until now: what was given out and is in no file. The
  files say how far that was.
- Of the disk class: what was reserved before a crash. Some of it may have been acknowledged, so the
  topic goes on above all of it (I3).

Both are losses, which readers see as a tombstone (I9). Done twice, nothing more is lost (I4).

Which topics there are, and how far the files of each are good, is `topics.TopicFold`'s.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from headwater.config.topic import TopicSettings, stored_settings
from headwater.core.arrays import NDArray, numpy
from headwater.core.durability import Durability
from headwater.format.control_frames import (
    IdempotencyEntry,
    LeaseEvent,
    RecordsDeleted,
    SettingsChanged,
    decode_body,
    decode_evict_watermark,
    decode_head_watermark,
    decode_idempotency,
    decode_lease_event,
    decode_router_places,
)
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


class Rows(Protocol):
    """Records as columns, in seq order."""

    @property
    def seqs(self) -> NDArray[numpy.int64]: ...
    @property
    def ts(self) -> NDArray[numpy.uint64]: ...


R = TypeVar("R", bound=Rows)
R_contra = TypeVar("R_contra", bound=Rows, contravariant=True)


class ContentSink(Protocol[R_contra]):
    """What a reader does about it. The last three are for those who hand out seqs and jobs, or
    answer a write that comes again; a reader that derives from this class may leave them out."""

    __slots__ = ()

    @property
    def head_seq(self) -> int:
        """The last seq that has, or had, a record or a gap's slot."""
        raise NotImplementedError

    @property
    def settings(self) -> TopicSettings:
        raise NotImplementedError

    def append(self, rows: R_contra, start: int, end: int) -> None:
        """These of the rows: behind the head, without a gap."""

    def fill(self, upto_seq: int, ts: int, *, lost: bool) -> None:
        """The seqs from the head up to this one have no record and never will."""

    def delete_before(self, seq: int) -> None:
        """Every record before this seq was deleted."""

    def delete(self, deletion: Deletion) -> None:
        """Records behind the floors were deleted."""

    def reconfigure(self, settings: TopicSettings) -> None:
        """The settings are these from here on."""

    def evict(self, evict_floor: int, earliest_seq: int, losses: Loss) -> None:
        """Caps or ages took what is below, if it is above what is known."""

    def reserve(self, ceiling: int) -> None:
        """No seq up to here may be given out again."""
        return

    def lease(self, event: LeaseEvent, ts: int) -> None:
        """Something happened to a job."""
        return

    def remember(self, entry: IdempotencyEntry) -> None:
        """A key, and the records written under it, which are there."""
        return


class TopicHistory(Generic[R]):
    __slots__ = ("_keys", "_sink", "was_ephemeral")

    def __init__(self, sink: ContentSink[R]) -> None:
        self._sink = sink
        self._keys: list[IdempotencyEntry] = []
        self.was_ephemeral = False
        """Records may have been written that no log has, since the last one that it has."""

    def append(self, rows: R) -> int:
        """Records of the topic. Returns how many of them were there already."""
        seqs = rows.seqs
        known = int(numpy.searchsorted(seqs, self._sink.head_seq, "right"))
        if known < len(seqs):
            borders = (numpy.flatnonzero(numpy.diff(seqs[known:]) != 1) + (known + 1)).tolist()
            for start, end in itertools.pairwise([known, *borders, len(seqs)]):
                self._append(rows, start, end)
        return known

    def apply(self, frame: Frame) -> bool:
        """A control frame of the topic. False when it says nothing about what the topic holds."""
        rule = _RULES.get(frame.type)
        if rule is None:
            return False
        rule(self, frame)
        return True

    def finish(self) -> None:
        """The log was read as far as it goes."""
        for entry in self._keys:
            if entry.last_seq <= self._sink.head_seq:
                self._sink.remember(entry)
        self._keys.clear()

    def _append(self, rows: R, start: int, end: int) -> None:
        before = int(rows.seqs[start]) - 1
        if before > self._sink.head_seq:
            self._sink.fill(before, int(rows.ts[start]), lost=self.was_ephemeral)
        self.was_ephemeral = False
        self._sink.append(rows, start, end)

    # -- one for each kind of frame

    def _reconfigure(self, frame: Frame) -> None:
        if not self._sink.settings.durability.is_logged:
            self.was_ephemeral = True
        self._sink.reconfigure(stored_settings(decode_body(frame, SettingsChanged).settings))

    def _delete(self, frame: Frame) -> None:
        deletion = deletion_of(decode_body(frame, RecordsDeleted))
        if isinstance(deletion, Deletion):
            self._sink.delete(deletion)
        else:
            self._sink.delete_before(deletion)

    def _evict(self, frame: Frame) -> None:
        evict_floor, earliest_seq, losses = decode_evict_watermark(frame)
        self._sink.evict(evict_floor, earliest_seq, Loss(losses))

    def _reserve(self, frame: Frame) -> None:
        self._sink.reserve(decode_head_watermark(frame))

    def _key(self, frame: Frame) -> None:
        self._keys.append(decode_idempotency(frame))

    def _lease(self, frame: Frame) -> None:
        self._sink.lease(decode_lease_event(frame), frame.ts)

    def _places(self, frame: Frame) -> None:
        lost = decode_router_places(frame)
        if frame.seq > self._sink.head_seq:
            self._sink.fill(frame.seq, frame.ts, lost=lost)


_RULES: Final[dict[FrameType, Callable[[TopicHistory[Any], Frame], None]]] = {
    FrameType.CONFIG_UPDATE: TopicHistory._reconfigure,
    FrameType.DELETE: TopicHistory._delete,
    FrameType.EVICT_WATERMARK: TopicHistory._evict,
    FrameType.HEAD_WATERMARK: TopicHistory._reserve,
    FrameType.IDEMPOTENCY: TopicHistory._key,
    FrameType.LEASE: TopicHistory._lease,
    FrameType.ROUTER_PLACES: TopicHistory._places,
}

CONTENT_FRAMES: Final = frozenset(_RULES)
"""Frames that say something about what a topic holds, beside its records."""
