"""`headwater serve` in a process of its own: started, killed, started again, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

START_S = 60
STOP_S = 30
LOOK_EVERY_S = 0.02


class ServerError(Exception):
    """The server did not start or stop as it should; the message has its last words."""


class Server:
    """Keeps its ports over restarts, so that clients find it again."""

    def __init__(self, scratch: Path, port: int = 0) -> None:
        self.data = scratch / "data"
        self.ports: dict[str, int] = {"http": port, "kafka": 0, "rcpx": 0}
        self._port_file = scratch / "ports.json"
        self._log_path = scratch / "server.log"
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "headwater", "serve", "--data-dir", str(self.data)),
            *("--port", str(self.ports["http"]), "--port-file", str(self._port_file)),
            *("--kafka-port", str(self.ports["kafka"]), "--rcpx-port", str(self.ports["rcpx"])),
        ]

    def start(self) -> float:
        """Gives the seconds until it answered."""
        self._port_file.unlink(missing_ok=True)
        self._log = self._log_path.open("ab")
        # Ctrl-C goes to the whole group of a terminal; the demo decides when the server ends.
        started = time.monotonic()
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=clean_environment(),
        )
        while not self._port_file.exists():
            if self._process.poll() is not None:
                self._process = None
                raise ServerError(f"the server ended at once: {self.last_words()}")
            if time.monotonic() - started > START_S:
                raise ServerError(f"the server is not ready after {START_S} s: {self.last_words()}")
            time.sleep(LOOK_EVERY_S)
        self.ports |= json.loads(self._port_file.read_text(encoding="utf-8"))
        self._answers = True
        return time.monotonic() - started

    def kill(self) -> None:
        """No warning, no clean stop."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        answered = self._answers
        code = self._end(signal.SIGTERM)
        # One that is not there yet knows nothing of polite ends.
        if code and (answered or code != -signal.SIGTERM):
            raise ServerError(f"the server ended with exit code {code}: {self.last_words()}")

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        self._answers = False
        if process is None:
            return 0
        process.send_signal(number)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if self._log is not None:
            self._log.close()
        return code

    def last_words(self) -> str:
        text = self._log_path.read_text(encoding="utf-8", errors="replace")
        return " | ".join(text.splitlines()[-4:])


def clean_environment() -> dict[str, str]:
    """Without settings of whoever runs the demo."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
