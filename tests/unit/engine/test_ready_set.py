"""The ready set: one topic costs no scheduling, several take turns, lateness is counted."""

from __future__ import annotations

import pytest

from headwater.engine.pressure import ReadySet

S = 1_000_000


class Asked:
    """Priorities by name, and who was asked for."""

    def __init__(self, **priorities: int) -> None:
        self._priorities = priorities
        self.names: list[str] = []

    def __call__(self, name: str) -> int:
        self.names.append(name)
        return self._priorities[name]


@pytest.mark.claims(325, 326, 339)
def test_a_topic_alone_is_served_without_any_scheduling() -> None:
    asked = Asked(only=900)
    ready = ReadySet(asked)
    for at_us in (10, 20, 30):
        ready.mark("only", at_us)
    assert (ready.size, ready.servable) == (1, 1)
    assert ready.take(40) == "only"
    assert ready.take(40) is None
    assert (ready.size, ready.servable) == (0, 0)
    assert asked.names == []
    assert ready.lateness() == (1, 30)
    assert ready.lateness() == (0, 0)


@pytest.mark.claims(328, 332, 333)
def test_with_several_the_bands_decide_and_the_first_keeps_its_time() -> None:
    ready = ReadySet(Asked(low=-1, first=800, second=900))
    ready.mark("low", 0)
    ready.mark("second", 20)
    ready.mark("first", 10)
    assert ready.size == 3
    assert [ready.take(30) for _ in range(4)] == ["first", "second", "low", None]
    assert ready.lateness() == (3, 20 + 10 + 30)


@pytest.mark.claims(344)
def test_a_topic_of_band_0_waits_while_others_are_served_and_is_not_called_late() -> None:
    ready = ReadySet(Asked(low=-400, high=0))
    ready.mark("low", 0)
    ready.defer(True)
    ready.mark("high", 100)
    ready.not_before_us = 100
    assert (ready.size, ready.servable) == (2, 1)
    assert [ready.take(150), ready.take(150)] == ["high", None]
    assert ready.lateness() == (1, 50)
    assert ready.servable == 0
    ready.defer(False)
    ready.not_before_us = 3 * S
    assert ready.servable == 1
    assert ready.take(3 * S + 7) == "low"
    assert ready.lateness() == (1, 7)


@pytest.mark.claims(344)
def test_a_lone_topic_that_is_ready_when_deferring_begins_is_deferred_too() -> None:
    ready = ReadySet(Asked(low=-400))
    ready.mark("low", 0)
    ready.defer(True)
    assert (ready.size, ready.servable) == (1, 0)
    assert ready.take(1) is None
    ready.defer(False)
    assert ready.take(2) == "low"


@pytest.mark.claims(342)
def test_time_that_was_meant_for_gathering_is_not_lateness() -> None:
    ready = ReadySet(Asked(only=0))
    ready.mark("only", 0)
    ready.not_before_us = 20_000
    assert ready.take(20_300) == "only"
    assert ready.lateness() == (1, 300)


@pytest.mark.claims(344)
def test_what_forwards_goes_a_band_lower_while_deferring() -> None:
    ready = ReadySet(Asked(source=100), forwards=True)
    ready.defer(True)
    ready.mark("source", 0)
    assert ready.servable == 0
    assert ready.take(1) is None
    assert ready.take(3 * S) == "source", "it has grown old"
