"""The process that the user started: it starts the others, starts them again, and ends them.

It has no thread, no event loop and no connection, so there is little in it that can fail. A child
becomes what it is to be by returning from `Supervisor.run` in a process of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from headwater.core.clock import Clock
from headwater.core.units import US_PER_MS, US_PER_S
from headwater.observe.logs import Logger
from headwater.server.gateway.processes import ChildEnded, Processes
from headwater.server.gateway_slots import GatewaySlots

SEQUENCER: Final = -1
CALM_US: Final = 10 * US_PER_S
"""A child that lived so long starts again at once when it dies."""
BACKOFF_US: Final = 100 * US_PER_MS
BACKOFF_MAX_US: Final = US_PER_S
GRACE_US: Final = 3 * US_PER_S
"""What gateways may take to end behind the sequencer; then they are killed."""
_SIGNALLED: Final = 128
"""A shell's way to give a signal's number as an exit code."""


class Role(NamedTuple):
    slot: int
    """Of a gateway; `SEQUENCER` for the other one."""

    @property
    def name(self) -> str:
        return "sequencer" if self.slot == SEQUENCER else f"gateway {self.slot}"


@dataclass(slots=True)
class Child:
    role: Role
    pid: int = 0
    """0 when it does not run."""
    started_us: int = 0
    failures: int = 0
    """Since it was calm."""
    due_us: int = 0
    """When it is to be started."""


class Supervisor:
    def __init__(
        self,
        slots: GatewaySlots,
        processes: Processes,
        clock: Clock,
        log: Logger,
        on_stop: Callable[[], None],
    ) -> None:
        """`on_stop`: no connection is to get in any more."""
        self._slots = slots
        self._processes = processes
        self._now_us = clock.monotonic_us
        self._log = log
        self._on_stop = on_stop
        roles = [Role(SEQUENCER), *map(Role, range(len(slots)))]
        self._children = [Child(role) for role in roles]
        self._is_stopping = False
        self._kill_us: int | None = None
        """When gateways that did not end are killed."""
        self.exit_code = 0

    def run(self) -> Role | None:
        """In a child, what it is to be; None in the supervisor, when all have ended."""
        while True:
            role = self._start_due()
            if role is not None:
                return role
            if self._is_stopping and not self._running:
                return None
            for event in self._processes.next_events(self._wait_us()):
                if isinstance(event, ChildEnded):
                    self._child_ended(event)
                else:
                    self.stop()
            self._kill_late()

    @property
    def _running(self) -> list[Child]:
        return [child for child in self._children if child.pid]

    def _start_due(self) -> Role | None:
        if self._is_stopping:
            return None
        now_us = self._now_us()
        for child in self._children:
            if child.pid or child.due_us > now_us:
                continue
            child.pid, child.started_us = self._processes.fork(), now_us
            if child.pid == 0:
                return child.role
            if child.role.slot != SEQUENCER:
                self._slots.add(child.role.slot, "starts", 1)
        return None

    def _wait_us(self) -> int | None:
        """Until something is to be done here; None if only a child or a user can say."""
        times = [child.due_us for child in self._children if not child.pid]
        if self._is_stopping:
            times = [] if self._kill_us is None else [self._kill_us]
        return min(times) - self._now_us() if times else None

    def _child_ended(self, ended: ChildEnded) -> None:
        child = next((each for each in self._children if each.pid == ended.pid), None)
        if child is None:
            return
        child.pid = 0
        is_sequencer = child.role.slot == SEQUENCER
        if not is_sequencer:
            self._slots.clear(child.role.slot)
        if is_sequencer and (self._is_stopping or ended.code >= 0):
            self.exit_code = ended.code if ended.code >= 0 else _SIGNALLED - ended.code
            self.stop()
            self._kill_us = self._now_us() + GRACE_US
        elif not self._is_stopping:
            self._start_later(child, ended)

    def _start_later(self, child: Child, ended: ChildEnded) -> None:
        """The first failure may be anything; what fails again and again is given time."""
        now_us = self._now_us()
        was_calm = now_us - child.started_us >= CALM_US
        child.failures = 1 if was_calm else child.failures + 1
        delay_us = 0
        if child.failures > 1:
            delay_us = min(BACKOFF_US << min(child.failures - 2, 16), BACKOFF_MAX_US)
        child.due_us = now_us + delay_us
        self._log.warning(
            "a process ended and is started again",
            process=child.role.name,
            pid=ended.pid,
            cause=_cause(ended.code),
            after_ms=delay_us // US_PER_MS,
        )

    def stop(self) -> None:
        """Let all of them finish what is under way."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._on_stop()
        for child in self._running:
            self._processes.kill(child.pid, signal.SIGTERM)

    def _kill_late(self) -> None:
        if self._kill_us is not None and self._now_us() >= self._kill_us:
            for child in self._running:
                self._log.warning("a process did not end and is killed", process=child.role.name)
                self._processes.kill(child.pid, signal.SIGKILL)
            self._kill_us = self._now_us() + GRACE_US


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
