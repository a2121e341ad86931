"""One topic's records as rules: what is assigned, visible, evicted, deleted, and what readers see.

    evict_floor <= earliest_seq <= visible_seq + 1 <= head_seq + 1          (I10)

- Only `assign` hands out seqs, and they become visible in the same order (I3).
- Eviction takes a prefix and moves both floors; deletion moves `earliest_seq` only, so that a
  deleted gap reads silently and a lost one never does (I8, I9). How far an eviction goes is counted
  one by one for few records, with numpy for many, and records that stay are not visited.
- Dead slots at the front are popped at once: the index begins with the earliest live record, so
  a search for the next record to evict or to read starts at the answer.
- A slot that was lost in a crash is passed by `earliest_seq` only together with `evict_floor`.

No clock, no files: times come in as milliseconds, floors go out to be written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from headwater.config.topic import Discard, TopicSettings
from headwater.core.arrays import numpy
from headwater.core.errors import (
    HeadConflictError,
    InvalidRequestError,
    InvariantError,
    TopicFullError,
)
from headwater.format.segment import INDEX_ENTRY, Entries, IndexFlag
from headwater.model.damage import DamagedSeqs
from headwater.model.index import BLOCK_SLOTS, SeqIndex, Seqs, no_seqs
from headwater.model.loss import EVERY_LOSS, Eviction, Loss, LossFloors
from headwater.model.match import TagMatcher
from headwater.model.slots import DEAD, OVERHEAD
from headwater.model.tags import TagIndex

_COUNTED_ONE_BY_ONE: Final = 4
_COUNTED_AT_ONCE: Final = 64


def first_kept_by_age(index: SeqIndex, cutoff_ms: int) -> int:
    """The first live seq that is not older than the cutoff; `next_seq` when all are.

    Only a prefix expires: a record behind a younger one waits for it, whatever its own time.
    """
    for seq in range(index.base_seq, min(index.base_seq + _COUNTED_ONE_BY_ONE, index.next_seq)):
        if not index.flags_at(seq) & DEAD and index.ts_at(seq) >= cutoff_ms:
            return seq
    seq = index.base_seq + _COUNTED_ONE_BY_ONE
    cutoff = numpy.uint64(max(cutoff_ms, 0))
    while seq < index.next_seq:
        end = min(seq + BLOCK_SLOTS, index.next_seq)
        slots = index.peek(seq, end)
        young = numpy.flatnonzero((slots["ts"] >= cutoff) & (slots["flags_check"] & DEAD == 0))
        if len(young):
            return seq + int(young[0])
        seq = end
    return index.next_seq


def first_kept_by_cap(index: SeqIndex, over_records: int, over_bytes: int) -> int:
    """The first seq to keep when this many records and bytes are too many."""
    for seq in range(index.base_seq, min(index.base_seq + _COUNTED_ONE_BY_ONE, index.next_seq)):
        if over_records <= 0 and over_bytes <= 0:
            return seq
        if not index.flags_at(seq) & DEAD:
            over_records -= 1
            over_bytes -= index.payload_at(seq)
    seq = index.base_seq + _COUNTED_ONE_BY_ONE
    # Mostly a turn's records go, of a block or many: no more is counted than goes, or twice that.
    slots_now = max(over_records, _COUNTED_AT_ONCE)
    while (over_records > 0 or over_bytes > 0) and seq < index.next_seq:
        end = min(seq + min(slots_now, BLOCK_SLOTS), index.next_seq)
        slots_now *= 2
        slots = index.peek(seq, end)
        alive = slots["flags_check"] & DEAD == 0
        records = numpy.cumsum(alive)
        sizes = numpy.cumsum(numpy.where(alive, slots["len"].astype(numpy.int64) - OVERHEAD, 0))
        wanted = 0
        if over_records > 0:
            wanted = int(records.searchsorted(over_records)) + 1
        if over_bytes > 0:
            wanted = max(wanted, int(sizes.searchsorted(over_bytes)) + 1)
        if wanted <= len(slots):
            return seq + wanted
        over_records -= int(records[-1])
        over_bytes -= int(sizes[-1])
        seq = end
    return min(seq, index.next_seq)


Tag = bytes
TagsInOrder = Sequence[Tag | None]
"""One for each record; None or empty for a record without a tag."""

_CAP: Final = int(Loss.CAP)
_TTL: Final = int(Loss.TTL)
_DAMAGED: Final = int(IndexFlag.DAMAGED)


class DeleteEffect(msgspec.Struct, frozen=True):
    """What a delete took. `upto_seq` belongs into the log, so that replaying takes no more."""

    records: int
    bytes: int
    first_seq: int
    """The earliest seq before."""
    earliest_seq: int
    evict_floor: int
    upto_seq: int
    seqs: Seqs
    """Records chosen by a match, ascending. Those chosen by before_seq alone are a prefix."""
    entries: Entries
    """Their index entries, for flagging them in segments."""


class TopicLog:
    __slots__ = (
        "_inflight_bytes",
        "_losses",
        "damaged",
        "delete_below",
        "epoch",
        "evict_floor",
        "head_seq",
        "index",
        "last_read_ts",
        "last_write_ts",
        "lost_as",
        "settings",
        "tags",
        "visible_seq",
    )

    def __init__(self, settings: TopicSettings, epoch: int = 1, base_seq: int = 1) -> None:
        """An empty topic whose next seq is `base_seq`."""
        self.settings = settings
        self.epoch = epoch
        self.head_seq = base_seq - 1
        """The last seq handed out."""
        self.visible_seq = base_seq - 1
        """The last seq readers may see; the head of every answer."""
        self.evict_floor = 1
        """The first seq that was not lost."""
        self.delete_below = 0
        """The largest before_seq that was applied."""
        self.last_write_ts = 0
        self.last_read_ts = 0
        self.index = SeqIndex(base_seq)
        self.tags: TagIndex | None = None
        self._losses: LossFloors | None = None
        self.lost_as = Loss.LOST_TAIL
        """Why slots in the middle are lost, if any are."""
        self.damaged = DamagedSeqs()
        """Records that cannot be read; readers get a tombstone for them."""
        self._inflight_bytes = 0

    @property
    def earliest_seq(self) -> int:
        """The first live seq; visible_seq + 1 when there is none."""
        return self.index.base_seq

    @property
    def count(self) -> int:
        return self.index.live_count

    @property
    def bytes(self) -> int:
        """Payload bytes of the live records."""
        return self.index.live_bytes

    @property
    def bytes_admitted(self) -> int:
        """The same with the payloads of writes under way."""
        return self.index.live_bytes + self._inflight_bytes

    @property
    def inflight(self) -> int:
        """Seqs handed out and not yet visible."""
        return self.head_seq - self.visible_seq

    @property
    def losses(self) -> Loss:
        """Every reason for which this topic ever lost a record."""
        return Loss.NONE if self._losses is None else self._losses.above(0)

    def losses_above(self, seq: int) -> Loss:
        return Loss.NONE if self._losses is None else self._losses.above(seq)

    # -- writing

    def assign(
        self, records: int, payload_bytes: int = 0, expect_head_seq: int | None = None
    ) -> int:
        """Hand out seqs for a write; gives the first. A refusal takes none.

        What is in flight counts as if it were there already. For a topic that refuses when full,
        evict first: what expired makes room.
        """
        if expect_head_seq is not None and expect_head_seq != self.head_seq:
            raise HeadConflictError(
                f"head_seq is {self.head_seq}, not {expect_head_seq}",
                detail={"head_seq": self.head_seq, "expect_head_seq": expect_head_seq},
            )
        if self.settings.discard is Discard.REJECT:
            self._refuse_when_full(records, payload_bytes)
        first_seq = self.head_seq + 1
        self.head_seq += records
        self._inflight_bytes += payload_bytes
        return first_seq

    def _refuse_when_full(self, records: int, payload_bytes: int) -> None:
        settings = self.settings
        count = self.count + self.inflight + records
        if settings.cap_records and count > settings.cap_records:
            raise TopicFullError(
                f"the topic holds {count - records} of {settings.cap_records} records",
                detail={"cap_records": settings.cap_records, "count": count - records},
            )
        size = self.bytes + self._inflight_bytes + payload_bytes
        if settings.cap_bytes and size > settings.cap_bytes:
            raise TopicFullError(
                f"the topic holds {size - payload_bytes} of {settings.cap_bytes} bytes",
                detail={"cap_bytes": settings.cap_bytes, "bytes": size - payload_bytes},
            )

    def unassign(self, first_seq: int, payload_bytes: int = 0) -> None:
        """Take back the newest assignment, whose write was refused before it was queued."""
        if not self.visible_seq < first_seq <= self.head_seq:
            raise InvariantError(f"seq {first_seq} is not in flight")
        self.head_seq = first_seq - 1
        self.give_up(payload_bytes)

    def give_up(self, payload_bytes: int) -> None:
        self._inflight_bytes = max(self._inflight_bytes - payload_bytes, 0)

    def publish(
        self,
        first_seq: int,
        lengths: Sequence[int],
        ts: int | Sequence[int],
        flags: Sequence[int],
        tags: TagsInOrder | None = None,
    ) -> None:
        """Make records visible, in the order in which their seqs were handed out.

        `lengths` are the whole sizes of their segment frames, `flags` their index flags; `ts` is
        the time of all of them, or of each. At recovery the seqs were handed out by an earlier
        life; the head follows.
        """
        if first_seq != self.visible_seq + 1:
            raise InvariantError(f"seq {first_seq} cannot be seen after {self.visible_seq}")
        index = self.index
        before = index.live_bytes
        index.append_many(lengths, ts, flags)
        if tags is not None:
            self._note_tags(first_seq, tags)
        self.visible_seq += len(lengths)
        self.last_write_ts = ts if isinstance(ts, int) else ts[-1]
        if self.visible_seq > self.head_seq:
            self.head_seq = self.visible_seq
        if self._inflight_bytes:
            self._inflight_bytes = max(self._inflight_bytes + before - index.live_bytes, 0)

    def publish_one(self, seq: int, length: int, ts: int, flags: int, tag: Tag) -> None:
        """The same for one record, which is what most writes are."""
        if seq != self.visible_seq + 1:
            raise InvariantError(f"seq {seq} cannot be seen after {self.visible_seq}")
        self.index.append_one(length, ts, flags)
        if tag:
            self.note_tag(tag, seq)
        self.visible_seq = seq
        self.last_write_ts = ts
        if seq > self.head_seq:
            self.head_seq = seq
        if self._inflight_bytes:
            self.give_up(length - OVERHEAD)

    def _note_tags(self, first_seq: int, tags: TagsInOrder) -> None:
        known = self.tags
        if known is None:
            if not any(tags):
                return
            self.tags = known = TagIndex()
        for seq, tag in enumerate(tags, first_seq):
            if tag:
                known.add(tag, seq)

    def note_tag(self, tag: Tag, seq: int) -> None:
        """The tag of a record that came back from the log; seqs ascend."""
        if self.tags is None:
            self.tags = TagIndex()
        self.tags.add(tag, seq)

    # -- losing

    def evict(self, now_ms: int) -> Eviction | None:
        """Let go of what is too old, then of what is over the caps. None when nothing went."""
        settings = self.settings
        index = self.index
        old_floor, count, size = index.base_seq, index.live_count, index.live_bytes
        reason = 0
        if settings.ttl_ms and count:
            kept = first_kept_by_age(index, now_ms - settings.ttl_ms)
            if kept > old_floor:
                self._evict_below(kept, _TTL)
                reason = _TTL
        if settings.discard is Discard.OLD:
            over = index.live_count - settings.cap_records if settings.cap_records else 0
            over_bytes = index.live_bytes - settings.cap_bytes if settings.cap_bytes else 0
            if over > 0 or over_bytes > 0:
                self._evict_below(first_kept_by_cap(index, over, over_bytes), _CAP)
                reason |= _CAP
        if not reason:
            return None
        return Eviction(
            old_floor,
            self.evict_floor,
            index.base_seq,
            EVERY_LOSS[reason],
            count - index.live_count,
            size - index.live_bytes,
        )

    def _evict_below(self, seq: int, reason: int) -> None:
        """Records below `seq` are lost; what is dead already was not lost by this."""
        index = self.index
        alone = seq == index.base_seq + 1  # the slot in front is always alive
        self._lose(seq if alone else index.last_live(seq) + 1, reason)
        self._pop_to(seq)

    def _lose(self, floor: int, reason: int) -> None:
        if self._losses is None:
            self._losses = LossFloors()
        self._losses.raise_to(reason, floor)
        self.evict_floor = max(self.evict_floor, floor)

    def _pop_dead(self) -> None:
        """Drop the dead slots in front, if there are any."""
        index = self.index
        if index.base_seq < index.next_seq and not index.is_live(index.base_seq):
            self._pop_to(index.base_seq, nothing_lives=True)

    def _pop_to(self, seq: int, *, nothing_lives: bool = False) -> None:
        """Drop the slots below `seq` and the dead ones behind, so that a live one is in front."""
        index = self.index
        target = index.first_live(seq)
        if index.lost_count:
            lost = index.last_lost(target)
            if lost:
                self._lose(lost + 1, int(self.lost_as))
        index.drop_before(target, nothing_lives=nothing_lives)
        if self.damaged:
            self.damaged.forget_below(target)
        if self.tags is not None:
            self.tags.prune_below(target)

    # -- deleting

    def delete(
        self,
        before_seq: int | None = None,
        matcher: TagMatcher | None = None,
        upto_seq: int | None = None,
    ) -> DeleteEffect:
        """Delete for good what is visible now, or was when `upto_seq` was the head.

        With before_seq alone a floor moves and a prefix is forgotten, whatever its length. With a
        match the tag index gives the records; the log is not scanned.
        """
        if before_seq is None and matcher is None:
            raise InvalidRequestError("delete needs before_seq, match or both")
        upto = self.visible_seq if upto_seq is None else min(upto_seq, self.visible_seq)
        end = upto + 1 if before_seq is None else min(before_seq, upto + 1)
        index = self.index
        first, count, size = index.base_seq, index.live_count, index.live_bytes
        seqs, entries = no_seqs(), numpy.empty(0, INDEX_ENTRY.dtype)
        if matcher is None:
            self.delete_below = max(self.delete_below, end)
            if end > first:
                self._pop_to(end)
        elif self.tags is not None:
            seqs = self.tags.find(matcher, end)
            self.tags.forget(matcher, end)
            seqs, entries = self._mark(seqs)
        return DeleteEffect(
            count - index.live_count,
            size - index.live_bytes,
            first,
            index.base_seq,
            self.evict_floor,
            upto,
            seqs,
            entries,
        )

    def delete_seqs(self, seqs: Sequence[int] | Seqs) -> Seqs:
        """Delete these records without their tags; gives those that were alive."""
        newly = self.index.mark_deleted(seqs) if len(seqs) else no_seqs()
        self._pop_dead()
        return newly

    def _mark(self, seqs: Seqs) -> tuple[Seqs, Entries]:
        newly = self.index.mark_deleted(seqs) if len(seqs) else no_seqs()
        if not len(newly):
            return no_seqs(), numpy.empty(0, INDEX_ENTRY.dtype)
        entries = self.index.take(newly)
        self._pop_dead()
        return newly, entries

    # -- coming back after a restart

    def load_entries(self, entries: Entries) -> None:
        """The entries of the next segment, in order of seq."""
        if len(entries):
            first_seq = self.index.next_seq
            self.index.append_entries(entries)
            self._load_damaged(first_seq, entries)
            self.last_write_ts = int(entries["ts"][-1])
            self._loaded()

    def load_gap(self, end_seq: int, ts: int, *, lost: bool) -> None:
        """The seqs up to `end_seq`, not included, have no records: deleted, or lost in a crash."""
        if end_seq > self.index.next_seq:
            self.index.append_dead(end_seq - self.index.next_seq, ts, lost=lost)
            self._loaded()

    def _loaded(self) -> None:
        self.visible_seq = self.index.next_seq - 1
        self.head_seq = max(self.head_seq, self.visible_seq)
        self._pop_to(self.index.base_seq)

    def _load_damaged(self, first_seq: int, entries: Entries) -> None:
        """Where neither the entry nor the frame could be read, nothing else knows the record."""
        for position in numpy.flatnonzero(entries["flags_check"] & _DAMAGED).tolist():
            self.damaged.add(first_seq + position, first_seq + position + 1)

    def note_damaged(self, first_seq: int, last_seq: int) -> bool:
        """These cannot be read. False when that was known of all of them, or none is there."""
        first, after = max(first_seq, self.index.base_seq), min(last_seq, self.visible_seq) + 1
        if first >= after or any(
            each.start <= first and after <= each.stop for each in self.damaged
        ):
            return False
        self.damaged.add(first, after)
        return True

    def restore_floors(
        self, evict_floor: int, earliest_seq: int, reason: Loss = Loss.NONE, delete_below: int = 0
    ) -> None:
        """Floors that were written down earlier. They never go back, nor beyond the head."""
        end = self.visible_seq + 1
        if evict_floor > self.evict_floor:
            self._lose(min(evict_floor, end), reason)
        self.delete_below = max(self.delete_below, min(delete_below, end))
        self._pop_to(min(max(earliest_seq, self.evict_floor, self.delete_below), end))
