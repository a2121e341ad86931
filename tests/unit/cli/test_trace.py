"""`headwater trace`: the report of what a server has kept, and of what comes while it follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from headwater.cli import trace
from headwater.cli.app import app
from headwater.client.blocking import Client
from headwater.core.results import Trace
from headwater.observe.waits import WaitCause, Waits
from headwater.testing import ManualClock
from tests.server.running_server import SMALL_ENGINE, RunningServer, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path) as server:
        yield server


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["trace", *words])
    assert done.exit_code == 0, done.output
    return done.output


def note(server: RunningServer, cause: WaitCause, *durations_ms: int) -> None:
    waits = server.app.backend.engine.core.waits
    for ms in durations_ms:
        waits.note(cause, 5_000_000, 5_000_000 + ms * 1_000, f"{ms} for a test")


def test_what_was_kept_is_reported_by_cause_with_the_longest_in_front(
    server: RunningServer,
) -> None:
    note(server, WaitCause.COMPANY, 100_000, *range(101, 200))
    note(server, WaitCause.QUEUE, 90_000)
    url = f"http://127.0.0.1:{server.port}"
    report = json.loads(run("--url", url, "--json", "--longest", "2"))
    assert [each["cause"] for each in report["causes"][:2]] == ["company", "queue"]
    company = report["causes"][0]
    assert company["count"] == 100
    assert company["total_ms"] == 100_000 + sum(range(101, 200))
    assert (company["p50_ms"], company["p99_ms"], company["max_ms"]) == (150, 199, 100_000)
    assert [each["duration_us"] for each in report["longest"]] == [100_000_000, 90_000_000]
    out = run("--url", url)
    assert "a group waited for writers" in out
    assert "100,000.0  company  100000 for a test" in out


class Server:
    """A client of a server whose waits come while its clock moves."""

    def __init__(self, clock: ManualClock) -> None:
        self.waits = Waits(clock, 1_000)
        self.asked: list[int] = []

    def trace(self, after: int = 0) -> Trace:
        self.asked.append(after)
        self.waits.note(WaitCause.SYNC, 0, 1_000 * len(self.asked))
        return self.waits.trace(after)


class HastyClock(ManualClock):
    """Every wait is over at once."""

    def wait(self, doorbell: object, until_us: int | None) -> bool:
        assert until_us is not None
        self.advance(max(until_us - self.monotonic_us(), 0))
        return False


def test_following_reports_only_what_came_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    clock = HastyClock()
    server = Server(clock)
    server.waits.note(WaitCause.SYNC, 0, 9_000_000)
    found = trace.follow(cast(Client, server), 2.5, clock, live=True)
    # One before, then after 1, 2 and 2.5 seconds.
    assert [each.duration_us for each in found.waits] == [2_000, 3_000, 4_000]
    (sync,) = [each for each in found.causes if each.cause == "sync"]
    assert (sync.count, sync.total_us) == (3, 9_000)
    assert server.asked[1:] == [2, 3, 4], "each wait is asked for once"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line] == ["2.0", "3.0", "4.0"]
    assert clock.monotonic_us() == 2_500_000


def test_a_server_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    with running(tmp_path, engine_settings=replace(SMALL_ENGINE, wait_us_min=0)) as server:
        done = CliRunner().invoke(app, ["trace", "--url", f"http://127.0.0.1:{server.port}"])
    assert "this server keeps no waits: wait_us_min is 0" in done.output
