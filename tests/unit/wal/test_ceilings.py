"""Seq ceilings: a reservation is durable before an ack relies on it (I3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.wal import WalSettings
from headwater.wal.ceilings import SeqCeilings


@pytest.mark.claims(140)
def test_the_first_seq_reserves_256_ahead_and_half_of_them_pass_without_another() -> None:
    ceilings = SeqCeilings(WalSettings().head_ahead)
    assert ceilings.reserve(1, 1, 1) == 257
    assert ceilings.reserve(1, 2, 2) is None
    assert ceilings.reserve(1, 129, 129) is None
    assert ceilings.reserve(1, 130, 130) == 386


def test_a_seq_may_be_acked_early_only_below_a_confirmed_ceiling() -> None:
    ceilings = SeqCeilings(10)
    assert not ceilings.is_durable(1, 1)
    asked = ceilings.reserve(1, 1, 1)
    assert asked == 17, "sixteen times the batch, when that is more"
    assert not ceilings.is_durable(1, 1), "asked for is not durable"
    ceilings.confirm(1, asked)
    assert ceilings.is_durable(1, asked)
    assert not ceilings.is_durable(1, asked + 1)
    assert not ceilings.is_durable(2, 1), "another topic"


def test_a_late_confirmation_of_a_lower_ceiling_takes_nothing_back() -> None:
    ceilings = SeqCeilings(10)
    ceilings.reserve(1, 1, 1)
    ceilings.confirm(1, 500)
    ceilings.confirm(1, 20)
    assert ceilings.ceiling_of(1) == 500


def test_a_restored_ceiling_counts_and_a_forgotten_one_does_not() -> None:
    ceilings = SeqCeilings(10)
    ceilings.restore(1, 300)
    assert ceilings.is_durable(1, 300)
    assert ceilings.reserve(1, 1, 1) is None
    ceilings.forget(1)
    assert not ceilings.is_durable(1, 1)
    ceilings.confirm(1, 900)
    assert ceilings.ceiling_of(1) == 0, "nobody asked for it since"


@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=50))
def test_a_reservation_always_covers_the_seqs_it_was_asked_for(batches: list[int]) -> None:
    ceilings = SeqCeilings(256)
    head = 0
    highest = 0
    for count in batches:
        ceiling = ceilings.reserve(1, head + 1, head + count)
        head += count
        if ceiling is not None:
            assert ceiling > highest, "ceilings grow"
            highest = ceiling
        assert highest > head
