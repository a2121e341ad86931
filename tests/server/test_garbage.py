"""When a server looks for garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headwater.core.units import US_PER_S
from headwater.observe.waits import Waits
from headwater.server.health.garbage import (
    DUE_AFTER_US,
    OVERDUE_AFTER_US,
    YOUNG_EVERY_S,
    GarbageSchedule,
)
from headwater.testing import ManualClock
from tests.server.running_server import eventually, running

YOUNG = ["collect 0", "freeze"]
EVERYTHING = ["unfreeze", "collect", "freeze"]
CHECK_US = US_PER_S // 2


class Collector:
    """What a schedule asks of Python's own."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def ask(*arguments: int) -> None:
            self.asked.append(" ".join([name, *map(str, arguments)]))

        return ask


class Server:
    """A server whose requests and time are the test's."""

    def __init__(self) -> None:
        self.requests = 0
        self.clock = ManualClock()
        self.collector = Collector()
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.schedule = GarbageSchedule(
            lambda: self.requests, self.clock, self, collector=self.collector
        )
        self.schedule.begin(Waits(self.clock, 0))

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.timers.append((delay, callback))

    def asked(self) -> list[str]:
        asked, self.collector.asked = self.collector.asked, []
        return asked

    def check(self, requests: int) -> list[str]:
        self.asked()
        self.requests += requests
        self.clock.advance(CHECK_US)
        self.schedule.check()
        return self.asked()

    def tick(self) -> list[str]:
        self.asked()
        ((delay, callback),) = self.timers
        assert delay == YOUNG_EVERY_S
        self.timers.clear()
        callback()
        return self.asked()


def test_what_recovery_made_is_put_out_of_sight_and_pythons_own_schedule_is_off() -> None:
    server = Server()
    assert server.asked() == ["disable", "freeze"]
    server.schedule.end()
    assert server.asked() == ["unfreeze", "enable"]
    server.schedule.end()
    assert server.asked() == []


def test_while_requests_come_the_young_are_collected_every_20_ms() -> None:
    server = Server()
    assert server.check(5) == YOUNG
    assert [server.tick() for _ in range(30)] == [YOUNG] * 30
    server.check(5)
    assert len(server.timers) == 1, "one timer, however often it is checked"


def test_an_idle_server_has_no_timer() -> None:
    server = Server()
    assert server.check(0) == YOUNG
    assert not server.timers
    server.check(1)
    assert server.check(0) == YOUNG
    assert server.tick() == []
    assert not server.timers


def test_everything_is_collected_in_the_first_quiet_moment_when_it_is_due() -> None:
    server = Server()
    for _ in range(DUE_AFTER_US // CHECK_US):
        assert server.check(1) == YOUNG
    assert server.check(0) == YOUNG, "one check is no moment"
    assert server.check(0) == EVERYTHING
    assert server.check(0) == YOUNG, "not due again"


def test_a_server_that_is_never_quiet_collects_everything_when_it_is_overdue() -> None:
    server = Server()
    checks = [server.check(1) for _ in range(OVERDUE_AFTER_US // CHECK_US)]
    assert checks[:-1] == [YOUNG] * (len(checks) - 1)
    assert checks[-1] == EVERYTHING


def test_a_stopped_server_has_no_timer() -> None:
    server = Server()
    server.check(1)
    server.schedule.end()
    assert server.tick() == []
    assert not server.timers


class Circle:
    """Garbage that only the collector finds."""

    def __init__(self, gone: list[bool]) -> None:
        self.me = self
        self.gone = gone

    def __del__(self) -> None:
        self.gone.append(True)


def test_a_running_server_finds_garbage_and_leaves_the_collector_as_it_was(tmp_path: Path) -> None:
    callbacks = len(gc.callbacks)
    gone: list[bool] = []
    with running(tmp_path) as server:
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert len(gc.callbacks) == callbacks + 1
        with server.talk() as http:
            server.inside(partial(Circle, gone))
            http.write("busy", 1)
            eventually(lambda: gone)
    assert (gc.isenabled(), len(gc.callbacks), gc.get_freeze_count()) == (True, callbacks, 0)
