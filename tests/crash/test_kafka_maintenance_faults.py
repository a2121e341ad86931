"""Every call of the keeper fails once, and life goes on: nothing that lives is lost, and in the end
there are no files but those that something leads to."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from headwater.core.errors import HeadwaterError
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    COPY_NAME,
    SPARE_NAME,
    index_name,
    log_name,
)
from headwater.testing import FakeDisk
from headwater.testing.fault_disk import CHANGING_VERBS, Fault, FaultDisk
from headwater.wal.committer import LogState
from tests.crash.matrix import FULL, tried
from tests.rig.kafka import KAFKA, SMALL_KAFKA, KafkaLife, batch_of

pytestmark = pytest.mark.crash

SETTINGS = replace(SMALL_KAFKA, cache_bytes=0)
CLICKS = [f"c{number}".encode() for number in range(30)]
STEP = 1 if FULL else 5


class Kept:
    """A store with segments that are dead, and others that mostly are."""

    def __init__(self) -> None:
        self.fake = FakeDisk(["/data"])
        self.faults = FaultDisk(self.fake)
        self.life = KafkaLife(self.faults, SETTINGS)
        for name in ("orders", "clicks", "gone"):
            self.life.create(name)
        for number in range(40):
            self.life.append("gone", batch_of(f"g{number}" * 10))
        for number in range(30):
            self.life.append("orders", batch_of(f"o{number}", f"p{number}"))
            self.life.append("clicks", batch_of(f"c{number}"))
        self.life.store.checkpoint()
        self.delete("gone", -1)
        self.delete("orders", 58)

    def delete(self, name: str, before: int) -> None:
        partition = self.life.partition(name)
        self.life.do(lambda: partition.delete_records(before))

    def sealed(self) -> list[tuple[int, int]]:
        """Segments, and how long their logs are."""
        return [(meta.number, meta.log_bytes) for meta in self.life.store.core.sealed]

    def led_to(self) -> set[str]:
        core = self.life.store.core
        names = {
            CHECKPOINT_NAME,
            COPY_NAME,
            log_name(core.active_number),
            index_name(core.active_number),
        }
        for meta in core.sealed:
            names |= {index_name(meta.number), log_name(meta.log_number)}
            names |= {index_name(meta.log_number)}
        return names


def in_peace() -> tuple[int, list[tuple[int, int]]]:
    """How many calls change something in a good round, and what it leaves."""
    kept = Kept()
    count = Fault(CHANGING_VERBS, None, nth=10**9)
    kept.faults.add(count)
    kept.life.store.housekeep()
    assert kept.life.store.counters.segments_deleted
    assert kept.life.store.counters.segments_rewritten
    return count.seen, kept.sealed()


@pytest.mark.parametrize("evicted", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "failing"])
def test_a_round_that_failed_is_made_good_by_the_next(number: int, evicted: bool) -> None:
    calls, left = in_peace()
    for nth in range(0, calls, STEP):
        kept = Kept()
        kept.faults.add(Fault(CHANGING_VERBS, number, nth=nth))
        failed = None
        try:
            kept.life.store.housekeep()
        except (OSError, HeadwaterError) as error:
            failed = error
        kept.faults.clear()
        if evicted:
            kept.life.store.core.files.clear()
        if kept.life.store.state is not LogState.POISONED:
            kept.life.clock.advance(SETTINGS.wal.full_retry_interval_us)
            kept.life.store._housekeeping.run(thorough=True)
            assert kept.life.values("clicks") == CLICKS, (nth, failed)
            assert kept.sealed() == left, (nth, failed)
            names = set(kept.fake.list_directory(KAFKA)) - {SPARE_NAME}
            assert names == kept.led_to(), (nth, failed)
        for disk in (kept.fake.after_kill(), kept.fake.after_power_loss()):
            assert KafkaLife(disk, SETTINGS).values("clicks") == CLICKS, (nth, failed)
        tried(f"kafka's maintenance thread: {errno.errorcode[number]} once", 1)
