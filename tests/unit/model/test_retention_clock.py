"""The clock of retention walks where the wall clock leaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.retention import RetentionClock

START_MS = 1_700_000_000_000
YEAR_MS = 365 * 86_400_000


def test_it_follows_an_honest_wall_clock_exactly() -> None:
    clock = RetentionClock(START_MS, 0)
    for second in range(1, 100):
        assert (
            clock.now_ms(START_MS + second * 1_000, second * 1_000_000) == START_MS + second * 1000
        )


@pytest.mark.parametrize("leap_ms", [1_000, 3_600_000, YEAR_MS, 10 * YEAR_MS, 13 * YEAR_MS])
def test_a_leap_forward_is_walked_at_twice_the_pace(leap_ms: int) -> None:
    clock = RetentionClock(START_MS, 0)
    assert clock.now_ms(START_MS + leap_ms, 0) == START_MS
    after_a_minute = clock.now_ms(START_MS + leap_ms + 60_000, 60_000_000)
    assert after_a_minute == START_MS + min(leap_ms + 60_000, 120_000)


def test_a_leap_that_is_taken_back_in_time_has_cost_minutes_not_years() -> None:
    clock = RetentionClock(START_MS, 0)
    clock.now_ms(START_MS + YEAR_MS + 60_000, 60_000_000)
    corrected = clock.now_ms(START_MS + 61_000, 61_000_000)
    assert corrected <= START_MS + 2 * 61_000


def test_it_stands_still_while_the_wall_clock_is_behind() -> None:
    clock = RetentionClock(START_MS, 0)
    assert clock.now_ms(START_MS - 3_600_000, 1_000_000) == START_MS
    assert clock.now_ms(START_MS - 10 * YEAR_MS, 2_000_000) == START_MS
    assert clock.now_ms(START_MS + 500, 3_000_000) == START_MS + 500


@given(
    readings=st.lists(
        st.tuples(st.integers(0, START_MS + 20 * YEAR_MS), st.integers(-1_000, 10_000_000)),
        max_size=50,
    )
)
def test_it_never_goes_back_and_never_more_than_twice_as_fast(
    readings: list[tuple[int, int]],
) -> None:
    clock = RetentionClock(START_MS, 0)
    shown, monotonic_us = START_MS, 0
    for wall_ms, passed_us in readings:
        now = clock.now_ms(wall_ms, max(monotonic_us + passed_us, 0))
        assert shown <= now
        assert (now - shown) * 1_000 <= 2 * max(passed_us, 0) + 1_000
        monotonic_us = max(monotonic_us, monotonic_us + passed_us)
        shown = now
