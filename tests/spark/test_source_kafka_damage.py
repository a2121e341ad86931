"""What is wrong in Kafka's files never gives a row under another seq, and hides no deletion."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Any, cast

import msgspec
import pytest

from headwater.core.durability import Durability
from headwater.core.errors import DamageError, SyncError
from headwater.disk import Disk, OpenMode, read_whole, replace_file
from headwater.format.crc32c import crc32c
from headwater.format.kafka.batch import CRC_FROM, MAX_TIMESTAMP_AT
from headwater.format.kafka.checkpoint import (
    KafkaCheckpoint,
    PartitionMeta,
    decode_checkpoint,
    encode_checkpoint,
)
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    KEY_AT,
    PREFIX_BYTES,
    count_entries,
    read_entries,
)
from headwater.format.kafka.events import INTERNAL_KEY
from headwater.format.kafka.names import CHECKPOINT_NAME, COPY_NAME, index_name, log_name
from headwater.format.kafka.records import NewRecord, encode_batch
from headwater.recovery.kafka.view import KafkaView, scan_topics
from headwater.spark.source.filters import Filters
from headwater.store.segment import SegmentChangedError
from headwater.testing import FakeDisk, Fault, FaultDisk, Verb
from tests.rig.kafka import KAFKA, LARGE_KAFKA, NOW_MS, KafkaLife, batch_of
from tests.spark.test_source_kafka import UNCACHED, Beside, filled, values

CHECKPOINT = KAFKA / CHECKPOINT_NAME


def spoil(life: KafkaLife, name: str, offset: int) -> None:
    file = life.disk.open(KAFKA / name, OpenMode.UPDATE)
    old = file.read(offset, 1)
    file.write(offset, [bytes([old[0] ^ 0xFF])])
    file.close()


def with_checkpoint(life: KafkaLife, **fields: object) -> None:
    checkpoint = decode_checkpoint(read_whole(life.disk, CHECKPOINT, 1 << 20))
    changed: KafkaCheckpoint = msgspec.structs.replace(checkpoint, **fields)
    replace_file(life.disk, CHECKPOINT, encode_checkpoint(changed))


def positions_of_events(life: KafkaLife, number: int) -> list[int]:
    """Where the batches of the log's own events stand in a segment."""
    index = read_whole(life.disk, KAFKA / index_name(number), 1 << 20)
    entries = read_entries(index, count_entries(index[: len(index) // ENTRY_BYTES * ENTRY_BYTES]))
    return [
        int(entries["physical_offset"][at])
        for at in range(len(entries))
        if index[at * ENTRY_BYTES + KEY_AT : (at + 1) * ENTRY_BYTES] == INTERNAL_KEY
    ]


def test_an_entry_of_nobody_ends_the_tail_as_it_does_at_a_start() -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("orders")
    life.store.checkpoint()
    for number in range(6):
        life.append("orders", batch_of(f'"o{number}"'), durability=Durability.DISK)
    killed = life.disk.after_kill() if isinstance(life.disk, FakeDisk) else life.disk
    life.disk = killed
    index = read_whole(killed, KAFKA / index_name(0), 1 << 20)
    ends = count_entries(index[: len(index) // ENTRY_BYTES * ENTRY_BYTES])
    # The third of the six records: a bit of its topic's hash is another one.
    spoil(life, index_name(0), (ends - 4) * ENTRY_BYTES + KEY_AT + 10)
    seen = Beside(life).everything("kafka:orders:0")
    assert seen == [(1, '"o0"'), (2, '"o1"')]
    assert seen == values(KafkaLife(killed, LARGE_KAFKA), "orders")


def test_segments_without_their_checkpoint_are_refused() -> None:
    life = filled(60)
    life.do(lambda: life.partition("clicks").delete_records(55))
    life.do(lambda: life.partition("orders", 1).delete_records(18))
    life.do(lambda: life.partition("orders").delete_records(100))
    life.store.housekeep()
    assert life.store.counters.segments_deleted
    life.close()
    before = Beside(life).everything("kafka:orders:1")
    life.disk.unlink(CHECKPOINT)
    assert Beside(life).everything("kafka:orders:1") == before  # from the copy, as a start would
    life.disk.unlink(KAFKA / COPY_NAME)
    with pytest.raises(DamageError, match="the checkpoint is missing"):
        Beside(life).plan("kafka:orders:0")


def test_a_synced_event_that_cannot_be_read_is_refused_and_hides_no_deletion() -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("orders")
    for number in range(6):
        life.append("orders", batch_of(f'"o{number}"'))
    life.create("other")
    life.do(lambda: life.partition("orders").delete_records(4))
    beside = Beside(life)
    before = beside.plan("kafka:orders:0")
    life.close()
    checkpoint = decode_checkpoint(read_whole(life.disk, CHECKPOINT, 1 << 20))
    # The state of a checkpoint is taken before its log is synced: as it was after the writes.
    topics = tuple(
        msgspec.structs.replace(topic, partitions=(PartitionMeta(),))
        for topic in checkpoint.topics
        if topic.name == "orders"
    )
    with_checkpoint(life, as_of=7, topics=topics)
    assert beside.everything("kafka:orders:0") == [(5, '"o4"'), (6, '"o5"')]
    spoil(life, log_name(0), positions_of_events(life, 0)[1] + 70)
    with pytest.raises(DamageError, match="CRC32C"):
        beside.plan("kafka:orders:0")
    with pytest.raises(DamageError, match="CRC32C"):
        scan_topics(life.disk, KAFKA)
    with pytest.raises(DamageError, match="CRC32C"):
        beside.read(before)


def test_a_time_is_not_found_in_records_that_were_deleted() -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("timed")
    stamps = [9_000, 1_000, 2_000, 9_000]
    records = [NewRecord(stamp, None, str(stamp).encode(), ()) for stamp in stamps]
    life.append("timed", encode_batch(records))
    life.do(lambda: life.partition("timed").delete_records(1))
    assert Beside(life).seq_at("kafka:timed:0", 5_000) == 4


@pytest.mark.parametrize(
    ("damaged", "ts_ms", "expected"),
    [
        (0, 5_000, 5),  # older records behind it: it was older still
        (3, 5_000, 4),  # it may have been the first, so it is where reading begins
        (4, 5_000, 5),
        (5, 5_000, 5),
        (5, 6_000, 6),  # everything that can be read is older
    ],
)
def test_a_damaged_batch_is_where_a_tolerant_stream_begins_if_it_may_be_the_first(
    damaged: int, ts_ms: int, expected: int
) -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("timed")
    for stamp in range(1_000, 7_000, 1_000):
        life.append("timed", batch_of(str(stamp), timestamp_ms=stamp))
    life.close()
    beside = Beside(life)
    at = int(beside.plan("kafka:timed:0")[0].batches.entries["physical_offset"][damaged])
    spoil(life, log_name(0), at + PREFIX_BYTES + CRC_FROM + 24)
    if damaged <= 4:
        with pytest.raises(DamageError):
            beside.seq_at("kafka:timed:0", ts_ms)
    assert beside.seq_at("kafka:timed:0", ts_ms, tolerant=True) == expected


def test_the_newest_time_that_a_producer_claims_hides_no_record() -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("timed")
    honest = batch_of('"new"', timestamp_ms=NOW_MS)
    life.append("timed", with_newest(honest, 0))
    late = Filters()
    late.ts_us.narrow(NOW_MS * 1_000, None)
    beside = Beside(life)
    assert beside.read(beside.plan("kafka:timed:0", late), filters=late) == [(1, '"new"')]


def with_newest(honest: bytes, timestamp_ms: int) -> bytes:
    """The same records in a batch whose header says that the newest is of another time."""
    changed = bytearray(honest)
    changed[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = timestamp_ms.to_bytes(8, "big")
    changed[CRC_FROM - 4 : CRC_FROM] = crc32c(bytes(changed[CRC_FROM:])).to_bytes(4, "big")
    return bytes(changed)


def test_a_deletion_is_not_missed_when_its_segment_is_rewritten_while_one_looks() -> None:
    life = KafkaLife(settings=UNCACHED)
    life.create("orders")
    life.create("clicks")
    life.append("orders", batch_of('"o0"', '"o1"'))
    life.store.checkpoint()
    seen_first = read_whole(life.disk, CHECKPOINT, 1 << 20)
    life.do(lambda: life.partition("orders").delete_records(1))
    for number in range(40):
        life.append("clicks", batch_of(f'"c{number}"'))
    life.do(lambda: life.partition("clicks").delete_records(40))
    life.store.housekeep()
    assert life.store.counters.segments_rewritten
    planned = Beside(life).plan("kafka:orders:0")
    assert [each.first_seq for each in planned] == [2]
    # Who looks read the checkpoint before, and the rewritten index after.
    replace_file(life.disk, CHECKPOINT, seen_first)
    with pytest.raises(SegmentChangedError, match="rewritten"):
        scan_topics(life.disk, KAFKA)


class BeforeListing:
    """A disk on which the owner does something just before names are listed, once."""

    def __init__(self, disk: Disk, work: Callable[[], None]) -> None:
        self._disk = disk
        self._work: list[Callable[[], None]] = [work]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def list_directory(self, path: PurePath) -> list[str]:
        while self._work:
            self._work.pop()()
        return self._disk.list_directory(path)


def test_segments_that_go_between_the_checkpoint_and_the_names_are_not_overlooked() -> None:
    life = KafkaLife(settings=UNCACHED)
    life.create("orders")
    life.create("kept")
    for number in range(12):  # so that the segment there is stays what it is
        life.append("kept", batch_of(f'"k{number}"'))
    life.store.checkpoint()
    for number in range(60):
        life.append("orders", batch_of(f'"o{number}"'))
    life.do(lambda: life.partition("orders").delete_records(40))
    beside = Beside(life)
    # The checkpoint that was read does not know the segments that are deleted now.
    beside.directory.disk = cast(Disk, BeforeListing(life.disk, life.store.housekeep))
    assert beside.everything("kafka:orders:0") == values(life, "orders")
    assert life.store.counters.segments_deleted
    assert values(life, "orders")[0] == (41, '"o40"')


@pytest.mark.parametrize("read_first", [True, False], ids=["seen", "not seen"])
def test_a_record_that_was_seen_in_the_files_survives_a_loss_of_power_though_nobody_synced_it(
    read_first: bool,
) -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("orders")
    life.append("orders", batch_of('"synced"'))
    life.append("orders", batch_of('"written"'), durability=Durability.DISK)
    assert isinstance(life.disk, FakeDisk)
    if read_first:
        seen = [(1, '"synced"'), (2, '"written"')]
        assert Beside(life).everything("kafka:orders:0") == seen
    later = KafkaLife(life.disk.after_power_loss(), LARGE_KAFKA)
    # Unseen, it may go: its ack promised a write and no sync.
    assert later.values("orders") == [b'"synced"', b'"written"'][: 2 if read_first else 1]


@pytest.mark.parametrize(
    ("number", "outcome"), [(errno.EROFS, None), (errno.EIO, SyncError)], ids=["EROFS", "EIO"]
)
def test_a_sync_that_fails_refuses_what_it_was_for_unless_nobody_can_write_there(
    number: int, outcome: type[Exception] | None
) -> None:
    life = KafkaLife(settings=LARGE_KAFKA)
    life.create("orders")
    life.append("orders", batch_of('"written"'), durability=Durability.DISK)
    assert isinstance(life.disk, FakeDisk)
    disk = FaultDisk(life.disk, [Fault(Verb.SYNC_DATA, number, always=True)])
    view = partial(KafkaView, disk, KAFKA)
    if outcome is None:
        assert view().segments[-1].entries == 2
    else:
        with pytest.raises(outcome):
            view()
