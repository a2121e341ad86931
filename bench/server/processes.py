"""Headwater and Redis as processes of their own: started, watched, and ended by their pid."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from bench.log_under_test import WrongResultError
from bench.server.clients import Http, Redis
from headwater.core.units import KIB

INSTALL = "apt-get install redis-server wrk"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
LOOK_EVERY_S = 0.002
_TICKS = os.sysconf("SC_CLK_TCK")


def has_redis() -> bool:
    return bool(shutil.which("redis-server") and shutil.which("redis-benchmark"))


def clean_environment() -> dict[str, str]:
    """Without settings of whoever runs the benchmark, and without ports that it does not need.

    Modules may be compiled once, as they are wherever pip has installed them.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "HEADWATER_RCPX_PORT": "off", "HEADWATER_KAFKA_PORT": "off"}


def cpu_s_of(pid: int) -> float:
    """CPU seconds of all threads of a process, in user and system mode."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def family_cpu_s_of(pid: int) -> float:
    """The same with all processes below it, those that live and those that have ended.

    One that has ended is in its parent's sum only when the parent has taken note of it, which may
    be a moment after its client was told: until then it is looked at itself.
    """
    before = _family(pid)
    while True:
        again = _family(pid)
        if {member: noted for member, (_, noted) in before.items()} == {
            member: noted for member, (_, noted) in again.items()
        }:  # nobody changed from one sum to the other
            return sum(map(sum, again.values())) / _TICKS
        before = again


def _family(pid: int) -> dict[int, tuple[int, int]]:
    """Process and all below it -> ticks of its own, and of children that it has taken note of."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # gone since it was listed
            continue
        member = int(path.parent.name)
        own_user, own_system, user, system = map(int, fields[11:15])
        ticks[member] = own_user + own_system, user + system
        below.setdefault(int(fields[1]), []).append(member)
    if pid not in ticks:
        raise ProcessLookupError(f"process {pid} has ended")
    members = [pid]
    for member in members:  # grows while it is walked
        members += below.get(member, [])
    return {member: ticks[member] for member in members}


class ServerProcess(ABC):
    """`with server:` starts it and ends it. `server.started_s` is how long it took to answer."""

    name = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = 0
        self.started_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """How it is started."""

    @abstractmethod
    def is_ready(self) -> bool:
        """It answers, and with its records."""

    def start(self) -> None:
        self._output = (self.directory / "output.txt").open("ab")
        started = time.perf_counter()
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=clean_environment(),
        )
        while not self._answers():
            if self._process.poll() is not None:
                raise WrongResultError(f"{self.name} ended: {self.last_words()}")
            if time.perf_counter() - started > START_TIMEOUT_S:
                self.end(signal.SIGKILL)
                raise WrongResultError(f"{self.name} did not start: {self.last_words()}")
            time.sleep(LOOK_EVERY_S)
        self.started_s = time.perf_counter() - started

    def _answers(self) -> bool:
        try:
            return self.is_ready()
        except (OSError, EOFError, ValueError):
            return False

    def last_words(self) -> str:
        text = (self.directory / "output.txt").read_text(encoding="utf-8", errors="replace")
        return " | ".join(text.splitlines()[-5:])

    def end(self, number: int = signal.SIGTERM) -> None:
        """Ends this process and no other, by its id; waits until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._output is not None:
            self._output.close()

    def kill(self) -> None:
        """All of its processes at once, it first: what it holds is needed no longer."""
        members = _family(self.pid)
        self.end(signal.SIGKILL)
        for member in members:
            with suppress(ProcessLookupError):  # the one above, or ended with it
                os.kill(member, signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Of all its processes."""
        return family_cpu_s_of(self.pid)

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * KIB
        return 0

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class HeadwaterServer(ServerProcess):
    """`headwater serve`, on a free port of the loopback interface.

    With its defaults, but for `options` that are named.
    """

    name = "Headwater"

    def __init__(self, directory: Path, options: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._options = options

    @property
    def command(self) -> list[str]:
        return [
            *(sys.executable, "-c", "from headwater.cli import main; main()", "serve"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--data-dir", str(self.directory / "data")),
            *("--port-file", str(self._port_file), "--log-level", "warning"),
            *self._options,
        ]

    @property
    def _port_file(self) -> Path:
        return self.directory / "port.json"

    def start(self) -> None:
        self._port_file.unlink(missing_ok=True)
        super().start()

    def is_ready(self) -> bool:
        if not self._port_file.exists():  # written once it is ready to accept
            return False
        self.port = json.loads(self._port_file.read_text(encoding="utf-8"))["http"]
        with Http(self.port) as http:
            return bool(http.call("GET", "/v0/ready")["status"] == "ok")


class RedisServer(ServerProcess):
    """Redis with an append-only file that is synced before every answer, and nothing else.

    With more than one of its threads for input and output if `io_threads` says so.
    """

    name = "Redis"

    def __init__(self, directory: Path, io_threads: int = 1) -> None:
        super().__init__(directory)
        self._io_threads = io_threads
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def command(self) -> list[str]:
        return [
            *("redis-server", "--bind", "127.0.0.1", "--port", str(self.port)),
            *("--dir", str(self.directory), "--appendonly", "yes", "--appendfsync", "always"),
            *("--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no"),
            *(("--io-threads", str(self._io_threads)) if self._io_threads > 1 else ()),
        ]

    def is_ready(self) -> bool:
        with Redis(self.port) as redis:
            return bool(redis.call("PING") == b"PONG")  # an error while it is loading


def versions() -> list[str]:
    """What is measured with and against, in its own words."""
    told = []
    for command in (["redis-server", "--version"], ["wrk", "--version"]):
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            words = (done.stdout or done.stderr).splitlines()[0].split()
            told.append(" ".join(words[:3]))
        else:
            told.append(f"no {command[0]} here: {INSTALL}")
    return told
