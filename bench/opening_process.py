"""A process of its own that fills or opens a database: for start times and memory nobody else uses.

    python -m bench.opening_process fill DIR FILE_BYTES RECORDS          ends by SIGKILL
    python -m bench.opening_process open DIR FILE_BYTES STARTED_NS END   END is 'close' or 'kill'

FILE_BYTES is the length of a log file.

`open` prints one line of JSON: seconds since STARTED_NS, on the clock all processes share, and
memory that is this process's alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

import headwater
from bench.embedded import TOPIC, check_page, fill, settings_with
from bench.log_under_test import WrongResultError
from bench.registry import Run
from headwater.core.units import KIB

START_TIMEOUT_S = 300


class Opened(msgspec.Struct):
    """What one start was like."""

    opened_s: float
    """The interpreter, the imports and `headwater.open`."""
    answered_s: float
    """All of it and the first read."""
    memory_opened: int
    memory_answered: int
    topics: int
    records: int
    index_bytes: int
    frames_replayed: int


def own_memory() -> int:
    """Bytes of this process that are not pages of files."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KIB
    raise RuntimeError("this kernel does not tell RssAnon")


def run_process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.opening_process", *words],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_TIMEOUT_S,
    )


def fill_and_kill(run: Run, directory: Path, records: int) -> None:
    """As if the power of the process had gone right after the last acknowledgement."""
    done = run_process("fill", str(directory), str(run.file_bytes), str(records))
    if done.returncode != -signal.SIGKILL:
        raise WrongResultError(f"filling failed: {done.stderr}")


def open_in_process(run: Run, directory: Path, *, end: str = "close") -> Opened:
    started = str(time.monotonic_ns())
    done = run_process("open", str(directory), str(run.file_bytes), started, end)
    if done.returncode not in (0, -signal.SIGKILL):
        raise WrongResultError(f"opening failed: {done.stderr}")
    return msgspec.json.decode(done.stdout, type=Opened)


def _fill(directory: str, file_bytes: str, records: str) -> None:
    database = headwater.open(directory, settings=settings_with(int(file_bytes)))
    fill(database, int(records))
    os.kill(os.getpid(), signal.SIGKILL)


def _open(directory: str, file_bytes: str, started_ns: str, end: str) -> None:
    database = headwater.open(directory, settings=settings_with(int(file_bytes)))
    opened_ns, memory_opened = time.monotonic_ns(), own_memory()
    topics = len(database.engine.core.registry)
    records = index_bytes = 0
    if database.engine.find(TOPIC) is not None:
        head = database.state(TOPIC).head_seq
        diff = database.diff(TOPIC, max(head - 100, 0), limit=100)
        check_page(diff.records, max(head - 100, 0) + 1)
        records = database.state(TOPIC).count
        index_bytes = database.engine.topic(TOPIC).log.index.memory_bytes
    else:
        database.topics("no-such-topic")
    answered_ns = time.monotonic_ns()
    started = int(started_ns)
    facts: Mapping[str, Any] = {
        "opened_s": (opened_ns - started) / 1e9,
        "answered_s": (answered_ns - started) / 1e9,
        "memory_opened": memory_opened,
        "memory_answered": own_memory(),
        "topics": topics,
        "records": records,
        "index_bytes": index_bytes,
        "frames_replayed": database.engine.notes.frames_replayed,
    }
    print(json.dumps(facts), flush=True)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    database.close()


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {"fill": _fill, "open": _open}
    verbs[sys.argv[1]](*sys.argv[2:])
