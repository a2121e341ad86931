"""What an empty server costs: time to its first answer, CPU, memory, modules that it loaded."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.registry import Row, Run, benchmark
from headwater.core.units import KIB

ROUNDS: Final = 9
START_S_MAX: Final = 60.0
SETTLE_S: Final = 2.5
"""After the first answer, for what a server does in the background."""
COMMAND: Final = (
    "import atexit, sys; atexit.register(lambda: print('MODULES', len(sys.modules),"
    " sum(name.split('.')[0] == 'headwater' for name in sys.modules)));"
    "from headwater.cli import main; main()"
)
FLOOR: Final = (
    "import time, asyncio, uvloop, msgspec, httptools;"
    "print('listening on http://none:0', flush=True); time.sleep(30)"
)


class Start(NamedTuple):
    ready_ms: float
    cpu_ms: float
    rss_mib: float
    settled_cpu_ms: float
    settled_rss_mib: float
    modules: int
    own_modules: int


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / KIB


def start_once(program: str, flags: list[str]) -> Start:
    began = time.perf_counter()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen(
        [sys.executable, "-c", program, *flags], stdout=subprocess.PIPE, text=True, env=kept
    ) as server:
        assert server.stdout is not None
        lines = iter(server.stdout)
        address = next(line.split()[2] for line in lines if line.startswith("listening on "))
        port = int(address.rpartition(":")[2])
        if port:
            _answer(port)
        ready_ms = (time.perf_counter() - began) * 1_000
        first = _cpu_ms(server.pid), _rss_mib(server.pid)
        time.sleep(SETTLE_S)
        settled = _cpu_ms(server.pid), _rss_mib(server.pid)
        server.terminate()
        counts = [line.split()[1:] for line in lines if line.startswith("MODULES")]
    modules, own = map(int, counts[0]) if counts else (0, 0)
    return Start(ready_ms, *first, *settled, modules, own)


def _answer(port: int) -> None:
    with closing(HTTPConnection("127.0.0.1", port, timeout=START_S_MAX)) as http:
        http.request("GET", "/readyz")
        answer = http.getresponse()
        assert answer.status == 200, answer.read()


def empty_server() -> Start:
    with TemporaryDirectory() as directory:
        data = str(Path(directory) / "data")
        ports = ["--port", "0", "--kafka-port", "0", "--rcpx-port", "0"]
        return start_once(COMMAND, ["serve", "--data-dir", data, *ports])


def bare_loop() -> Start:
    """What no server on this loop can be below."""
    return start_once(FLOOR, [])


@benchmark("start", "What does an empty server cost, before anyone comes?")
def start(run: Run) -> list[Row]:
    contenders: dict[str, Callable[[], Start]] = {
        "empty server": empty_server,
        "asyncio, uvloop, msgspec, httptools alone": bare_loop,
    }
    starts: dict[str, list[Start]] = {name: [] for name in contenders}
    for turn in range(run.size(ROUNDS, 1)):
        order = list(contenders) if turn % 2 == 0 else list(contenders)[::-1]
        for name in order:
            starts[name].append(contenders[name]())
    return [row for name, own in starts.items() for row in _rows(name, own)]


def _rows(name: str, starts: list[Start]) -> list[Row]:
    middle = Start(*(statistics.median(column) for column in zip(*starts, strict=True)))
    told = {
        "payload": "none",
        "durability": "fsync",
        "modules": f"{middle.modules}, of them ours {middle.own_modules}",
        "CPU when it has settled": f"{middle.settled_cpu_ms:.0f} ms",
        "memory then": f"{middle.settled_rss_mib:.1f} MiB",
    }
    return [
        Row(f"{name}, to the first answer", middle.ready_ms, "ms", told),
        Row(f"{name}, CPU until then", middle.cpu_ms, "ms", told),
        Row(f"{name}, memory then", middle.rss_mib, "MiB", told),
    ]
