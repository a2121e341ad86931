"""A real server in a process of its own, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SERVE = "from headwater.cli import main; main()"


def clean_environment(**more: str) -> dict[str, str]:
    """Without settings of whoever runs the tests, and without ports that only one server can
    have: tests run beside each other."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    return {**kept, "HEADWATER_RCPX_PORT": "off", "HEADWATER_KAFKA_PORT": "off", **more}


class ServerProcess:
    """`with ServerProcess(directory) as server:`; `server.url` stays the same over restarts."""

    def __init__(self, directory: Path, *flags: str, **environment: str) -> None:
        self.directory = directory
        self.port = 0
        self.lines: list[str] = []
        self._flags = flags
        self._environment = clean_environment(**environment)
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it accepts requests."""
        self._process = process = subprocess.Popen(
            [
                *(sys.executable, "-c", SERVE, "serve", "--port", str(self.port)),
                *("--data-dir", str(self.directory), *self._flags),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        assert process.stdout is not None
        self.lines = []
        for line in process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("listening on "):
                self.port = int(line.split()[2].rpartition(":")[2])
                return
        raise AssertionError(f"the server did not start: {self.lines}")

    def stop(self) -> int:
        """Politely. Gives the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start()

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
        self.lines += out.splitlines()
        return process.returncode

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
