"""The installed `headwater` script, as a shell runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from tests.unit.cli.logs import flip, some_payloads, write_log

SCRIPT = Path(sys.executable).with_name("headwater")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script"),
]


def script(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=60, check=False)


def test_version_is_the_one_of_the_package() -> None:
    done = script("--version")
    assert (done.returncode, done.stdout) == (0, f"headwater {headwater.__version__}\n")


def test_verify_exits_with_zero_or_five(data: Path, wal_file: Path) -> None:
    assert script("wal", "verify", data).returncode == 0
    flip(wal_file, 200)
    done = script("wal", "verify", data)
    assert done.returncode == 5
    assert done.stderr.startswith("headwater: 1 problem in ")
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_directory_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    done = script("wal", "dump", tmp_path / "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (f"headwater: there is no directory {tmp_path}/nothing; check the path\n")


def test_a_reader_that_goes_away_is_met_with_silence(tmp_path: Path) -> None:
    write_log(tmp_path, some_payloads(500))
    with subprocess.Popen(
        [SCRIPT, "wal", "dump", tmp_path, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith('{"file":')
        running.stdout.close()
        assert running.stderr.read() == ""
        assert running.wait(timeout=60) == 141


def test_an_output_that_cannot_be_written_is_not_taken_for_success(data: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with full.open("w") as out:
        done = subprocess.run(
            [SCRIPT, "wal", "dump", data],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 5
    assert done.stderr == "headwater: the output cannot be written: No space left on device\n"


@pytest.fixture
def heeded() -> Iterator[None]:
    """Tests that a shell runs in the background ignore Ctrl-C, and their children would too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_control_c_ends_it_quietly_with_130(tmp_path: Path) -> None:
    write_log(tmp_path, some_payloads(500))
    with subprocess.Popen(
        [SCRIPT, "wal", "dump", tmp_path, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()  # it runs, and now waits for us to read on
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.stderr.read().strip() == ""
        assert running.wait(timeout=60) == 130
