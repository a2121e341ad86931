"""Streams that want the same share one wish: that is how a record is rendered once for all."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any, cast

import pytest

from headwater.model.match import TagMatcher
from headwater.server.delivery import Delivery, Wish
from headwater.wire.render import Projection


def wish(**changed: Any) -> Wish:
    base = Wish(Projection(), 100, 1_000, frozenset({b"n"}), TagMatcher(b"a", prefix=True))
    return replace(base, **changed)


@pytest.fixture
def delivery() -> Delivery:
    return Delivery(cast(Any, None))


def test_equal_wishes_become_one_and_the_same(delivery: Delivery) -> None:
    first = delivery.shared(wish())
    assert delivery.shared(wish()) is first


@pytest.mark.parametrize(
    "changed",
    [
        {"projection": Projection(tags=True)},
        {"limit": 99},
        {"bytes_max": 999},
        {"nodes": frozenset({b"m"})},
        {"matcher": None},
        {"strong": True},
    ],
)
def test_a_wish_that_differs_in_anything_is_another(
    delivery: Delivery, changed: dict[str, Any]
) -> None:
    first, other = delivery.shared(wish()), delivery.shared(wish(**changed))
    assert other is not first
    assert delivery.shared(wish(**changed)) is other


def test_a_wish_nobody_has_any_more_is_forgotten(delivery: Delivery) -> None:
    kept = delivery.shared(wish())
    delivery.shared(wish(limit=1))
    gc.collect()
    assert list(delivery._wishes.values()) == [kept]
