"""The keeper goes on, whatever his work fails with."""

from __future__ import annotations

import threading

from headwater.core.clock import SystemClock
from headwater.engine.maintenance.housekeeping import MaintenanceThread

PATIENCE_S = 30.0


def test_a_round_that_fails_in_an_unforeseen_way_is_not_the_last_one() -> None:
    failures = [RuntimeError("a mistake"), OSError("a disk"), None]
    rounds = threading.Semaphore(0)
    seen: list[Exception | None] = []

    def work() -> None:
        seen.append(maintenance.error)
        rounds.release()
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure

    maintenance = MaintenanceThread(SystemClock(), 1, work)
    maintenance.start()
    try:
        for _ in range(4):
            assert rounds.acquire(timeout=PATIENCE_S)
    finally:
        maintenance.stop()
    assert [type(error) for error in seen[:4]] == [type(None), RuntimeError, OSError, type(None)]
