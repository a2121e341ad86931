"""Streams that want the same share one wish: that is how a record is rendered once for all."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any, cast

import pytest

from headwater.model.match import TagMatcher
from headwater.server.backend import Backend
from headwater.server.streams.delivery import Delivery, ReadOptions
from headwater.testing.clock import ManualClock
from headwater.wire.frames import Projection


def options(**changed: Any) -> ReadOptions:
    base = ReadOptions(Projection(), 100, 1_000, frozenset({b"n"}), TagMatcher(b"a", prefix=True))
    return replace(base, **changed)


@pytest.fixture
def delivery() -> Delivery:
    return Delivery(Backend(), cast(Any, None), ManualClock(), cast(Any, None))


def test_equal_shared_become_one_and_the_same(delivery: Delivery) -> None:
    first = delivery.shared(options())
    assert delivery.shared(options()) is first


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
    first, other = delivery.shared(options()), delivery.shared(options(**changed))
    assert other is not first
    assert delivery.shared(options(**changed)) is other


def test_a_wish_nobody_has_any_more_is_forgotten(delivery: Delivery) -> None:
    kept = delivery.shared(options())
    delivery.shared(options(limit=1))
    gc.collect()
    assert list(delivery._shared.values()) == [kept]
