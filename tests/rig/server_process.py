"""A real server in a process of its own, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

SERVE = "from headwater.cli import main; main()"


TEST_WORKERS = "HEADWATER_TEST_WORKERS"
"""So many gateways are given to servers of tests; without it they are one process each."""


def workers_wanted() -> int:
    return int(os.environ.get(TEST_WORKERS, "0"))


def clean_environment(**more: str) -> dict[str, str]:
    """Without settings of whoever runs the tests, and without ports that only one server can
    have: tests run beside each other."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    chosen = {"HEADWATER_RCPX_PORT": "off", "HEADWATER_KAFKA_PORT": "off"}
    if workers_wanted():
        chosen["HEADWATER_WORKERS"] = str(workers_wanted())
    return {**kept, **chosen, **more}


class ServerProcess:
    """`with ServerProcess(directory) as server:`; `server.url` stays the same over restarts."""

    def __init__(self, directory: Path, *flags: str, **environment: str) -> None:
        self.directory = directory
        self.port = 0
        self.lines: list[str] = []
        self._flags = flags
        self._environment = clean_environment(**environment)
        self._process: subprocess.Popen[str] | None = None
        self._collecting: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def children(self) -> list[int]:
        """With workers: pids of the sequencer and the gateways, in the order of their starts."""
        assert self._process is not None
        pid = self._process.pid
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(each) for each in listed.split()]

    @property
    def roles(self) -> tuple[int, list[int]]:
        """With workers: the pid of the sequencer, and those of the gateways."""
        sequencer = int((self.directory / "LOCK").read_text())
        return sequencer, [pid for pid in self.children if pid != sequencer]

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
            start_new_session=True,
        )
        assert process.stdout is not None
        self.lines = []
        for line in process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("listening on "):
                self.port = int(line.split()[2].rpartition(":")[2])
                self._collecting = threading.Thread(target=self._collect, args=(process.stdout,))
                self._collecting.start()
                return
        raise AssertionError(f"the server did not start: {self.lines}")

    def stop(self) -> int:
        """Politely. Gives the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def kill_supervisor(self) -> int:
        """Not the others, whose end is waited for."""
        return self._end(signal.SIGKILL, alone=True)

    def restart(self, *, kill: bool = False) -> None:
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start()

    def _end(self, number: int, *, alone: bool = False) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if number == signal.SIGKILL and not alone:
            os.killpg(process.pid, number)  # with workers it is several processes
        else:
            process.send_signal(number)
        code = process.wait(60)
        if self._collecting is not None:
            self._collecting.join(60)  # ends with the last process that has the output
        return code

    def _collect(self, output: IO[str]) -> None:
        """A server that tells much must not wait for a reader."""
        with output:
            for line in output:
                self.lines.append(line.rstrip())

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
