"""`make demo` keeps its promises, tells what it found, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "examples"
WAL_DEMO = EXAMPLES / "wal_demo.py"
DEMO = EXAMPLES / "demo"


def run(tmp_path: Path, *words: str, timeout: int = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )


def servers_in(directory: Path) -> dict[int, str]:
    """Processes that still use it, with their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:  # it has ended since
            continue
        if str(directory).encode() in line:
            found[int(path.parent.name)] = line.decode(errors="replace")
    return found


def test_the_demo_of_the_log_loses_nothing_refuses_damage_and_cleans_up(tmp_path: Path) -> None:
    done = run(tmp_path, str(WAL_DEMO), "--seconds", "0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "Nothing acknowledged was lost" in done.stdout
    assert "refused: " in done.stdout
    assert "pass over: " in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_whole_demo_lands_every_event_in_a_table(tmp_path: Path) -> None:
    done = run(tmp_path, str(DEMO), "--no-wait", timeout=280)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "20,000 rows in a Delta table" in done.stdout
    assert "left out" not in done.stdout
    assert list(tmp_path.iterdir()) == []


STOPPED = "the server stopped cleanly, its directory is removed\n"


def interrupted(
    tmp_path: Path, moment: str, *words: str, server_dies: bool = False
) -> tuple[int, str]:
    """Ctrl-C when a line has these words, as a terminal sends it: to the whole group.

    Gives the exit code and everything that was said.
    """
    demo = subprocess.Popen(
        [sys.executable, "-u", str(DEMO), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if moment in line:
            if server_dies:
                (server,) = servers_in(tmp_path)
                os.kill(server, signal.SIGKILL)
            os.killpg(demo.pid, signal.SIGINT)
            break
    rest, _ = demo.communicate(timeout=60)
    told = "".join([*said, rest])
    assert "Traceback" not in told
    assert told.endswith(STOPPED) is not server_dies
    assert servers_in(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
    return demo.returncode, told


def test_the_demo_runs_to_its_report_and_waits_for_ctrl_c(tmp_path: Path) -> None:
    words = ("--events", "2000", "--skip", "spark")
    code, told = interrupted(tmp_path, "press Ctrl-C to end", *words)
    assert code == 0, told
    assert "2,000 of 2,000 pushed to a watcher" in told
    assert "2,000 readings at the same time, acks=all" in told
    assert "the same 2,000 readings were read again over HTTP" in told
    assert "packed once, none twice, none left over" in told
    assert ": placed > paid > packed > delivered" in told
    assert "400 written, 400 there, none twice" in told
    assert "left out" not in told
    assert "http://127.0.0.1:" in told.partition("dashboard")[2]


@pytest.mark.parametrize("moment", ["starting a server", "answered after", "in the middle of"])
def test_an_interrupt_in_the_middle_ends_the_demo_and_its_server(
    tmp_path: Path, moment: str
) -> None:
    """Also of a server that has not answered yet, and so knows nothing of polite ends."""
    code, told = interrupted(tmp_path, moment, "--only", "crash")
    assert code == 130, told
    assert "stopped by Ctrl-C" in told


def test_a_server_that_died_while_the_demo_waited_is_told_of_without_a_traceback(
    tmp_path: Path,
) -> None:
    words = ("--only", "crash")
    code, told = interrupted(tmp_path, "press Ctrl-C to end", *words, server_dies=True)
    assert code == 1, told
    assert "FAILED the server ended with exit code -9: " in told


def test_make_demo_in_ci_does_not_wait() -> None:
    """What it does then is run by the whole demo, above."""
    for given, expected in ((["CI=1"], "examples/demo --no-wait"), ([], "examples/demo")):
        done = subprocess.run(
            ["make", "--no-print-directory", "-n", "--assume-old=.venv/.installed", "demo", *given],
            cwd=EXAMPLES.parent,
            capture_output=True,
            text=True,
            check=True,
            env={name: value for name, value in os.environ.items() if name != "CI"},
        )
        assert done.stdout.splitlines()[-1].strip().endswith(expected)


def driver(*lines: str) -> str:
    return "\n".join(["import sys", f"sys.path.insert(0, {str(DEMO)!r})", *lines])


def test_an_interrupt_does_not_wait_for_threads_that_wait_for_ever(tmp_path: Path) -> None:
    waiting = driver(
        "import os, threading, stage",
        "try:",
        "    with stage.threads(1) as crew:",
        "        crew.submit(threading.Event().wait)",
        "        raise KeyboardInterrupt",
        "except KeyboardInterrupt:",
        "    os._exit(7)",
    )
    assert run(tmp_path, "-c", waiting, timeout=30).returncode == 7


def test_an_interrupt_ends_a_helper_that_does_not_listen_to_it(tmp_path: Path) -> None:
    """As Spark's Java: it is left alone by Ctrl-C, and by whoever ends only its parent."""
    os.mkfifo(tmp_path / "deaf")
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    deaf += f"; open({str(tmp_path / 'deaf')!r}, 'w').close(); time.sleep(300)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {deaf!r}])"
    waiting = driver("import lake", f"lake.finished([sys.executable, '-c', {child!r}])")
    demo = subprocess.Popen(
        [sys.executable, "-c", waiting], stderr=subprocess.PIPE, start_new_session=True
    )
    assert (tmp_path / "deaf").read_text(encoding="utf-8") == ""  # when it has opened the pipe
    assert servers_in(tmp_path)
    os.killpg(demo.pid, signal.SIGINT)
    _, told = demo.communicate(timeout=30)
    assert b"KeyboardInterrupt" in told
    assert servers_in(tmp_path) == {}


def test_the_demo_says_what_is_wrong_with_its_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(tmp_path, str(DEMO), "--no-wait", "--port", port, "--only", "stream")
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAILED the server ended at once: " in done.stdout
    assert port in done.stdout
    assert list(tmp_path.iterdir()) == []
