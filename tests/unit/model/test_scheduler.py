"""Bands, aging and deferral: whose delivery is next."""

from __future__ import annotations

import pytest

from headwater.model.scheduler import BANDS, Scheduler, age_boost, band_of, base_priority

S = 1_000_000


@pytest.mark.claims(328, 329, 330, 331, 332)
@pytest.mark.parametrize(
    ("band", "lowest", "highest", "weight"),
    [(4, 750, 1000, 8), (3, 500, 749, 4), (2, 250, 499, 2), (1, 0, 249, 1), (0, -1000, -1, 1)],
)
def test_bands_are_those_of_the_design(band: int, lowest: int, highest: int, weight: int) -> None:
    assert band_of(lowest) == band_of(highest) == band
    assert BANDS[band].weight == weight


@pytest.mark.claims(335)
def test_waiting_adds_100_a_second_and_1000_at_most() -> None:
    assert [age_boost(us) for us in (0, 10_000, S, 10 * S, 11 * S, 10**12)] == [
        0, 1, 100, 1_000, 1_000, 1_000,
    ]  # fmt: skip
    assert age_boost(-5) == 0


@pytest.mark.claims(325, 326, 327)
def test_a_topic_is_ready_once_however_often_it_is_marked() -> None:
    scheduler: Scheduler[str] = Scheduler()
    assert scheduler.mark("a", 0, 10)
    assert not scheduler.mark("a", 0, 20)
    assert len(scheduler) == 1
    turn = scheduler.take(30)
    assert turn is not None
    assert (turn.item, turn.waited_us) == ("a", 20)
    assert "a" not in scheduler
    assert scheduler.mark("a", 0, 40), "more work came while it was served"
    assert scheduler.take(40) is not None
    assert scheduler.take(40) is None


@pytest.mark.claims(333)
def test_inside_a_band_the_longest_waiting_is_first() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.mark("late", 749, 20)
    scheduler.mark("early", 500, 10)
    assert [scheduler.take(30).item for _ in range(2)] == ["early", "late"]  # type: ignore[union-attr]


@pytest.mark.claims(336, 337, 338)
@pytest.mark.parametrize("priority", [-250, 0, 400])
def test_a_topic_is_in_the_top_band_within_10_s_though_it_is_marked_again(priority: int) -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.mark("waits", priority, 0)
    for ms in range(0, 10_001, 50):
        scheduler.mark("busy", 1_000, ms * 1_000)
        scheduler.mark("waits", priority, ms * 1_000)
        if ms < 9_900:
            scheduler._promote(ms * 1_000)
    turn = scheduler.take(10 * S)
    assert turn is not None
    assert (turn.item, turn.band) == ("waits", 4)


@pytest.mark.claims(336)
def test_between_two_ticks_nobody_moves_up() -> None:
    scheduler: Scheduler[str] = Scheduler()
    assert scheduler.take(0) is None
    scheduler.mark("nearly", 749, 0)
    scheduler.mark("other", 749, 40_000)
    turn = scheduler.take(49_999)
    assert turn is not None
    assert turn.band == 3
    turn = scheduler.take(50_000)
    assert turn is not None
    assert turn.band == 4


@pytest.mark.claims(344)
def test_while_deferring_routers_go_lower_and_band_0_gets_no_turns() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.deferring = True
    scheduler.mark("low", -400, 0)
    scheduler.mark("router", 500, 0, forwards=True)
    scheduler.mark("plain", 400, 1)
    turns = [scheduler.take(2) for _ in range(3)]
    assert [turn and (turn.item, turn.band) for turn in turns] == [
        ("router", 2), ("plain", 2), None,
    ]  # fmt: skip
    assert "low" in scheduler
    scheduler.deferring = False
    turn = scheduler.take(3)
    assert turn is not None
    assert turn.item == "low"


def test_a_place_is_not_looked_at_again_for_a_priority_that_is_no_longer() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.deferring = True
    scheduler.mark("router", 0, 0, forwards=True)
    scheduler.mark("router", 1_000, 0, forwards=True)
    scheduler.deferring = False
    turn = scheduler.take(5 * S)
    assert turn is not None
    assert turn.band == 3, "as it was placed while that was in force"


@pytest.mark.claims(344)
def test_deferring_that_begins_in_the_middle_of_a_round_takes_the_turn_of_band_0() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.mark("first", 0, 0)
    scheduler.mark("low", -400, 0)
    turn = scheduler.take(1)
    assert turn is not None
    assert turn.item == "first"
    assert scheduler.servable == 1
    scheduler.deferring = True
    assert scheduler.servable == 0
    assert scheduler.take(2) is None
    scheduler.deferring = False
    turn = scheduler.take(3)
    assert turn is not None
    assert turn.item == "low"


@pytest.mark.claims(344)
def test_a_deferred_topic_that_grew_old_is_served_all_the_same() -> None:
    scheduler: Scheduler[str] = Scheduler()
    scheduler.deferring = True
    scheduler.mark("low", -400, 0)
    scheduler.mark("router", 0, 0, forwards=True)
    assert scheduler.take(1) is None
    turn = scheduler.take(5 * S)
    assert turn is not None
    assert turn.item == "router", "250 after 2.5 s, one band lower is band 1"
    turn = scheduler.take(5 * S)
    assert turn is not None
    assert turn.item == "low"


def test_a_dropped_topic_leaves_no_trace() -> None:
    scheduler: Scheduler[int] = Scheduler()
    for number in range(10_000):
        scheduler.mark(number, 0, number * 1_000)
        scheduler.drop(number)
        scheduler.take(number * 1_000)
    assert len(scheduler) == 0
    assert len(scheduler._crossings) < 200
    assert scheduler.take(10**9) is None
    assert sum(map(len, scheduler._bands)) == 0


def test_readers_raise_a_topic_and_forgetting_lowers_it() -> None:
    now = 1_000_000
    bands = [
        band_of(base_priority(None, True, now - idle_ms, now))
        for idle_ms in (0, 29_000, 31_000, 299_999, 300_000)
    ]
    assert bands == [3, 2, 1, 1, 1]
    assert band_of(base_priority(None, False, now, now)) == 1
    assert band_of(base_priority(-1, True, now, now)) == 0
