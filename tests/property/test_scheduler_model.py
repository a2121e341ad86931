"""The scheduler against a list that is sorted anew for every turn, and the bound it promises."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.scheduler import (
    BANDS,
    TURNS_A_ROUND,
    Scheduler,
    age_boost,
    band_of,
    turns_until_served,
)

TICK_US = 50_000


@dataclass
class Waiting:
    priority: int
    since_us: int
    order: int
    band: int
    own: int
    """The band it belongs to, whatever is deferred; it is looked at again when that changes."""
    forwards: bool


@dataclass
class NaiveScheduler:
    """Bands worked out for everybody at every tick, everybody looked at for every turn."""

    waiting: dict[str, Waiting] = field(default_factory=dict)
    turns: list[int] = field(default_factory=lambda: [0] * 5)
    deferring: bool = False
    order: int = 0
    tick_us: int = 0

    def band(self, priority: int, since_us: int, now_us: int, forwards: bool) -> int:
        band = band_of(priority + age_boost(now_us - since_us))
        return max(band - 1, 0) if forwards and self.deferring else band

    @property
    def servable(self) -> int:
        return sum(each.band > 0 or not self.deferring for each in self.waiting.values())

    def mark(self, item: str, priority: int, now_us: int, forwards: bool) -> bool:
        known = self.waiting.get(item)
        if known is not None:
            if known.priority != priority:
                known.priority = priority
                known.band = self.band(priority, known.since_us, now_us, known.forwards)
                known.own = band_of(priority + age_boost(now_us - known.since_us))
            return False
        self.order += 1
        band = self.band(priority, now_us, now_us, forwards)
        self.waiting[item] = Waiting(
            priority, now_us, self.order, band, band_of(priority), forwards
        )
        return True

    def take(self, now_us: int) -> tuple[str, int, int] | None:
        if now_us >= self.tick_us:
            self.tick_us = now_us + TICK_US
            for each in self.waiting.values():
                own = band_of(each.priority + age_boost(now_us - each.since_us))
                if own > each.own:
                    each.own = own
                    each.band = self.band(each.priority, each.since_us, now_us, each.forwards)
        for _ in range(2):
            for band in (4, 3, 2, 1) if self.deferring else (4, 3, 2, 1, 0):
                here = [(w.since_us, w.order, i) for i, w in self.waiting.items() if w.band == band]
                if self.turns[band] and here:
                    self.turns[band] -= 1
                    since_us, _, item = min(here)
                    del self.waiting[item]
                    return item, band, now_us - since_us
            self.turns = [1, 1, 2, 4, 8]
        return None


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("mark"),
            st.sampled_from("abcdefgh"),
            st.sampled_from((-1000, -250, -1, 0, 249, 250, 500, 749, 750, 1000)),
        ),
        st.tuples(st.just("take"), st.integers(1, 4), st.just(0)),
        st.tuples(
            st.just("wait"), st.sampled_from((1_000, 50_000, 900_000, 12_000_000)), st.just(0)
        ),
        st.tuples(st.just("drop"), st.sampled_from("abcdefgh"), st.just(0)),
        st.tuples(st.just("defer"), st.booleans(), st.just(0)),
    ),
    max_size=80,
)


@pytest.mark.claims(326, 328, 329, 330, 331, 332, 333, 335, 336, 337, 344)
@settings(max_examples=300, deadline=None)
@given(steps=steps)
def test_turns_are_those_of_a_list_sorted_anew_each_time(
    steps: list[tuple[str, object, int]],
) -> None:
    scheduler: Scheduler[str] = Scheduler()
    naive = NaiveScheduler()
    now_us = 0
    for kind, what, priority in steps:
        if kind == "mark":
            item = str(what)
            forwards = item in "abc"
            added = scheduler.mark(item, priority, now_us, forwards=forwards)
            assert added is naive.mark(item, priority, now_us, forwards)
        elif kind == "take":
            for _ in range(int(str(what))):
                taken = scheduler.take(now_us)
                assert taken == naive.take(now_us)
        elif kind == "wait":
            now_us += int(str(what))
        elif kind == "drop":
            scheduler.drop(str(what))
            naive.waiting.pop(str(what), None)
        else:
            scheduler.deferring = naive.deferring = bool(what)
        assert len(scheduler) == len(naive.waiting)
        assert scheduler.servable == naive.servable


@pytest.mark.claims(328, 329, 330, 331, 332, 334)
def test_under_full_load_each_band_gets_its_share_of_the_turns() -> None:
    scheduler: Scheduler[tuple[int, int]] = Scheduler()
    served = [0] * len(BANDS)
    priorities = (-500, 100, 300, 600, 900)
    for band, priority in enumerate(priorities):
        for number in range(20):
            scheduler.mark((band, number), priority, 0)
    for turn_number in range(100 * TURNS_A_ROUND):
        turn = scheduler.take(turn_number)
        assert turn is not None
        band, _ = turn.item
        assert turn.band == band
        served[band] += 1
        scheduler.mark(turn.item, priorities[band], turn_number)
    assert served == [100, 100, 200, 400, 800]


@pytest.mark.claims(326, 334, 337, 338)
@settings(max_examples=200, deadline=None)
@given(
    older=st.lists(st.integers(-1000, 1000), max_size=12),
    mine=st.integers(-1000, 1000),
    pace_us=st.sampled_from((10, 1_000, 40_000, 300_000)),
    rush=st.lists(st.integers(-1000, 1000), min_size=1, max_size=5),
    rewrites=st.booleans(),
)
def test_every_topic_is_served_within_the_stated_bound_whatever_comes_after_it(
    older: list[int], mine: int, pace_us: int, rush: list[int], rewrites: bool
) -> None:
    """Newcomers pour in all the time, many more than can be served."""
    scheduler: Scheduler[int] = Scheduler()
    for number, priority in enumerate(older):
        scheduler.mark(number, priority, 0)
    me, newcomer, now_us = -1, 1_000, 0
    scheduler.mark(me, mine, 0)
    for _ in range(turns_until_served(len(older))):
        for priority in rush:
            newcomer += 1
            scheduler.mark(newcomer, priority, now_us)
        if rewrites:
            scheduler.mark(me, mine, now_us)
        now_us += pace_us
        turn = scheduler.take(now_us)
        assert turn is not None
        if turn.item == me:
            assert turn.waited_us == now_us
            return
    pytest.fail("not served within the bound")
