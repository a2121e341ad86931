"""Space comes back without anybody asking for it: whatever is dead, wherever it is."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace

import pytest

from headwater.core.errors import DiskFullError, HeadwaterError
from headwater.engine.kafka.group_state import Committed
from headwater.format.kafka.entry import keys_of
from headwater.format.kafka.names import SPARE_NAME
from headwater.server.kafka.refusals import code_of
from headwater.store.kafka.files import KafkaSegmentFiles
from headwater.testing import FakeDisk
from headwater.testing.fault_disk import Fault, FaultDisk, Verb
from headwater.wire.kafka.apis import ErrorCode
from tests.rig.kafka import KAFKA, SMALL_KAFKA, KafkaLife, batch_of

UNCACHED = replace(SMALL_KAFKA, cache_bytes=0)
EAGER = replace(UNCACHED, segment_bytes=2**20, seal_dead_bytes=4_000)
"""One large segment, which is ended when four thousand bytes of it are dead."""


def keep(life: KafkaLife) -> None:
    life.clock.advance(life.settings.retention_interval_ms * 1_000)
    life.store._housekeeping.run()


def write_until_it_is_refused(life: KafkaLife, name: str) -> None:
    while True:
        life.append(name, batch_of("x" * 500))


def drop(life: KafkaLife, name: str) -> None:
    topic = life.store.topic(1, name)
    assert topic is not None
    life.do(topic.drop)


def delete(life: KafkaLife, name: str, before: int) -> None:
    life.do(lambda: life.partition(name).delete_records(before))


def stored_bytes(life: KafkaLife) -> int:
    assert isinstance(life.disk, FakeDisk)
    return sum(len(data) for data in life.disk.files().values())


def test_what_the_log_says_about_itself_does_not_pile_up() -> None:
    """Groups commit for years, and no topic ever loses a record."""
    life = KafkaLife(settings=UNCACHED)
    life.create("orders")
    life.append("orders", batch_of("kept"))
    for number in range(300):
        place = {("orders", 0): Committed(number)}
        life.do(lambda place=place: life.store.commit_offsets(1, "readers", place))  # type: ignore[misc]
        keep(life)
    assert len(life.store.core.sealed) <= 2
    again = life.reopen()
    assert again.values("orders") == [b"kept"]
    assert again.store.committed(1, "readers")["orders", 0].offset == 299


@pytest.mark.parametrize("killed", [False, True])
def test_a_start_looks_for_space_that_was_left(killed: bool) -> None:
    disk = FakeDisk(["/data"])
    life = KafkaLife(disk, UNCACHED)
    life.create("gone")
    for number in range(40):
        life.append("gone", batch_of(f"{number}" * 30))
    drop(life, "gone")
    if killed:
        life = KafkaLife(disk.after_kill(), UNCACHED, life.clock)
    else:
        life = life.reopen()
    assert life.store.core.sealed
    keep(life)
    assert not life.store.core.sealed


def test_a_segment_is_looked_at_when_it_is_full() -> None:
    """Its dead records were removed while it was still written to."""
    life = KafkaLife(settings=UNCACHED)
    life.create("gone")
    life.create("kept")
    for number in range(8):
        life.append("gone", batch_of(f"{number}" * 20))
    drop(life, "gone")
    keep(life)
    assert life.store.core.active_number == 0
    while life.store.core.active_number == 0:
        life.append("kept", batch_of("k"))
    keep(life)
    assert life.store.counters.segments_rewritten == 1


def test_the_last_segment_is_ended_when_most_of_it_is_dead() -> None:
    life = KafkaLife(settings=EAGER)
    life.create("gone")
    life.create("kept")
    life.append("kept", batch_of("first"))
    for number in range(20):
        life.append("gone", batch_of(f"{number:03}" * 100))
    keep(life)
    assert not life.store.core.sealed
    before = stored_bytes(life)
    drop(life, "gone")
    keep(life)
    assert life.store.counters.segments_rewritten == 1
    assert stored_bytes(life) < before - 5_000
    life.append("kept", batch_of("second"))
    assert life.values("kept") == life.reopen().values("kept") == [b"first", b"second"]


def test_half_dead_is_not_enough() -> None:
    life = KafkaLife(settings=EAGER)
    life.create("gone")
    life.create("kept")
    for number in range(30):
        life.append("kept", batch_of(f"{number:03}" * 100))
        life.append("gone", batch_of(f"{number:03}" * 80))
    drop(life, "gone")
    keep(life)
    assert not life.store.core.sealed


def test_the_last_segment_is_not_read_in_every_round() -> None:
    life = KafkaLife(settings=EAGER)
    life.create("kept")
    for number in range(30):
        life.append("kept", batch_of(f"{number:03}" * 100))
    keep(life)
    for number in range(3):
        delete(life, "kept", number + 1)
        keep(life)
    delete(life, "kept", 29)
    keep(life)
    assert not life.store.core.sealed  # looked at a moment ago, and hardly larger since
    life.clock.advance(60_000_000)
    keep(life)
    assert life.store.counters.segments_rewritten == 1


def test_deleting_cures_a_full_disk_of_one_segment() -> None:
    disk = FakeDisk(["/data"], capacity_bytes=60_000)
    life = KafkaLife(disk, EAGER)
    life.create("gone")
    life.create("kept")
    with pytest.raises(DiskFullError):
        write_until_it_is_refused(life, "gone")
    drop(life, "gone")
    for _ in range(2):
        keep(life)
    life.clock.advance(life.settings.wal.full_retry_interval_us)
    for _ in range(50):
        life.append("kept", batch_of("y" * 500))
    assert len(life.reopen().values("kept")) == 50


def test_room_for_a_checkpoint_is_put_aside() -> None:
    """Without one nothing could be given back on a disk that is full to the last byte."""
    fake = FakeDisk(["/data"])
    disk = FaultDisk(fake)
    life = KafkaLife(disk, UNCACHED)
    life.create("gone")
    for number in range(40):
        life.append("gone", batch_of(f"{number}" * 30))
    life.store.checkpoint()
    assert SPARE_NAME in disk.list_directory(KAFKA)
    drop(life, "gone")
    room = Fault(Verb.WRITE, errno.ENOSPC, path="checkpoint.tmp", always=True)
    disk.add(room)
    unlink = Fault(Verb.UNLINK, None, path=SPARE_NAME, before=disk.clear)
    disk.add(unlink)
    keep(life)
    assert room.struck == 1
    assert life.store.counters.segments_deleted > 1
    assert SPARE_NAME in disk.list_directory(KAFKA)


def test_a_full_disk_has_no_room_to_put_aside() -> None:
    fake = FakeDisk(["/data"])
    disk = FaultDisk(fake)
    disk.add(Fault(Verb.ALLOCATE, errno.ENOSPC, path=SPARE_NAME, always=True))
    life = KafkaLife(disk, UNCACHED)
    life.create("orders")
    life.store.checkpoint()
    assert SPARE_NAME not in disk.list_directory(KAFKA)


def test_a_record_that_moves_while_it_is_read_is_found_in_the_end() -> None:
    fake = FakeDisk(["/data"])
    disk = FaultDisk(fake)
    life = KafkaLife(disk, UNCACHED)
    life.create("orders")
    life.append("orders", batch_of("here"))
    gone = disk.add(Fault(Verb.VIEW, errno.ENOENT, path="0.oidx", always=True))
    partition = life.partition("orders")
    plan = partition.plan_fetch(0, 1_000)
    with pytest.raises(HeadwaterError, match="try again") as refused:
        plan.read()
    assert (
        code_of(refused.value) is ErrorCode.KAFKA_STORAGE_ERROR
    )  # it is there: no reset of offsets
    gone.enabled = False
    disk.add(Fault(Verb.VIEW, errno.ENOENT, path="0.oidx"))
    assert len(partition.plan_fetch(0, 1_000).read()) == 1


def test_a_map_that_was_made_while_the_file_was_replaced_is_not_kept() -> None:
    fake = FakeDisk(["/data"])
    disk = FaultDisk(fake)
    life = KafkaLife(disk, UNCACHED)
    life.create("orders")
    for number in range(30):
        life.append("orders", batch_of(f"{number}" * 10))
    meta = life.store.core.sealed[0]
    files = KafkaSegmentFiles(disk, KAFKA)
    swapped = threading.Event()

    def swap() -> None:
        if not swapped.is_set():
            swapped.set()
            files.forget(meta.number)

    disk.add(Fault(Verb.VIEW, None, path="0.oidx", always=True, before=swap))
    first = keys_of(files.entries(meta.number, meta.entries))
    assert not files._maps  # it may be the file as it was before
    assert (keys_of(files.entries(meta.number, meta.entries)) == first).all()
    assert list(files._maps) == ["0.oidx"]
