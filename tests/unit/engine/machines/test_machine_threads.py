"""The store with its real threads on a real disk: many writers, one log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from headwater.api.machine_requests import ApplyEvent, CreateInstance, PutMachine
from headwater.config.machines import MachineSettings
from headwater.core.clock import SystemClock
from headwater.disk import PosixDisk
from headwater.engine.machines.store import MachineStore
from headwater.engine.owner import BatonOwner, Gate, Pending
from tests.rig.machines import ORDER

T = TypeVar("T")
SETTINGS = MachineSettings(wal_segment_bytes=256 * 1024, zero_chunk_bytes=64 * 1024)
EVENTS = ("PAY", "SHIP", "CLOSE", "AGAIN")
WRITERS = 8


class Asking:
    def __init__(self, directory: Path) -> None:
        self.owner = BatonOwner()
        self.store = MachineStore(
            PosixDisk(), directory / "machines", SETTINGS, SystemClock(), self.owner
        )

    def ask(self, work: Callable[[], Pending[T]]) -> T:
        gate = Gate()

        def start() -> Pending[T]:
            pending = work()
            if pending.done:
                gate.open()
            else:
                pending.on_done = gate.open
            return pending

        pending = self.owner.call(start)
        gate.wait()
        return pending.answer()


@pytest.mark.claims(51, 75)
def test_many_writers_share_syncs_and_all_is_there_after_a_restart(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    store = asking.store
    asking.ask(partial(store.submit, PutMachine("order", 1, ORDER)))
    rounds = 10

    def write(number: int) -> None:
        name = f"i{number}"
        asking.ask(partial(store.submit, CreateInstance("order", 1, name, {"total": 1})))
        for count in range(rounds):
            for event in EVENTS:
                asking.ask(partial(store.submit, ApplyEvent(name, event, {"count": count})))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    store.compact()
    for thread in threads:
        thread.join()
    writes = 1 + WRITERS * (1 + rounds * len(EVENTS))
    stats = store.wal_stats()
    assert stats.current_offset > 0
    assert stats.fsyncs < writes
    state = store.tables.canonical()
    assert len(state["instances"]) == WRITERS
    store.close()
    again = Asking(tmp_path).store
    assert again.tables.canonical() == state
    assert not again.report.lines()
    again.close()
