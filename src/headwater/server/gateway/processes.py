"""Forking, signals and the ends of children, as the supervisor sees them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final, Protocol

_WANTED: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class StopWanted:
    """A signal says so."""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    pid: int
    code: int
    """Its exit code, or a signal's number below zero."""


ProcessEvent = StopWanted | ChildEnded


class Processes(Protocol):
    def fork(self) -> int:
        """0 in the child, its pid in the supervisor."""

    def kill(self, pid: int, number: int) -> None: ...

    def next_events(self, timeout_us: int | None) -> list[ProcessEvent]:
        """What has happened, when something has or when time is over."""


class ForkedProcesses:
    """Those of the operating system. Signals wait until they are asked for."""

    def __init__(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WANTED)

    def fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            # A terminal sends Ctrl-C to all of them; the supervisor says what it means.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return pid

    def kill(self, pid: int, number: int) -> None:
        os.kill(pid, number)

    def next_events(self, timeout_us: int | None) -> list[ProcessEvent]:
        if timeout_us is None:
            caught = signal.sigwait(_WANTED)
        else:
            info = signal.sigtimedwait(_WANTED, max(timeout_us, 0) / 1_000_000)
            if info is None:
                return []
            caught = signal.Signals(info.si_signo)
        return self._ended() if caught == signal.SIGCHLD else [StopWanted()]

    def _ended(self) -> list[ProcessEvent]:
        """Signals of the same kind are merged: several may have ended."""
        ended: list[ProcessEvent] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            ended.append(ChildEnded(pid, os.waitstatus_to_exitcode(status)))
