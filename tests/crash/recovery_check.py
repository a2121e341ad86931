"""The judgement every crash state meets: recover, compare, recover again, go on writing."""

from __future__ import annotations

from headwater.config.wal import WalSettings
from headwater.testing import FakeDisk, Item
from headwater.testing.oracle import Crash
from tests.crash.session import SMALL, Session, by_stream, log_files
from tests.crash.workloads import Run

KILLED = "process killed"


def kind_of(state: FakeDisk) -> Crash:
    return Crash.KILL if state.label.endswith(KILLED) else Crash.POWER_LOSS


def check_state(run: Run, state: FakeDisk, *, thorough: bool = True) -> Session:
    """I1 to I5 for one disk that a crash of `run` may have left."""
    found = Session(state, run.settings).abandon()
    run.check(found, crash=kind_of(state), at=state.crash_point, label=state.label)
    if thorough:
        check_lease_request(state, found)
        check_goes_on(state, found)
    return found


def check_lease_request(disk: FakeDisk, found: Session) -> None:
    """Recovering again, and once more, finds the same and changes nothing (I4)."""
    files = log_files(disk)
    for _ in range(2):
        again = Session(disk, found.settings).abandon()
        assert again.items == found.items, disk.label
        assert again.recovered.positions == found.recovered.positions, disk.label
        assert log_files(disk) == files, disk.label


def check_goes_on(disk: FakeDisk, found: Session, settings: WalSettings | None = None) -> None:
    """The log takes new writes, and these survive a power loss together with the old ones."""
    session = Session(disk, settings or found.settings, fake=disk).open()
    # Single records first: as long as those that were lost, so that what was not cut away would
    # stand exactly where the log looks for its next group.
    for topic, records in ((1, 1), (2, 1), (1, 2)):
        session.append(topic, records)
        if records == 1:
            between = Session(disk.clone(), session.settings).abandon()
            assert len(between.items) == len(found.items) + len(session.acked_items()), disk.label
    assert all(ticket.resolved and ticket.error is None for ticket in session.tickets), disk.label
    after = disk.after_power_loss()
    final = Session(after, settings or found.settings).abandon()
    expected = by_stream([*found.items, *session.acked_items()])
    assert by_stream(final.items) == expected, disk.label


def recovered_items(disk: FakeDisk, settings: WalSettings = SMALL) -> list[Item]:
    return Session(disk, settings).abandon().items
