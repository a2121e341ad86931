"""Claims served together: who gets how many, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.queue import ClaimWindow, share


@pytest.mark.claims(396)
@pytest.mark.parametrize(
    ("available", "wanted", "shares"),
    [
        (100, [10, 20], [10, 20]),
        (10, [10, 10], [5, 5]),
        (11, [10, 10], [6, 5]),
        (22, [100, 10], [20, 2]),
        (1, [1, 1000], [0, 1]),
        (2, [5, 5, 5], [1, 1, 0]),
        (0, [5, 5], [0, 0]),
        (7, [], []),
    ],
)
def test_jobs_are_shared_evenly_by_what_each_wants(
    available: int, wanted: list[int], shares: list[int]
) -> None:
    assert share(available, wanted) == shares


@given(st.integers(0, 5_000), st.lists(st.integers(1, 1_000), max_size=20))
def test_shares_waste_nothing_and_differ_from_proportion_by_less_than_one(
    available: int, wanted: list[int]
) -> None:
    shares = share(available, wanted)
    total = sum(wanted)
    assert sum(shares) == min(available, total)
    for got, want in zip(shares, wanted, strict=True):
        assert got <= want
        assert abs(got - want * min(available, total) / total) < 1


@pytest.mark.claims(396)
def test_a_window_opens_with_its_first_claimer_and_closes_for_all() -> None:
    window: ClaimWindow[str] = ClaimWindow()
    assert window.join("poll", 10, now_us=100, window_us=50)
    assert not window.join("push", 30, now_us=149, window_us=50)
    window.join("gone", 99, now_us=149, window_us=50)
    window.leave("gone")
    assert (window.closes_us, window.wanted, len(window)) == (150, 40, 2)
    assert window.close() == ["poll", "push"]
    assert (window.closes_us, len(window)) == (None, 0)
    assert window.join("poll", 1, now_us=200, window_us=50)
    window.leave("poll")
    assert window.closes_us is None
    assert window.join("late", 1, now_us=900, window_us=50), "nobody is waited for any more"


@pytest.mark.claims(397)
def test_a_window_of_zero_is_due_at_once() -> None:
    window: ClaimWindow[str] = ClaimWindow()
    window.join("poll", 3, now_us=100, window_us=0)
    assert window.closes_us == 100
