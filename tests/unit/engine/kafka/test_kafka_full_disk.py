"""A disk that is full exactly when a segment begins: the empty segment stays what it is."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from headwater.core.errors import DiskFullError
from headwater.testing import FakeDisk
from headwater.testing.fault_disk import Fault, FaultDisk, Verb
from tests.rig.kafka import SMALL_KAFKA, KafkaLife, batch_of

UNCACHED = replace(SMALL_KAFKA, cache_bytes=0)


class FullLife:
    """A store whose disk takes a new segment, and nothing in it."""

    def __init__(self) -> None:
        self.fake = FakeDisk(["/data"])
        self.faults = FaultDisk(self.fake)
        self.life = KafkaLife(self.faults, UNCACHED)

    def begin_empty(self, topic: str) -> None:
        """Rotate, and find no room for what made it necessary."""
        active = self.life.store.core.active_number
        log = f"{active + 1}.log"
        self.faults.add(Fault(Verb.ALLOCATE, errno.ENOSPC, path=log, nth=1, always=True))
        with pytest.raises(DiskFullError):
            self.life.append(topic, batch_of("x" * 1_400))
        assert self.life.store.core.active_number == active + 1
        self.life.store.housekeep()
        self.faults.clear()

    def delete(self, topic: str, before: int) -> None:
        partition = self.life.partition(topic)
        self.life.do(lambda: partition.delete_records(before))

    def again(self, how: str) -> KafkaLife:
        if how == "killed":
            self.fake = self.fake.after_kill()
        else:
            self.life.close()
        self.life = KafkaLife(self.fake, UNCACHED)
        return self.life


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_the_segment_before_an_empty_one_may_have_been_rewritten(how: str) -> None:
    full = FullLife()
    full.life.create("orders")
    full.life.create("clicks")
    full.life.append("clicks", batch_of("kept"))
    for number in range(6):
        full.life.append("orders", batch_of(f"o{number}" * 20))
    full.delete("orders", 6)
    full.begin_empty("clicks")
    assert full.life.store.counters.segments_rewritten == 1
    for round_ in range(3):
        again = full.again(how)
        assert again.values("clicks") == [b"kept", *[b"more"] * round_]
        again.append("clicks", batch_of("more"))


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_ids_are_not_given_again_when_the_segment_before_an_empty_one_is_gone(how: str) -> None:
    full = FullLife()
    full.life.create("clicks")
    full.life.create("orders")
    full.life.append("clicks", batch_of("x" * 600))
    full.life.append("clicks", batch_of("y" * 300))
    full.life.append("orders", batch_of("d" * 600))
    full.life.append("orders", batch_of(*["d"] * 20))
    full.life.create("late")
    full.delete("orders", -1)
    full.begin_empty("clicks")
    assert full.life.store.counters.segments_deleted == 1
    again = full.again(how)
    again.append("late", batch_of("precious"))
    again.create("new")
    again = full.again(how)
    assert again.values("late") == [b"precious"]
    assert again.values("clicks") == [b"x" * 600, b"y" * 300]


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_an_empty_segment_outlives_starts_after_which_nothing_was_written(how: str) -> None:
    full = FullLife()
    full.life.create("clicks")
    full.life.append("clicks", batch_of("kept" * 200))
    full.begin_empty("clicks")
    for _ in range(3):
        assert full.again(how).values("clicks") == [b"kept" * 200]
