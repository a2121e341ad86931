"""The order of disk calls, watched over everything the log does (see the order monitor's rules)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater.testing import (
    DROPS,
    PREFIXES,
    CrashPlan,
    OrderMonitor,
    bytes_before,
    log_rules,
    names_before,
)
from headwater.wal.ticket import Ticket
from tests.crash.matrix import tried
from tests.crash.session import DATA, FSYNC, Session, new_disk
from tests.crash.workloads import SCRIPTS, Run, patient, recorded

pytestmark = pytest.mark.crash

RULES = (*log_rules(), bytes_before("ack"), names_before("ack"))


class NotedRun(Run):
    """A monitor for each process, which is told of every fsync ack at the moment it is given.

    One for all would not do: recovery writes again what an earlier process has synced.
    """

    def session(self, *, ahead: bool = True) -> Session:
        self.disk = monitor = OrderMonitor(self.fake, RULES)
        session = super().session(ahead=ahead)
        for committer, log in zip(session.committers, session.logs, strict=True):
            tell_oracle = committer._listener

            def listen(
                tickets: Sequence[Ticket], tell: object = tell_oracle, directory: str = log.name
            ) -> None:
                if any(t.error is None and t.durability is FSYNC for t in tickets):
                    about = [p for p in monitor.ledger.files if str(p.parent) == directory]
                    monitor.note("ack", *[p for p in about if p.name.startswith("wal-")])
                assert callable(tell)
                tell(tickets)

            committer._listener = listen
        return session


@pytest.mark.parametrize("script", [*SCRIPTS, "patient"])
def test_no_call_comes_before_the_calls_it_rests_on(script: str) -> None:
    """Bytes before names, names before CURRENT, CURRENT before trim, all of it before an ack."""
    fake = new_disk()
    run = NotedRun(fake, fake)
    {**SCRIPTS, "patient": patient}[script](run)
    assert run.sessions
    for session in run.sessions:
        assert isinstance(session.disk, OrderMonitor)
        session.disk.check()
        tried("order of calls: scripts")


@pytest.mark.parametrize("script", SCRIPTS)
def test_recovery_keeps_the_order_of_calls_after_every_power_loss(script: str) -> None:
    run = recorded(script)
    for state in run.fake.crash_states(plan=CrashPlan(PREFIXES.kinds | DROPS.kinds)):
        monitor = OrderMonitor(state)
        session = Session(monitor, run.settings).open()
        if not any(shard.files for shard in session.recovered.report.shards):
            continue  # a first file that was never used may go without anything in its place
        session.append(1)
        session.append(1, 3)
        session.close()
        monitor.check()
        tried("order of calls: recoveries")


def test_the_monitor_does_see_the_files_of_the_log() -> None:
    """A rule that is shown no calls keeps quiet for ever."""
    fake = new_disk()
    monitor = OrderMonitor(fake)
    Session(monitor).open().append(1)
    assert any(path.is_relative_to(DATA / "wal") for path in monitor.ledger.files)
