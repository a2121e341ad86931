"""When a server looks for garbage among what has lived long."""

from __future__ import annotations

import gc
from pathlib import Path

from headwater.observe.waits import Waits
from headwater.server.health.garbage import DUE_AFTER, OVERDUE_AFTER, GarbageSchedule
from headwater.testing import ManualClock
from tests.server.running_server import running


class Collector:
    """What a schedule asks of Python's own."""

    def __init__(self) -> None:
        self.thresholds = (700, 10, 10)
        self.middle = 0
        self.asked: list[str] = []

    def freeze(self) -> None:
        self.asked.append("freeze")

    def unfreeze(self) -> None:
        self.asked.append("unfreeze")

    def get_threshold(self) -> tuple[int, int, int]:
        return self.thresholds

    def set_threshold(self, *thresholds: int) -> None:
        self.thresholds = (thresholds[0], thresholds[1], thresholds[2])

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.middle

    def collect(self) -> None:
        self.asked.append("collect")
        self.middle = 0


class Server:
    def __init__(self) -> None:
        self.requests = 0
        self.collector = Collector()
        self.schedule = GarbageSchedule(lambda: self.requests, self.collector)
        self.schedule.begin(Waits(ManualClock(), 0))
        self.collector.asked.clear()

    def half_second(self, requests: int, middle: int) -> list[str]:
        self.requests += requests
        self.collector.middle += middle
        self.collector.asked.clear()
        self.schedule.check()
        return self.collector.asked


def test_a_busy_server_is_not_stopped_for_old_garbage() -> None:
    server = Server()
    assert all(server.half_second(1, 1) == [] for _ in range(OVERDUE_AFTER - 1))


def test_old_garbage_is_collected_in_the_first_quiet_moment_when_it_is_due() -> None:
    server = Server()
    assert server.half_second(5, DUE_AFTER - 1) == []
    assert server.half_second(0, 0) == [], "not due yet"
    assert server.half_second(5, 1) == [], "due, and busy"
    assert server.half_second(0, 0) == ["collect"]
    assert server.half_second(0, 0) == [], "nothing was made since"


def test_a_server_that_is_never_quiet_collects_when_very_much_was_made() -> None:
    server = Server()
    assert server.half_second(5, OVERDUE_AFTER) == ["collect"]


def test_what_recovery_made_is_out_of_sight_until_the_server_ends() -> None:
    collector = Collector()
    schedule = GarbageSchedule(lambda: 0, collector)
    schedule.begin(Waits(ManualClock(), 0))
    assert collector.asked == ["freeze"]
    assert collector.thresholds[:2] == (700, 10), "the young are collected as always"
    assert collector.thresholds[2] > 1_000_000
    schedule.end()
    schedule.end()
    assert collector.asked == ["freeze", "unfreeze"]
    assert collector.thresholds == (700, 10, 10)


def test_a_server_that_stops_leaves_the_collector_as_it_was(tmp_path: Path) -> None:
    before = gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()
    with running(tmp_path):
        assert gc.get_threshold() != before[0]
        assert gc.get_freeze_count() > 0
        assert len(gc.callbacks) == before[1] + 1
    assert (gc.get_threshold(), len(gc.callbacks), gc.get_freeze_count()) == before
