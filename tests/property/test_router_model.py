"""Routers through crashes: every record has its copy, and with exactly_once just one."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import RouterCycleError, TopicExistsIncompatibleError
from headwater.model.router import (
    CursorMark,
    Fate,
    Guarantee,
    RouterCursor,
    RouterGraph,
    Slot,
    router_settings,
    slot_for,
)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("write into the destination"), st.just(1), st.just(False)),
        st.tuples(st.just("forward"), st.integers(1, 5), st.just(False)),
        st.tuples(st.just("delete"), st.integers(0, 10), st.just(False)),
        st.tuples(st.just("evict"), st.integers(0, 3), st.just(False)),
        st.tuples(st.just("checkpoint"), st.just(0), st.just(False)),
        st.tuples(st.just("crash"), st.integers(0, 6), st.just(False)),
    ),
    max_size=60,
)
OWN = -1
"""A place in the destination that somebody else wrote."""


@dataclass
class World:
    """Topics as lists: what is in each place, by seq - 1. Copies are named by their source seq."""

    guarantee: Guarantee
    source: list[Fate] = field(default_factory=list)
    evicted: int = 0
    dest: list[int | None] = field(default_factory=list)
    reader: dict[int, int | None] = field(default_factory=dict)
    """What a reader of the destination saw at each seq, over all lives."""
    tombstones: int = 0

    def __post_init__(self) -> None:
        self.cursor = RouterCursor(self.guarantee, CursorMark(0, 0))

    def leave(self, slot: Slot, source_seq: int) -> None:
        if slot is Slot.COPY:
            self.dest.append(source_seq)
        elif slot is not Slot.NOTHING:
            self.dest.append(None)
        if slot is Slot.LOST:
            self.tombstones += 1

    def forward(self, limit: int) -> None:
        cursor = self.cursor
        trim = cursor.trimmed(self.evicted + 1)
        if trim is not None:
            for seq in range(trim.first_seq, trim.last_seq + 1):
                self.leave(slot_for(self.guarantee, Fate.LOST), seq)
            cursor.passed(trim.last_seq, 0)
        chosen = cursor.next_range(len(self.source), limit)
        if chosen is None:
            return
        copies = 0
        for seq in range(chosen[0], chosen[1] + 1):
            fate = self.source[seq - 1]
            self.leave(slot_for(self.guarantee, fate), seq)
            copies += fate is Fate.MATCHES
        cursor.passed(chosen[1], copies)

    def crash(self, survives: int) -> None:
        """Places behind the mark are lost, from some point on. What others wrote is in the log,
        so nothing before it is lost for good: its place is known, and made again."""
        mark = self.cursor.mark
        behind = self.dest[mark.dest_seq :]
        own = max((at for at, what in enumerate(behind, 1) if what == OWN), default=0)
        if self.guarantee is Guarantee.AT_LEAST_ONCE:
            kept = max(own, min(survives, len(behind)))
            # Copies that were not yet in segments are gone; their seqs are not used again.
            again = [what if what == OWN else None for what in behind]
            self.dest[mark.dest_seq :] = again
            self.cursor.resume(mark.dest_seq + kept, behind[:kept].count(OWN))
            return
        # A prefix survives; what others wrote behind it keeps its place and is met again there.
        kept = min(survives, len(behind))
        self.cursor.resume(mark.dest_seq + kept, behind[:kept].count(OWN))
        rest = behind[kept:]
        del self.dest[mark.dest_seq + kept :]
        for what in rest:
            if what == OWN:
                self.dest.append(OWN)
            else:
                self.fill_one()

    def fill_one(self) -> None:
        """The next place again, and only that; its record may have been evicted since."""
        chosen = self.cursor.next_range(len(self.source), 1)
        if chosen is None:
            return
        seq = chosen[0]
        fate = Fate.LOST if seq <= self.evicted else self.source[seq - 1]
        self.leave(slot_for(self.guarantee, fate), seq)
        self.cursor.passed(seq, int(fate is Fate.MATCHES))


@pytest.mark.parametrize("guarantee", list(Guarantee))
@settings(max_examples=300, deadline=None)
@given(steps=steps)
def test_every_matching_record_is_copied_through_any_crashes(
    guarantee: Guarantee, steps: list[tuple[str, int, bool]]
) -> None:
    world = World(guarantee)
    lost: set[int] = set()
    for kind, number, matches in [*steps, ("forward", 10_000, False)]:
        if kind == "write":
            world.source += [Fate.MATCHES if matches else Fate.PASSED] * number
        elif kind == "write into the destination":
            world.dest.append(OWN)
        elif kind == "forward":
            world.forward(number)
        elif kind == "delete" and number < len(world.source):
            world.source[number] = Fate.PASSED
            lost.add(number + 1)
        elif kind == "evict":
            world.evicted = min(world.evicted + number, len(world.source))
            lost.update(range(1, world.evicted + 1))
        elif kind == "checkpoint":
            world.cursor.marked(world.cursor.next_mark(len(world.dest)))
        elif kind == "crash":
            world.crash(number)
        if guarantee is Guarantee.EXACTLY_ONCE:
            for seq, what in enumerate(world.dest, 1):
                if what is not None:
                    assert world.reader.setdefault(seq, what) == what, "a place changed its record"
    copies = [what for what in world.dest if what is not None and what != OWN]
    wanted = [seq for seq, fate in enumerate(world.source, 1) if fate is Fate.MATCHES]
    assert set(copies) >= {seq for seq in wanted if seq not in lost}
    if guarantee is Guarantee.EXACTLY_ONCE:
        assert len(copies) == len(set(copies))
        assert copies == sorted(copies)


topics = st.sampled_from("abcdef")


@pytest.mark.claims(354)
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), topics, topics),
            st.tuples(st.just("remove"), topics, topics),
            st.tuples(st.just("drop"), topics, topics),
        ),
        max_size=40,
    )
)
def test_what_is_accepted_never_closes_a_circle_nor_feeds_a_topic_twice(
    steps: list[tuple[str, str, str]],
) -> None:
    graph = RouterGraph()
    edges: set[tuple[str, str]] = set()
    for kind, source, dest in steps:
        name = f"{source}>{dest}"
        if kind == "drop":
            gone = {edge for edge in edges if source in edge}
            assert all(graph.remove(f"{a}>{b}") is not None for a, b in gone)
            edges -= gone
        elif kind == "remove":
            assert (graph.remove(name) is not None) is ((source, dest) in edges)
            edges.discard((source, dest))
        else:
            fed = any(into == dest and out != source for out, into in edges)
            closes = reaches(edges, dest, source)
            wanted = router_settings({"source": source, "dest": dest})
            if closes:
                with pytest.raises(RouterCycleError) as refusal:
                    graph.put(name, wanted)
                assert refusal.value.detail is not None
                path = refusal.value.detail["path"]
                assert path[0] == path[-1] == source
                assert path[1] == dest
                assert set(pairwise(path[1:])) <= edges
            elif fed:
                with pytest.raises(TopicExistsIncompatibleError):
                    graph.put(name, wanted)
            else:
                assert graph.put(name, wanted) is ((source, dest) not in edges)
                edges.add((source, dest))
        assert list(graph) == sorted(f"{a}>{b}" for a, b in edges)


def reaches(edges: set[tuple[str, str]], start: str, end: str) -> bool:
    reached = {start}
    for _ in range(len(edges) + 1):
        reached |= {into for out, into in edges if out in reached}
    return end in reached
