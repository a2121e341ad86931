"""The governor of an embedded database, by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headwater.config.engine import EngineSettings
from headwater.core.errors import OverloadedError
from headwater.engine.database import Database
from headwater.engine.pressure import PoolMeter, ReadySet
from headwater.engine.state.topic import Topic
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import encode_records
from headwater.model.pressure import Rung, Signals
from headwater.model.router import router_settings
from headwater.model.scheduler import TURNS_A_ROUND
from headwater.testing import ManualClock
from tests.rig.life import SMALL, new_disk, open_stepped
from tests.rig.stepped import SteppedMaintenance, SteppedOwner

SAMPLE_US = 100_000
ROOM = 20
SETTINGS: EngineSettings = replace(
    SMALL,
    wal=replace(SMALL.wal, file_bytes=65_536, queue_submissions_max=ROOM, queue_bytes_max=8_192),
    cold_url=None,
)


class Place:
    """A database whose log stands still as long as its owner is held."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.database: Database = open_stepped(new_disk(), SETTINGS, self.clock)
        self.engine = self.database.engine
        self.pressure_control = self.engine.pressure_control
        owner = self.engine.core.owner
        assert isinstance(owner, SteppedOwner)
        self.owner = owner

    def write(self, data: object = 1, **options: Any) -> Write:
        return self.engine.append("t", encode_records([{"data": data}], None), **options)

    def fill(self) -> list[Write]:
        """Writes until there is no room for another one."""
        writes = [self.write(n) for n in range(ROOM)]
        with pytest.raises(OverloadedError, match="20 writes are waiting"):
            self.write()
        return writes

    def sample(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(SAMPLE_US)
            self.pressure_control.tick()

    @property
    def window_us(self) -> int:
        wal = self.engine.core.wal
        assert wal is not None
        window = wal.shards[0].window
        window.observe(2, 0)
        return window.wait_us(1)


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    place.database.create("t")
    yield place
    place.database.close()


@pytest.mark.claims(340)
def test_a_sample_is_taken_by_a_write_when_one_is_due_and_not_before(place: Place) -> None:
    with place.owner.holding():
        place.fill()
        place.clock.advance(SAMPLE_US - 1)
        with pytest.raises(OverloadedError, match="are waiting"):
            place.write()
        assert place.pressure_control.governor.pressure == 0.0
        place.clock.advance(1)
        with pytest.raises(OverloadedError, match="more is being written"):
            place.write()
        assert place.pressure_control.governor.pressure == 1.0


@pytest.mark.claims(345, 346)
def test_at_saturation_writes_are_refused_before_anything_is_taken(place: Place) -> None:
    with place.owner.holding():
        writes = place.fill()
        place.sample()
        with pytest.raises(OverloadedError) as caught:
            place.write()
        assert caught.value.retry_after_ms == 1_000
        assert caught.value.detail == {"pressure": 1.0}
        assert place.pressure_control.writes_refused == 1
        assert len(writes) == ROOM
    assert all(write.done for write in writes)
    assert place.database.state("t").head_seq == ROOM, "what was refused has left nothing"
    place.sample()
    assert place.write().first_seq == ROOM + 1
    assert place.pressure_control.governor.rungs == frozenset()


@pytest.mark.claims(345)
def test_who_disables_backpressure_is_refused_only_when_there_is_no_room_at_all(
    place: Place,
) -> None:
    with place.owner.holding():
        place.fill()
        place.sample()
        with pytest.raises(OverloadedError, match="20 writes are waiting"):
            place.write(disable_backpressure=True)
        assert place.pressure_control.writes_refused == 0
    place.engine.core.refusing = True
    with pytest.raises(OverloadedError, match="more is being written"):
        place.database.append("t", {"data": 1})
    assert place.database.append("t", {"data": 1}, disable_backpressure=True).records == 1


@pytest.mark.claims(341, 345)
def test_what_waits_for_the_log_is_bounded_in_bytes_too(place: Place) -> None:
    with place.owner.holding():
        large = place.write("x" * 9_000)
        with pytest.raises(OverloadedError, match="1 writes are waiting for the disk, 9"):
            place.write()
        place.sample()
        assert place.pressure_control.governor.parts["backlog"] == 1.0
        assert place.engine.core.refusing
    assert large.done, "a first one is taken whatever its size"


@pytest.mark.claims(343)
def test_above_two_fifths_commits_wait_longer_and_later_no_more(place: Place) -> None:
    relaxed = 500
    with place.owner.holding():
        assert place.window_us == relaxed
        for n in range(ROOM // 2):
            place.write(n)
        place.sample()
        assert place.window_us == (relaxed + 10_000) // 2
    place.sample()
    assert place.window_us == relaxed


@pytest.mark.claims(341)
def test_a_log_that_answers_nothing_for_a_second_is_full_pressure(place: Place) -> None:
    seen = []
    with place.owner.holding():
        place.write()
        for _ in range(13):
            place.sample()
            seen.append(round(place.pressure_control.governor.pressure, 2))
    assert seen == [0.05, *(n / 10 for n in range(1, 10)), 1.0, 1.0, 1.0]
    assert place.pressure_control.governor.parts["stall"] == 1.0
    assert Rung.REFUSE not in place.pressure_control.governor.rungs, "there is room"
    place.sample()
    assert place.pressure_control.governor.pressure < 0.01


@pytest.mark.claims(344)
def test_ready_sets_are_deferred_and_released_and_every_transition_is_told(place: Place) -> None:
    ready: ReadySet[Topic] = place.pressure_control.ready_set()
    told: list[str] = []
    place.pressure_control.listeners.append(
        lambda news: told.extend(f"{rung.value} {entered}" for rung, entered, _ in news)
    )
    deferring: list[bool] = []
    with place.owner.holding():
        place.fill()
        for times in (2, 1):
            place.sample(times)
            deferring.append(ready.deferring)
    place.sample()
    assert [*deferring, ready.deferring] == [False, True, False]
    entered = ["coalesce True", "widen True", "refuse True", "defer True"]
    left = ["coalesce False", "widen False", "defer False", "refuse False"]
    assert told == entered + left
    assert set(place.pressure_control.transitions.values()) == {1}
    assert len(place.pressure_control.transitions) == 8


@pytest.mark.claims(325, 344, 346)
def test_routers_wait_under_sustained_pressure_and_copy_after_it(place: Place) -> None:
    engine = place.engine
    engine.core.owner.call(
        lambda: engine.routers.put("copy", router_settings({"source": "t", "dest": "copies"}))
    )
    for _ in range(3):
        place.pressure_control.governor.sample(Signals(0, 1, 0, 0.9))
    place.pressure_control._apply()
    place.database.append("t", {"data": "late"})
    engine.copy_rounds.run_dry()
    assert engine.core.routers.find("copy") is not None
    assert place.database.diff("t").records[0].data == "late", "only copying waits"
    assert place.database.state("copies").head_seq == 0
    assert place.pressure_control.ready_topics == 1
    place.sample()
    signals = place.pressure_control._signals(place.clock.monotonic_us())
    assert (place.pressure_control.ready_topics, signals.ready_depth) == (1, 0), "it is no pressure"
    engine.copy_rounds.run_dry()
    assert [record.data for record in place.database.diff("copies").records] == ["late"]


@pytest.mark.claims(334)
def test_a_round_of_sources_with_nothing_to_copy_does_not_end_the_rounds(place: Place) -> None:
    engine, database = place.engine, place.database
    names = [f"idle{number}" for number in range(TURNS_A_ROUND)]
    for name in [*names, "t"]:
        database.create(name, priority=900)
    engine.core.owner.call(
        lambda: engine.routers.put("copy", router_settings({"source": "t", "dest": "copies"}))
    )
    for name in [*names, "t"]:
        database.append(name, {"data": 1})
        engine.core.route(engine.topic(name))
    engine.copy_rounds.run_dry()
    assert database.state("copies").head_seq == 1


@pytest.mark.claims(341)
def test_turns_that_come_late_are_pressure_and_fade_while_nobody_asks(place: Place) -> None:
    ready: ReadySet[Topic] = place.pressure_control.ready_set()
    topic = place.engine.topic("t")
    for _ in range(5):
        ready.mark(topic, place.clock.monotonic_us())
        place.clock.advance(5_000)
        assert ready.take(place.clock.monotonic_us()) is topic
        place.sample()
    assert place.pressure_control.governor.parts["latency"] > 0.8
    place.clock.advance(60 * 10 * SAMPLE_US)
    place.pressure_control.tick()
    assert place.pressure_control.governor.pressure < 0.001


@pytest.mark.claims(340)
def test_the_keeper_looks_when_nobody_writes_any_more(place: Place) -> None:
    with place.owner.holding():
        place.fill()
        place.sample()
    assert place.engine.core.refusing
    place.clock.advance(10 * SAMPLE_US)
    maintenance = place.engine._maintenance
    assert isinstance(maintenance, SteppedMaintenance)
    maintenance.round()
    assert not place.engine.core.refusing


@pytest.mark.claims(341)
def test_a_pool_is_as_busy_as_its_threads_were_over_time() -> None:
    pool = PoolMeter(4, 0)
    assert pool.busy(0) == 0.0
    pool.began(0)
    pool.began(50)
    pool.ended(100)
    assert pool.busy(100) == pytest.approx((100 + 50) / 400)
    for _ in range(9):
        pool.began(100)
    assert pool.busy(200) == 1.0, "more than there are threads wait, and do not work"
    for _ in range(10):
        pool.ended(200)
    assert pool.busy(300) == 0.0
