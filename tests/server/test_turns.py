"""Turns of delivery on a loop that a test moves: order, breaks, gathering, deferral."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from headwater.engine.state.topic import Topic
from headwater.model.pressure import Governor, Signals
from headwater.model.scheduler import TURNS_A_ROUND
from headwater.server.backend import Backend
from headwater.server.streams.delivery import Delivery
from headwater.testing import ManualClock
from tests.rig.life import SMALL, new_disk, open_stepped


class HandLoop:
    """Callbacks wait until they are run; a timer's delay is kept for a look at it."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []
        self.delays: list[float] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        self._soon.append(work)

    def call_later(self, delay_s: float, work: Callable[[], None]) -> None:
        self.delays.append(delay_s)
        self._soon.append(work)

    def run_once(self) -> bool:
        """Everything that was to run by now. False when there was nothing."""
        soon, self._soon = self._soon, []
        for work in soon:
            work()
        return bool(soon)


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.database = open_stepped(new_disk(), SMALL, self.clock)
        self.engine = self.database.engine
        self.pressure_control = self.engine.pressure_control
        self.loop = HandLoop()
        loop, streams = cast(Any, self.loop), cast(Any, None)
        self.delivery = Delivery(Backend(), streams, self.clock, loop)
        self.delivery.govern(self.pressure_control)
        self.engine.core.on_update = self.delivery.on_news
        self.served: list[tuple[str, int]] = []

    def topic(self, name: str, **settings: Any) -> str:
        """Made, and followed by somebody who notes each turn and how far the topic was then."""
        self.database.create(name, durability="ephemeral", **settings)
        self.delivery.follow(cast(Any, self), self.engine.topic(name), strong=False)
        return name

    def pump(self, topic: Topic) -> None:
        self.served.append((topic.name, topic.log.visible_seq))

    def write(self, *names: str) -> None:
        for name in names:
            self.database.append(name, {"data": 1})

    def press(self, pressure: float, samples: int = 1) -> None:
        for _ in range(samples):
            self.pressure_control.governor.sample(Signals(0, 1, 0, pressure))
        self.pressure_control._apply()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.served]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.database.close()


@pytest.mark.claims(325, 326, 327, 339)
def test_a_burst_of_writes_is_one_turn_at_once(scene: Scene) -> None:
    name = scene.topic("t")
    scene.write(name, name, name)
    assert scene.loop.delays == []
    assert scene.loop.run_once()
    assert scene.served == [("t", 3)]
    assert not scene.loop.run_once(), "there is nothing left to do"


@pytest.mark.claims(325, 328, 329, 330, 331, 332, 333)
def test_topics_that_are_ready_together_are_served_by_priority(scene: Scene) -> None:
    for name, priority in (("b0", -5), ("b1", 10), ("b2", 300), ("b3", 600), ("b4", 1000)):
        scene.topic(name, priority=priority)
    scene.write("b0", "b2", "b1", "b4", "b3")
    scene.loop.run_once()
    assert scene.names == ["b4", "b3", "b2", "b1", "b0"]


def test_a_topic_that_is_read_comes_before_one_that_is_not(scene: Scene) -> None:
    scene.topic("forgotten")
    scene.topic("read")
    scene.topic("third", priority=-1000)
    scene.database.diff("read")
    scene.write("third", "forgotten", "read")
    scene.loop.run_once()
    assert scene.names == ["read", "forgotten", "third"]


@pytest.mark.claims(327)
def test_after_a_round_of_turns_everything_else_has_its_chance(scene: Scene) -> None:
    names = [scene.topic(f"t{number:02}") for number in range(TURNS_A_ROUND + 4)]
    scene.write(*names)
    served = []
    while scene.loop.run_once():
        served.append(len(scene.served))
    assert served == [TURNS_A_ROUND, TURNS_A_ROUND + 4]
    assert scene.names == names
    assert scene.pressure_control.ready_topics == 0


@pytest.mark.claims(342)
def test_under_mild_pressure_news_wait_a_little_and_share_a_turn(scene: Scene) -> None:
    name = scene.topic("t")
    scene.press(0.6)
    scene.write(name)
    scene.clock.advance(4_000)
    scene.write(name)
    assert scene.loop.delays == [0.01]
    scene.clock.advance(6_000)
    scene.loop.run_once()
    assert scene.served == [("t", 2)], "two writes, one turn, one frame"
    scene.clock.advance(100_000)
    scene.pressure_control.tick()
    assert scene.pressure_control.governor.latency_us == 0, "what was meant is not late"
    scene.write(name)
    assert len(scene.loop.delays) == 1, "pressure is gone, and so is the wait"


@pytest.mark.claims(344, 346)
def test_band_0_is_deferred_under_pressure_and_served_after(scene: Scene) -> None:
    low, high = scene.topic("low", priority=-500), scene.topic("high", priority=0)
    scene.press(0.9, samples=3)
    scene.write(low, high)
    scene.loop.run_once()
    assert scene.names == [high]
    assert not scene.loop.run_once(), "nobody spins while it is deferred"
    assert [record.seq for record in scene.database.diff(low).records] == [1]
    scene.press(0.6)
    scene.delivery.resume()
    scene.loop.run_once()
    assert scene.names == [high]
    scene.press(0.59)
    scene.delivery.resume()
    scene.loop.run_once()
    assert scene.names == [high, low]


@pytest.mark.claims(337, 344)
def test_a_deferred_topic_that_has_grown_old_is_served_though_pressure_stays(scene: Scene) -> None:
    low = scene.topic("low", priority=-500)
    scene.press(0.9, samples=3)
    scene.write(low)
    for _ in range(49):
        scene.clock.advance(100_000)
        scene.delivery.on_news(scene.engine.topic(low))
        scene.delivery.resume()
        scene.loop.run_once()
    assert scene.names == []
    scene.clock.advance(100_000)
    scene.delivery.resume()
    scene.loop.run_once()
    assert scene.names == [low]
    turns, late_us = scene.delivery._ready.lateness()
    assert (turns, late_us) == (1, 0), "it waited on purpose"


def test_a_follower_that_breaks_keeps_nobody_else_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.topic("a", priority=900)
    scene.topic("b", priority=0)
    scene.write("b", "a")
    pump = scene.pump

    def broken(topic: Topic) -> None:
        if topic.name == "a":
            raise RuntimeError("broken")
        pump(topic)

    monkeypatch.setattr(scene, "pump", broken)
    with pytest.raises(RuntimeError):
        scene.loop.run_once()
    scene.loop.run_once()
    assert scene.names == ["b"]


def test_a_fresh_governor_is_under_no_pressure() -> None:
    assert (Governor().coalesce_us, Governor().rungs) == (0, frozenset())
