"""A write that changes nothing cannot be torn into something else."""

from __future__ import annotations

from pathlib import PurePosixPath

from headwater.disk import OpenMode
from headwater.testing import CrashKind, CrashPlan, FakeDisk

PATH = PurePosixPath("/a")
TORN = CrashPlan.of(CrashKind.TORN)


def outcomes(old: bytes, new: bytes) -> set[bytes]:
    disk = FakeDisk(["/"])
    disk.write_file(PATH, old)
    disk.settle()
    disk.open(PATH, OpenMode.UPDATE).write(0, [new])
    return {state.files()[PATH] for state in disk.crash_states(disk.point, TORN)}


def test_the_same_bytes_written_again_stay_the_same_wherever_the_write_stops() -> None:
    assert outcomes(b"promised", b"promised") == {b"promised"}


def test_other_bytes_written_over_them_may_leave_zeros_and_garbage() -> None:
    assert len(outcomes(b"promised", b"Promised")) > 3
