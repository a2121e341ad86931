"""What the supervisor decides, with processes and a clock that a test moves."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from headwater.core.clock import SystemClock
from headwater.observe.logs import Logger
from headwater.server.gateway.processes import ChildEnded, ProcessEvent, StopWanted
from headwater.server.gateway.supervisor import (
    BACKOFF_MAX_US,
    BACKOFF_US,
    CALM_US,
    GRACE_US,
    SEQUENCER,
    Role,
    Supervisor,
)
from headwater.server.gateway_slots import GatewaySlots

GATEWAYS = 2
Script = Sequence[ProcessEvent | int | None]


class Machine(SystemClock):
    """Processes that end when a test says so, and time that goes by when the supervisor waits."""

    def __init__(self, script: Script) -> None:
        """Of the script, a number is a wait that is over after so many microseconds, None one that
        lasts as long as the supervisor has nothing to do."""
        self.now_us = 0
        self.forks: list[tuple[int, int]] = []
        """When, and which pid it was."""
        self.killed: list[tuple[int, int]] = []
        self._script = iter(script)
        self.becomes_child_at = 0

    def monotonic_us(self) -> int:
        return self.now_us

    def fork(self) -> int:
        if self.becomes_child_at == len(self.forks) + 1:
            return 0
        pid = 101 + len(self.forks)
        self.forks.append((self.now_us, pid))
        return pid

    def kill(self, pid: int, number: int) -> None:
        self.killed.append((pid, number))

    def next_events(self, timeout_us: int | None) -> list[ProcessEvent]:
        event = next(self._script)
        if event is None:
            assert timeout_us is not None, "it waits for ever"
            self.now_us += timeout_us
            return []
        if isinstance(event, int):
            assert timeout_us is None or event <= timeout_us, "it would have waited no longer"
            self.now_us += event
            return []
        return [event]


def supervise(
    script: Script,
) -> tuple[Machine, Supervisor, GatewaySlots, list[int]]:
    machine = Machine(script)
    slots = GatewaySlots.shared_with_children(GATEWAYS)
    stopped: list[int] = []
    supervisor = Supervisor(
        slots, machine, machine, Logger("test"), lambda: stopped.append(machine.now_us)
    )
    assert supervisor.run() is None
    return machine, supervisor, slots, stopped


ALL_END: list[ProcessEvent] = [ChildEnded(pid, 0) for pid in (101, 102, 103)]


def test_it_starts_one_sequencer_and_all_gateways_and_ends_with_them() -> None:
    machine, supervisor, slots, stopped = supervise([StopWanted(), *ALL_END])
    assert [pid for _, pid in machine.forks] == [101, 102, 103]
    assert machine.killed == [(pid, signal.SIGTERM) for pid in (101, 102, 103)]
    assert (supervisor.exit_code, stopped) == (0, [0])
    assert [each.starts for each in slots] == [1, 1]


@pytest.mark.parametrize("slot", [SEQUENCER, 0, 1])
def test_a_forked_child_is_told_its_role(slot: int) -> None:
    machine = Machine([])
    machine.becomes_child_at = slot + 2
    slots = GatewaySlots.shared_with_children(GATEWAYS)
    supervisor = Supervisor(slots, machine, machine, Logger("test"), lambda: None)
    assert supervisor.run() == Role(slot)


def test_a_child_that_dies_is_started_again_at_once_and_later_when_it_dies_again() -> None:
    died: list[ProcessEvent] = [ChildEnded(pid, -signal.SIGKILL) for pid in (103, 104, 105)]
    script: list[ProcessEvent | int | None] = [
        1_000,
        died[0],
        died[1],
        None,
        died[2],
        None,
        StopWanted(),
    ]
    machine, _, slots, _ = supervise([*script, ChildEnded(106, 0), *ALL_END[:2]])
    begun = [at for at, pid in machine.forks if pid > 103]
    assert begun == [1_000, 1_000 + BACKOFF_US, 1_000 + 3 * BACKOFF_US]
    assert [each.starts for each in slots] == [1, 4]


def test_the_wait_before_a_start_has_an_end() -> None:
    script: list[ProcessEvent | int | None] = []
    for number in range(30):
        script += [ChildEnded(102 if not number else 103 + number, -9)]
        script += [None] if number else []
    machine, _, _, _ = supervise([*script, StopWanted(), ChildEnded(133, 0), *ALL_END])
    begun = [at for at, pid in machine.forks if pid > 103]
    assert begun[-1] - begun[-2] == BACKOFF_MAX_US


def test_a_child_that_was_calm_is_started_again_at_once() -> None:
    script: Script = [ChildEnded(102, -9), ChildEnded(104, -9), None, CALM_US, ChildEnded(105, -9)]
    machine, _, _, _ = supervise([*script, StopWanted(), ChildEnded(106, 0), *ALL_END])
    assert machine.forks[-1] == (BACKOFF_US + CALM_US, 106)


def test_a_sequencer_that_died_is_started_again_and_gateways_live_on() -> None:
    script: Script = [ChildEnded(101, -signal.SIGKILL), StopWanted(), ChildEnded(104, 0)]
    machine, supervisor, _, _ = supervise([*script, *ALL_END[1:]])
    assert [pid for _, pid in machine.forks] == [101, 102, 103, 104]
    assert machine.killed == [(pid, signal.SIGTERM) for pid in (104, 102, 103)]
    assert supervisor.exit_code == 0


@pytest.mark.parametrize("code", [0, 4, 5])
def test_a_sequencer_that_ends_by_itself_ends_everything_with_its_code(code: int) -> None:
    machine, supervisor, _, stopped = supervise([ChildEnded(101, code), *ALL_END[1:]])
    assert machine.killed == [(102, signal.SIGTERM), (103, signal.SIGTERM)]
    assert (supervisor.exit_code, stopped) == (code, [0])


def test_a_sequencer_that_a_stop_kills_while_it_recovers_ends_as_a_process_does() -> None:
    script: Script = [StopWanted(), ChildEnded(101, -signal.SIGTERM), *ALL_END[1:]]
    _, supervisor, _, _ = supervise(script)
    assert supervisor.exit_code == 128 + signal.SIGTERM


def test_gateways_that_do_not_end_behind_the_sequencer_are_killed() -> None:
    script: Script = [StopWanted(), StopWanted(), ALL_END[0], ALL_END[1], None, ChildEnded(103, -9)]
    machine, supervisor, _, _ = supervise(script)
    assert machine.killed[3:] == [(103, signal.SIGKILL)]
    assert machine.now_us == GRACE_US
    assert supervisor.exit_code == 0


def test_nothing_is_started_again_while_it_stops() -> None:
    machine, _, _, _ = supervise([StopWanted(), ChildEnded(102, -9), ALL_END[0], ALL_END[2]])
    assert len(machine.forks) == 3


def test_the_slot_of_a_dead_gateway_is_cleared_and_keeps_how_often_one_was_started() -> None:
    machine = Machine([ChildEnded(102, -9), StopWanted(), ChildEnded(104, 0), *ALL_END])
    slots = GatewaySlots.shared_with_children(GATEWAYS)
    for name, value in {"pid": 102, "connections": 7, "http_connections": 6, "cpu_us": 9}.items():
        slots.set(0, name, value)
        slots.set(1, name, value)
    Supervisor(slots, machine, machine, Logger("test"), lambda: None).run()
    first, _ = slots
    assert (first.pid, first.connections, first.http_connections, first.cpu_us) == (0, 0, 0, 0)
    assert first.starts == 2


def test_an_unknown_child_is_none_of_its_business() -> None:
    machine, _, _, _ = supervise([ChildEnded(999, -9), StopWanted(), *ALL_END])
    assert len(machine.forks) == 3
