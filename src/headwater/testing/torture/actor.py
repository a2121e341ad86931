"""What every protocol's part has in common: threads during the load, a check after the start.

A worker's step says itself what an answer means; here is only what is the same for all: it goes on
until the load ends, waits a little when no server listens, and an unexpected exception ends
the run, because then the program does not know any more what it knows.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

from headwater.testing.torture.http_client import HttpClient, NoReplyError, NotSentError
from headwater.testing.torture.outcome import BrokenPromise, End, Tally, violations_of
from headwater.testing.torture.plan import random_of

AWAY_PAUSE_S = 0.02


class Closable(Protocol):
    def close(self) -> None: ...


Caller = TypeVar("Caller", bound=Closable)


@dataclass(slots=True)
class ServerPorts:
    http: int
    kafka: int
    rcpx: int


@dataclass(slots=True)
class Load:
    """The seconds of one round in which everybody works."""

    seed: int
    life: int
    round: int
    ports: ServerPorts
    data: Path
    tally: Tally
    stop: threading.Event = field(default_factory=threading.Event)
    server_left: threading.Event = field(default_factory=threading.Event)
    """Set just before the server is ended: errors afterwards are expected."""
    errors: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def random(self, *path: object) -> Random:
        return random_of(self.seed, "load", self.life, self.round, *path)

    def client(self) -> HttpClient:
        return HttpClient(self.ports.http)

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread of its own."""

        def run() -> None:
            try:
                work()
            except Exception:  # reported by the round, which ends the run
                self.errors.append(f"{name}:\n{traceback.format_exc()}")

        thread = threading.Thread(target=run, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def begin_steps(
        self, name: str, step: Callable[[HttpClient, Random], None], pause_s: float = 0.005
    ) -> None:
        """Run `step` again and again over a connection of its own."""
        self.begin_steps_of(name, self.client, step, pause_s)

    def begin_steps_of(
        self,
        name: str,
        connect: Callable[[], Caller],
        step: Callable[[Caller, Random], None],
        pause_s: float,
    ) -> None:
        """The same with any kind of connection."""
        random = self.random(name)

        def work() -> None:
            with closing(connect()) as caller:
                while not self.stop.is_set():
                    try:
                        step(caller, random)
                    except (NotSentError, NoReplyError):
                        self.stop.wait(AWAY_PAUSE_S)
                    self.stop.wait(random.uniform(0, 2 * pause_s))

        self.begin(name, work)

    def join(self, timeout_s: float) -> list[str]:
        """Names of threads that did not end."""
        until = time.monotonic() + timeout_s
        for thread in self.threads:
            thread.join(max(until - time.monotonic(), 0.01))
        return [thread.name for thread in self.threads if thread.is_alive()]


@dataclass(slots=True)
class LedgerCheck:
    """The quiet time after a start, in which actors compare."""

    load: Load
    end: End
    """How the round before it ended."""
    is_last: bool
    violations: list[BrokenPromise] = field(default_factory=list)

    def report(self, who: str, wrong: Sequence[str]) -> None:
        self.violations += violations_of(who, wrong)

    def client(self) -> HttpClient:
        return self.load.client()


class Actor:
    """One protocol. Lives as long as a data directory."""

    name = ""

    def prepare(self, load: Load) -> None:
        """Once, on a fresh server: topics and the like."""

    def begin(self, load: Load) -> None:
        """Start the threads of a round."""

    def check(self, check: LedgerCheck) -> None:
        """Compare everything that was answered so far with what is there."""

    def own(self, load: Load) -> list[str]:
        """Between two servers, when no process has the directory; what was wrong."""
        return []

    def lose_power(self, since: float) -> None:
        """Answers from `since` on (monotonic seconds) promise nothing any more."""
