"""The server as a process of its own, from outside: start, kill, stop, pause, shift its clock."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headwater.testing.torture import server_process

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.02


class ServerFailedError(Exception):
    """It did not start, or ended by itself. Always worth a report."""


def free_ports(count: int) -> list[int]:
    """Ports that are free now; the server comes back to them after each start."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


class ServerUnderTest:
    def __init__(self, work: Path) -> None:
        self.http_port, self.kafka_port, self.rcpx_port = free_ports(3)
        self.log = work / "server.log"
        self._port_file = work / "ports.json"
        self._shift_file = work / "clock-shift"
        self.shift_clock(0)
        self._process: subprocess.Popen[bytes] | None = None
        self._alive = -1
        """The read end of a pipe that all processes of the server have: it ends with the last."""
        self.shift_max_ms = 0
        self.starts = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def shift_clock(self, shift_ms: int) -> None:
        with open(self._shift_file, "r+b" if self._shift_file.exists() else "wb") as file:
            file.write(server_process.packed_shift(shift_ms))
        self.shift_max_ms = max(getattr(self, "shift_max_ms", 0), shift_ms)

    def begin(self, data: Path, flags: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it without waiting."""
        self._port_file.unlink(missing_ok=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")
        }
        words = [sys.executable, "-m", "headwater.testing.torture.server_process", "serve"]
        words += ["--port", str(self.http_port), "--kafka-port", str(self.kafka_port)]
        words += ["--rcpx-port", str(self.rcpx_port), "--port-file", str(self._port_file)]
        words += ["--data-dir", str(data), *flags]
        self.starts += 1
        self._alive, has_alive = os.pipe()
        with open(self.log, "ab") as log, open(has_alive, "wb"):
            log.write(f"--- start {self.starts}: {' '.join(words[4:])}\n".encode())
            self._process = subprocess.Popen(
                words,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**kept, **environment, server_process.SHIFT_FILE: str(self._shift_file)},
                pass_fds=(has_alive,),
                start_new_session=True,
            )

    def wait_until_ready(self) -> float:
        """Seconds it took."""
        began = time.monotonic()
        while time.monotonic() - began < START_TIMEOUT_S:
            assert self._process is not None
            if self._process.poll() is not None:
                raise ServerFailedError(
                    f"the server ended with exit code {self._process.returncode} while starting"
                )
            if self._port_file.exists():
                json.loads(self._port_file.read_text(encoding="utf-8"))
                return time.monotonic() - began
            time.sleep(POLL_S)
        raise ServerFailedError(f"the server was not ready after {START_TIMEOUT_S:.0f} s")

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is not None:
            raise ServerFailedError(f"the server ended by itself, exit code {process.returncode}")
        self._end(process)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._end(process)
            raise ServerFailedError(f"SIGTERM was not obeyed in {STOP_TIMEOUT_S:.0f} s") from None
        self._wait_for_all()
        if code != 0:
            raise ServerFailedError(f"a polite stop ended with exit code {code}")

    def abandon(self) -> None:
        """At the end of everything, whatever state it is in."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """With workers it is several processes, and the last to go has the directory's lock."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_TIMEOUT_S)
        self._wait_for_all()

    def _wait_for_all(self) -> None:
        alive, self._alive = self._alive, -1
        with open(alive, "rb") as pipe:
            pipe.read()

    def pause(self, seconds: float, until: threading.Event) -> None:
        """Neither dead nor alive for a while."""
        process = self._process
        if process is None:
            return
        for number, wait_s in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0.0)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            until.wait(wait_s)

    def last_lines(self, count: int) -> list[str]:
        if not self.log.exists():
            return []
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return [line.rstrip() for line in deque(log, maxlen=count)]
