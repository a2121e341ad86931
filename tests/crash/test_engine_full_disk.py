"""A full disk is writable again when records are deleted, whatever it is full of (I12)."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from headwater.core.errors import DiskFullError, HeadwaterError
from headwater.testing import KILL, FakeDisk, Fault, FaultDisk, Verb
from tests.rig.life import COLD, SMALL, Life, with_shards
from tests.rig.scripts import records

pytestmark = pytest.mark.crash

LOG = replace(SMALL.wal, file_bytes=16_384, reserve_bytes=1_024)
ROUNDS_MAX = 5


def full_life(capacity_bytes: int, *, before: int = 0) -> Life:
    """So many writes to `b` are in segments. Then comes a burst to `a`, before any checkpoint, so
    that the rest of the disk is log files."""
    settings = replace(SMALL, wal=LOG, snapshot_interval_ms=10**9)
    life = Life(FakeDisk(["/", COLD], capacity_bytes=capacity_bytes), settings=settings)
    for _ in range(before):
        life.append("b", records(3, size=300))
        life.round()
    with pytest.raises(DiskFullError):
        burst(life)
    return life


def burst(life: Life) -> None:
    while True:
        life.append("a", records(3, size=300))


def rounds(life: Life) -> None:
    """The keeper's rounds; one that fails is not his last."""
    for _ in range(ROUNDS_MAX):
        life.tick(1_000_000)
        try:
            life.round()
        except (DiskFullError, OSError):
            continue


@pytest.mark.parametrize("capacity_bytes", range(110_000, 130_000, 1_500))
def test_a_disk_full_of_log_files_takes_writes_again_when_records_are_deleted(
    capacity_bytes: int,
) -> None:
    """Log files go when two snapshots cover them, and a snapshot needs room itself. Once the disk
    is full nobody writes, so nothing need change between the first one and the second."""
    life = full_life(capacity_bytes)
    rounds(life)
    life.delete("a", before_seq=10**6)
    rounds(life)
    life.append("a", records(3, size=300))
    life.check()


def test_records_that_fit_nowhere_do_not_keep_deleted_ones_on_the_disk() -> None:
    life = full_life(200_000, before=90)
    rounds(life)
    life.delete("b", before_seq=10**6)
    rounds(life)
    life.append("b", records(3, size=300))
    life.check()


def test_a_dropped_topic_makes_room_on_a_full_disk() -> None:
    life = full_life(200_000, before=90)
    rounds(life)
    life.drop("b")
    rounds(life)
    life.append("c", records(3, size=300))
    life.check()


def test_what_one_log_was_told_counts_though_another_refused() -> None:
    """Both logs have topics to put into segments; one of them has no room for the mark. What the
    other mark says is there must not be taken back."""
    fake = FakeDisk(["/", COLD])
    disk = FaultDisk(fake)
    settings = with_shards(SMALL, 2)
    life = Life(fake, disk, settings=settings)
    for topic in "abcd":
        life.append(topic, records(2, size=100))
    full = disk.add(Fault(Verb.WRITE, errno.ENOSPC, path="*/wal/shard-01/*", always=True))
    with pytest.raises(DiskFullError):
        life.db.checkpoint()
    full.enabled = False
    life.tick(2_000_000)
    disk.add(Fault(Verb.WRITE, errno.EIO, path="*/topics/*", always=True))
    with pytest.raises((HeadwaterError, OSError)):
        life.db.checkpoint()
    state = next(fake.crash_states(fake.point, KILL))
    life.reborn(state, [life.world.copy()], settings).check()
