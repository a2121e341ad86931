"""`headwater pipeline lake`: what it says, what it leaves, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import headwater
from headwater.cli.pipeline.lake import _seconds
from headwater.core.errors import RequestError
from tests.rig.server_process import ServerProcess, clean_environment

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(600)]
COMMAND = (sys.executable, "-c", "from headwater.cli import main; main()", "pipeline", "lake")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def start(server: ServerProcess, root: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "--url", server.url, "--topic", "orders", "--table", "orders", *flags],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )


def run(server: ServerProcess, root: Path, *flags: str) -> tuple[int, str, str]:
    process = start(server, root, *flags)
    said, complained = process.communicate(timeout=400)
    return process.returncode, said, complained


@pytest.mark.slow
def test_the_command_lands_replays_and_refuses(server: ServerProcess, tmp_path: Path) -> None:
    with headwater.Client(server.url) as client:
        client.append("orders", [{"data": {"amount": 1}}, {"data": {"amount": "two"}}])
    code, said, complained = run(server, tmp_path, "--fields", "amount long", "--json")
    assert code == 0, complained
    report: dict[str, Any] = json.loads(said)
    assert (report["rows"], report["dead_letters"], report["lag"]) == (1, 1, 0)
    assert (tmp_path / "orders-checkpoint").is_dir()

    with headwater.Client(server.url) as client:
        client.append("orders", {"data": {"amount": 3}})
    code, said, complained = run(server, tmp_path, "--fields", "amount string")
    assert code == 2, said
    assert "'amount' of" in complained
    assert "MicroBatchExecution" not in complained

    wider = ("--fields", "amount long, note string")
    code, said, complained = run(server, tmp_path, *wider, "--replay-dead-letters")
    assert code == 0, complained
    assert "0 dead letters are rows" in said
    assert "1 still do not fit" in said


@pytest.mark.slow
def test_a_job_that_goes_on_ends_when_it_is_told_to(server: ServerProcess, tmp_path: Path) -> None:
    with headwater.Client(server.url) as client:
        client.append("orders", [{"data": n} for n in range(10)])
        process = start(server, tmp_path, "--every", "200ms", "--json")
        _wait(lambda: _count(tmp_path / "orders") == 10, process)
        client.append("orders", [{"data": n} for n in range(5)])
        _wait(lambda: _count(tmp_path / "orders") == 15, process)
    process.send_signal(signal.SIGTERM)
    said, complained = process.communicate(timeout=200)
    assert process.returncode == 0, complained
    assert json.loads(said)["rows"] == 15


def _count(table: Path) -> int:
    return DeltaTable(table).count() if DeltaTable.is_deltatable(str(table)) else 0


def _wait(condition: Any, process: subprocess.Popen[str]) -> None:
    pause = threading.Event()
    for _ in range(3_000):
        if condition():
            return
        assert process.poll() is None, process.communicate()[1]
        pause.wait(0.1)
    process.kill()
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10.0), ("1.5m", 90.0), ("2h", 7_200.0)]
)
def test_a_time_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert _seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["10", "s", "10 days", "-1s"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match="500ms, 10s, 5m or 1h"):
        _seconds(text)
