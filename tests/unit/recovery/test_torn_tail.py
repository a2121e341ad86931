"""A torn tail is put aside, overwritten with zeros and reported; then it is as if never there."""

from __future__ import annotations

import errno
from pathlib import PurePath

import pytest

from headwater.format.names import QUARANTINE_DIRECTORY
from headwater.recovery.finding import Action
from headwater.testing import FakeDisk, Fault, FaultDisk, Verb
from tests.crash.session import DATA, WAL, Session, log_files, new_disk

GARBAGE = b"half a group, or something else"


def torn_log() -> tuple[FakeDisk, PurePath, int]:
    """A log whose last file ends in bytes that are no group; the file, and where they begin."""
    disk = new_disk()
    session = Session(disk).open()
    session.append(1)
    session.append(1)
    session.abandon()
    path = next(path for path in log_files(disk) if path.name.startswith("wal-"))
    end = len(disk.files()[path].rstrip(b"\0"))
    disk.damage(path, end, GARBAGE)
    return disk, path, end


@pytest.mark.claims(141, 142, 205)
def test_the_tail_is_copied_aside_and_zeros_stand_where_it_was() -> None:
    disk, path, end = torn_log()
    session = Session(disk).abandon()
    copy = WAL / QUARANTINE_DIRECTORY / f"{path.name}.{end}.torn"
    assert disk.files()[copy] == GARBAGE
    assert disk.files()[path][end:].strip(b"\0") == b""
    assert len(disk.files()[path]) == 1024, "the length still tells whether somebody cut it"
    assert len(session.items) == 2


def test_the_report_says_what_was_cut_where_and_why() -> None:
    disk, path, end = torn_log()
    report = Session(disk).abandon().recovered.report
    cuts = [finding for finding in report.findings if finding.action is Action.CUT]
    assert [(cut.path, cut.offset) for cut in cuts] == [(path, end)]
    assert "never acknowledged" in cuts[0].line()
    again = Session(disk).abandon().recovered.report
    assert not [finding for finding in again.findings if finding.action is Action.CUT]


def test_a_disk_without_room_for_the_copy_does_not_keep_the_log_from_opening() -> None:
    disk, path, end = torn_log()
    faulty = FaultDisk(disk, [Fault(Verb.CREATE, errno.ENOSPC, path="*.torn.tmp", always=True)])
    session = Session(faulty)
    assert len(session.items) == 2
    assert disk.files()[path][end:].strip(b"\0") == b""


def test_the_next_group_goes_where_the_torn_one_began() -> None:
    disk, path, end = torn_log()
    session = Session(disk).open()
    session.append(1)
    assert disk.files()[path][end:].strip(b"\0") != b""
    session.abandon()
    assert len(Session(disk, directory=DATA).items) == 3
