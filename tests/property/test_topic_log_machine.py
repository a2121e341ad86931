"""The rules of a topic against a list that is easy to believe, in any order of events."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headwater.config.topic import TopicSettings, topic_settings
from headwater.core.errors import HeadConflictError, TopicFullError
from headwater.format.segment import IndexFlag, seal_checks
from headwater.model import index as index_module
from headwater.model import tags as tags_module
from headwater.model import topic as victims_module
from headwater.model.match import parse_match
from headwater.model.selection import select
from headwater.model.tags import TagIndex
from headwater.model.topic import TopicLog
from tests.property.naive_topic import LOST, Event, NaiveRecord, NaiveTopic
from tests.rig.invariants import check_topic

OVERHEAD = 38
TAGS = (None, b"a", b"ab", b"abc", b"b", b"b\xff", b"ba")
MATCHES = ("a", "ab", "a*", "b*", "*", "nobody", ["tag", "Eq", "b"], ["tag", "Glob", "ab*"])

Write = list[tuple[int, bytes | None]]
Changes = dict[str, Any]
records_of_a_write = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(TAGS)), min_size=1, max_size=7
)
some_writes = st.lists(records_of_a_write, min_size=1, max_size=6)
any_settings = st.fixed_dictionaries(
    {
        "cap_records": st.sampled_from((0, 3, 8, 20)),
        "cap_bytes": st.sampled_from((0, 60, 300)),
        "ttl_ms": st.sampled_from((0, 5, 20)),
        "discard": st.sampled_from(("old", "old", "reject")),
    }
)
Place = tuple[str, int]
places = st.tuples(
    st.sampled_from(("start", "floor", "earliest", "middle", "visible", "head")),
    st.integers(-6, 6),
)
"""A seq, as a distance from something that moves."""


class TopicMachine(RuleBasedStateMachine):
    """Blocks and chunks are tiny here, so that a few records cross many of them."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(index_module, "BLOCK_BITS", 2)
        self._patch.setattr(index_module, "BLOCK_SLOTS", 4)
        self._patch.setattr(index_module, "_BLOCK_MASK", 3)
        self._patch.setattr(victims_module, "BLOCK_SLOTS", 4)
        self._patch.setattr(tags_module, "CHUNK_ENTRIES", 5)
        self.settings: TopicSettings = topic_settings({})
        self.log = TopicLog(self.settings)
        self.naive = NaiveTopic(self.settings)
        self.inflight: deque[tuple[int, Write]] = deque()
        self.now_ms = 1_000

    def teardown(self) -> None:
        self._patch.undo()

    def _seq(self, place: Place) -> int:
        anchor, distance = place
        log = self.log
        anchors = {
            "start": 0,
            "floor": log.evict_floor,
            "earliest": log.earliest_seq,
            "middle": (log.earliest_seq + log.visible_seq) // 2,
            "visible": log.visible_seq,
            "head": log.head_seq,
        }
        return max(anchors[anchor] + distance, 0)

    # -- writing

    @rule(records=records_of_a_write)
    def assign(self, records: Write) -> None:
        payload = sum(size for size, _ in records)
        head = self.log.head_seq
        waiting = [size for _, write in self.inflight for size, _ in write]
        caps, rejects = self.settings, self.settings.discard.value == "reject"
        count = len(self.naive.live) + len(waiting) + len(records)
        size = self.naive.bytes + sum(waiting) + payload
        full = rejects and bool(
            (caps.cap_records and count > caps.cap_records)
            or (caps.cap_bytes and size > caps.cap_bytes)
        )
        if full:
            with pytest.raises(TopicFullError):
                self.log.assign(len(records), payload)
            assert self.log.head_seq == head
        else:
            assert self.log.assign(len(records), payload, expect_head_seq=head) == head + 1
            self.inflight.append((head + 1, records))

    @rule(other=st.integers(-3, 3).filter(bool))
    def assign_with_a_wrong_expectation(self, other: int) -> None:
        head = self.log.head_seq
        with pytest.raises(HeadConflictError):
            self.log.assign(1, 10, expect_head_seq=head + other)
        assert self.log.head_seq == head

    @precondition(lambda self: self.inflight)
    @rule()
    def publish(self) -> None:
        first_seq, records = self.inflight.popleft()
        self.log.publish(
            first_seq,
            [OVERHEAD + size for size, _ in records],
            self.now_ms,
            [IndexFlag.IN_WAL | (IndexFlag.HAS_TAG if tag else 0) for _, tag in records],
            [tag for _, tag in records],
        )
        for seq, (size, tag) in enumerate(records, first_seq):
            self.naive.records.append(NaiveRecord(seq, self.now_ms, size, tag))

    @precondition(lambda self: self.inflight)
    @rule()
    def take_back_the_newest(self) -> None:
        first_seq, records = self.inflight.pop()
        self.log.unassign(first_seq, sum(size for size, _ in records))

    @initialize(changes=any_settings, writes=some_writes)
    def start_with_some_records(self, changes: Changes, writes: list[Write]) -> None:
        self.write(writes, 1, evict=False)
        self.change_settings(changes)

    @rule(writes=some_writes, step=st.integers(0, 4), evict=st.booleans())
    def write(self, writes: list[Write], step: int, evict: bool) -> None:
        for records in writes:
            self.now_ms += step
            self.assign(records)
            while self.inflight:
                self.publish()
            if evict:
                self.evict(0)

    # -- losing

    @rule(changes=any_settings)
    def change_settings(self, changes: Changes) -> None:
        self.settings = topic_settings(changes, self.settings)
        self.log.settings = self.naive.settings = self.settings

    @rule(step=st.integers(0, 12) | st.just(-20))
    def evict(self, step: int) -> None:
        """The clock may go back; what expired stays expired."""
        self.now_ms = max(self.now_ms + step, 0)
        before = self.log.earliest_seq
        eviction = self.log.evict(self.now_ms)
        size = self.naive.bytes
        gone = self.naive.evict(self.now_ms)
        assert (eviction is not None) == (gone > 0)
        if eviction is not None:
            assert eviction.records == gone
            assert eviction.bytes == size - self.naive.bytes
            assert eviction.first_seq == before
            assert eviction.earliest_seq == self.naive.earliest_seq
            assert eviction.evict_floor == self.naive.evict_floor

    @precondition(lambda self: not self.inflight)
    @rule(count=st.integers(1, 6))
    def a_crash_loses_the_tail(self, count: int) -> None:
        first = self.log.visible_seq + 1
        self.log.load_gap(first + count, self.now_ms, lost=True)
        for seq in range(first, first + count):
            self.naive.records.append(NaiveRecord(seq, self.now_ms, 0, None, LOST, {"lost_tail"}))

    # -- deleting

    @rule(place=places)
    def delete_below(self, place: Place) -> None:
        self._delete(self._seq(place), None, None)

    @rule(given=st.sampled_from(MATCHES), place=st.none() | places, back=st.integers(0, 9))
    def delete_matching(self, given: object, place: Place | None, back: int) -> None:
        before_seq = None if place is None else self._seq(place)
        self._delete(before_seq, given, self.log.visible_seq - back if back > 4 else None)

    def _delete(self, before_seq: int | None, given: object, upto_seq: int | None) -> None:
        matcher = None if given is None else parse_match(given)
        size = self.naive.bytes
        deletion = self.log.delete(before_seq, matcher, upto_seq)
        upto = self.log.visible_seq if upto_seq is None else upto_seq
        deleted = self.naive.delete(before_seq, matcher, upto)
        assert deletion.records == len(deleted)
        assert deletion.bytes == size - self.naive.bytes
        assert deletion.upto_seq == upto
        assert deletion.earliest_seq == self.naive.earliest_seq
        if matcher is not None:
            assert deletion.seqs.tolist() == deleted
            assert len(deletion.entries) == len(deleted)

    @rule(chosen=st.lists(places, min_size=1, max_size=12))
    def delete_chosen_seqs(self, chosen: list[Place]) -> None:
        seqs = [self._seq(place) for place in chosen]
        newly = self.log.delete_seqs(numpy.array(sorted(set(seqs)), numpy.int64))
        alive = [record for record in self.naive.live if record.seq in seqs]
        for record in alive:
            record.fate = "deleted"
        assert newly.tolist() == [record.seq for record in alive]

    # -- restarting

    @precondition(lambda self: not self.inflight)
    @rule()
    def restart(self) -> None:
        """Floors and entries come back from disk; tags are read back from the records."""
        old = self.log
        log = TopicLog(self.settings, old.epoch, base_seq=old.earliest_seq)
        log.restore_floors(old.evict_floor, old.earliest_seq, old.losses, old.delete_below)
        entries = old.index.entries(old.earliest_seq, old.visible_seq)
        seal_checks(entries, old.earliest_seq)
        log.load_entries(entries)
        log.tags = TagIndex()
        log.tags.add_older(
            (record.tag, record.seq)
            for record in self.naive.records
            if record.tag and record.seq >= old.earliest_seq
        )
        self.log = log
        self.naive.forget_reasons()

    # -- reading

    @rule(
        place=places,
        limit=st.integers(1, 9),
        bytes_max=st.sampled_from((0, 15, 1000)),
        slots_max=st.sampled_from((1, 5, 1000)),
    )
    def read_to_the_end(self, place: Place, limit: int, bytes_max: int, slots_max: int) -> None:
        from_seq = self._seq(place)
        expected = list(self.naive.events(from_seq, self.log.head_seq))
        payloads = {record.seq: record.payload for record in self.naive.records}
        met: list[Event] = []
        cursor = from_seq
        for _ in range(len(self.naive.records) + 5):
            selection = select(self.log, cursor, limit, bytes_max, slots_max=slots_max)
            tombstone = selection.tombstone
            if tombstone is not None:
                assert tombstone.earliest_seq == self.naive.earliest_seq
                assert tombstone.head_seq == self.naive.visible_seq
                met.append(("tombstone", tombstone.gap_from, tombstone.gap_to, tombstone.reason))
            else:
                assert selection.next_from_seq >= cursor
            seqs = selection.seqs.tolist()
            met += [("record", seq, seq, "") for seq in seqs]
            assert len(seqs) <= limit
            assert len(seqs) <= 1 or sum(payloads[seq] for seq in seqs) <= bytes_max
            assert selection.records_scanned <= slots_max
            cursor = selection.next_from_seq
            if selection.caught_up:
                break
        else:
            pytest.fail("the reader never caught up")
        assert met == expected

    # -- always

    @invariant()
    def the_state_is_that_of_the_list(self) -> None:
        check_topic(self.log)
        assert self.log.visible_seq == self.naive.visible_seq
        assert self.log.earliest_seq == self.naive.earliest_seq
        assert self.log.evict_floor == self.naive.evict_floor
        assert self.log.count == len(self.naive.live)
        assert self.log.bytes == self.naive.bytes

    @rule(first=places, end=places)
    def sums_of_any_range_are_right(self, first: Place, end: Place) -> None:
        index = self.log.index
        low = min(max(self._seq(first), index.base_seq), index.next_seq)
        high = min(max(self._seq(end), low), index.next_seq)
        inside = [record for record in self.naive.live if low <= record.seq < high]
        live = index.live_between(low, high)
        assert live == (len(inside), sum(record.payload for record in inside))


TopicMachine.TestCase.settings = hypothesis_settings(
    max_examples=200, stateful_step_count=50, deadline=None
)


@pytest.mark.claims(
    209, 210, 211, 212, 213, 217, 218, 221, 222, 223, 226, 227, 228, 231, 232, 233, 234, 235, 236,
    237, 238, 270, 271, 276, 277,
)  # fmt: skip
class TestTopicAgainstAList(TopicMachine.TestCase):  # type: ignore[misc, valid-type]
    pass
