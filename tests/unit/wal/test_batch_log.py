"""Kafka's log files: batches and their entries, segments, room, and what is on stable storage."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from headwater.config.kafka import KafkaSettings
from headwater.core.durability import Durability
from headwater.core.errors import SyncError
from headwater.core.units import KIB
from headwater.format.checksum import RunningChecksum
from headwater.format.kafka.checkpoint import SegmentMeta
from headwater.format.kafka.entry import ENTRY_BYTES, PREFIX_BYTES, count_entries, read_entries
from headwater.format.kafka.events import SegmentBegun, Synced, decode_event
from headwater.format.kafka.names import index_name, log_name
from headwater.testing import FakeDisk, Fault, FaultDisk, ManualClock, Verb
from headwater.wal.batch_log import BatchAddress, BatchLog
from headwater.wal.counters import WalCounters
from headwater.wal.ticket import Ticket

KAFKA = PurePosixPath("/kafka")
SETTINGS = KafkaSettings(
    segment_bytes=4 * KIB,
    log_ahead_bytes=512,
    index_ahead_bytes=512,
    reserve_bytes=256,
    synced_event_bytes=64 * KIB,
    synced_event_interval_ms=3_600_000,
)
TIGHT = replace(SETTINGS, segment_bytes=2_000)
KEY = bytes(range(1, 29))


class Keyed:
    def __init__(self, size: int, records: int) -> None:
        self.batches = (BatchAddress(KEY, size, records),)


def batch(records: int = 1, size: int = 100, fill: bytes = b"b") -> Ticket:
    body = size.to_bytes(PREFIX_BYTES, "little") + fill * size
    return Ticket(body, records, Durability.FSYNC, context=Keyed(len(body), records))


class Rig:
    def __init__(
        self,
        settings: KafkaSettings = SETTINGS,
        fake: FakeDisk | None = None,
        *,
        begin: bool = True,
    ) -> None:
        self.fake = fake or FakeDisk([KAFKA])
        self.disk = FaultDisk(self.fake)
        self.clock = ManualClock(wall_ms=1_000)
        self.counters = WalCounters()
        self.number = 0
        self.sealed: list[tuple[SegmentMeta, int]] = []
        self.idle = 0
        self.log = BatchLog(
            self.disk, KAFKA, settings, self.clock, self.counters,
            self.take_number, lambda meta, number: self.sealed.append((meta, number)), self.rest,
        )  # fmt: skip
        if begin:
            self.log.begin(0)

    def take_number(self) -> int:
        self.number += 1
        return self.number

    def rest(self) -> None:
        self.idle += 1

    def write(self, *tickets: Ticket, essential: bool = False) -> int:
        return self.log.write_group(tickets, essential=essential)

    def bytes_of(self, name: str) -> bytes:
        return self.fake.files()[KAFKA / name]

    def log_bytes(self, number: int = 1) -> bytes:
        return self.bytes_of(log_name(number))

    def index_bytes(self, number: int = 1) -> bytes:
        return self.bytes_of(index_name(number))

    def entries(self, number: int = 1) -> list[tuple[int, int, int]]:
        """Segment, offset and length of every entry."""
        raw = self.index_bytes(number)
        entries = read_entries(raw, count_entries(raw))
        return [
            (int(e["segment_id"]), int(e["physical_offset"]), int(e["length"])) for e in entries
        ]

    def batches(self, number: int = 1) -> list[bytes]:
        """What stands behind the prefixes, up to the zeros."""
        raw, at, found = self.log_bytes(number), 0, []
        while at < len(raw) and (length := int.from_bytes(raw[at : at + PREFIX_BYTES], "little")):
            at += PREFIX_BYTES
            found.append(raw[at : at + length])
            at += length
        return found


def test_each_record_of_a_batch_has_an_entry_that_points_at_the_batch() -> None:
    rig = Rig()
    first, second = batch(2, 100), batch(1, 50, b"c")
    assert rig.write(first, second) == 104 + 54 + 3 * ENTRY_BYTES
    assert rig.entries() == [(1, 0, 100), (1, 0, 100), (1, 104, 50)]
    assert rig.batches() == [b"b" * 100, b"c" * 50]
    assert (first.last_frame, second.last_frame) == (2, 3)
    assert bytes(rig.index_bytes()[ENTRY_BYTES - len(KEY) : ENTRY_BYTES]) == KEY


def test_a_group_is_on_stable_storage_after_a_sync_and_not_before() -> None:
    rig = Rig()
    rig.write(batch())
    lost = Rig(fake=rig.fake.after_power_loss(), begin=False)
    assert (lost.batches(), lost.entries()) == ([], [])
    rig.log.sync()
    kept = Rig(fake=rig.fake.after_power_loss(), begin=False)
    assert (kept.batches(), kept.entries()) == ([b"b" * 100], [(1, 0, 100)])


def test_a_full_segment_is_whole_on_disk_before_the_next_one_begins() -> None:
    rig = Rig()
    for _ in range(5):
        rig.write(batch(1, 1_000))
    ((meta, number),) = rig.sealed
    assert (meta.number, meta.base_id, meta.entries, meta.log_bytes) == (1, 0, 4, 4 * 1_004)
    assert (number, rig.counters.rotations) == (2, 1)
    kept = Rig(fake=rig.fake.after_power_loss(), begin=False)
    assert len(kept.log_bytes(1)) == meta.log_bytes, "cut to its length"
    assert len(kept.index_bytes(1)) == meta.entries * ENTRY_BYTES
    checksum = RunningChecksum()
    checksum.update(kept.index_bytes(1))
    assert checksum.value() == meta.checksum


def test_a_new_segment_begins_with_the_id_of_its_first_record() -> None:
    rig = Rig(TIGHT)
    rig.write(batch(3, 1_000))
    behind = batch(1, 1_000)
    rig.write(behind)
    assert [decode_event(each) for each in rig.batches(2)[:1]] == [SegmentBegun(3)]
    assert behind.last_frame == 5, "three records and the event of the log are before it"
    assert rig.log.synced_meta().base_id == 3


def test_a_group_larger_than_a_segment_has_one_of_its_own() -> None:
    rig = Rig(TIGHT)
    rig.write(batch(1, 5_000))
    rig.write(batch())
    assert [meta.log_bytes for meta, _ in rig.sealed] == [5_004]


def test_the_log_says_how_far_it_is_synced_once_enough_was() -> None:
    rig = Rig(replace(SETTINGS, segment_bytes=64 * KIB, synced_event_bytes=1_000))
    rig.write(batch(2, 1_000))
    rig.write(batch(1, 10))
    assert len(rig.batches()) == 2, "nothing is synced yet, so there is nothing to say"
    rig.log.sync()
    rig.write(batch(1, 10))
    assert decode_event(rig.batches()[2]) == Synced(3)
    rig.log.sync()
    rig.write(batch(1, 10))
    assert len(rig.batches()) == 5, "what was synced since is too little"


def test_the_log_says_how_far_it_is_synced_once_time_went_by() -> None:
    rig = Rig(replace(SETTINGS, segment_bytes=64 * KIB, synced_event_interval_ms=1_000))
    rig.write(batch())
    rig.log.sync()
    rig.write(batch())
    assert len(rig.batches()) == 2
    rig.clock.advance(1_000_000)
    rig.write(batch())
    assert decode_event(rig.batches()[2]) == Synced(1), "the second batch is not synced"


def test_a_checkpoint_makes_saying_how_far_the_log_is_synced_needless() -> None:
    rig = Rig(replace(SETTINGS, segment_bytes=64 * KIB, synced_event_bytes=100))
    rig.write(batch(1, 1_000))
    rig.log.note_saved(rig.log.synced_meta())
    rig.write(batch())
    assert len(rig.batches()) == 2


def test_an_essential_group_brings_no_event_along() -> None:
    rig = Rig(replace(SETTINGS, segment_bytes=64 * KIB, synced_event_bytes=100))
    rig.write(batch(1, 1_000))
    rig.log.sync()
    rig.write(batch(), essential=True)
    assert len(rig.batches()) == 2


# -- a full disk


def test_a_group_without_room_changes_nothing_and_an_essential_one_uses_the_reserve() -> None:
    rig = Rig()
    rig.write(batch())
    rig.fake.capacity_bytes = sum(map(len, rig.fake.files().values()))
    before = rig.batches(), rig.entries()
    with pytest.raises(OSError, match="No space") as refused:
        rig.write(batch(1, 700))  # more than was made ahead
    assert refused.value.errno == errno.ENOSPC
    assert (rig.batches(), rig.entries()) == before
    rig.write(batch(1, 100, b"e"), essential=True)
    assert rig.batches()[-1] == b"e" * 100
    with pytest.raises(OSError, match="No space"):
        rig.log.make_room()
    rig.fake.capacity_bytes = None
    rig.log.make_room()
    rig.write(batch(1, 150))


def test_a_group_for_whose_entries_there_is_no_room_after_all_is_taken_back() -> None:
    rig = Rig()
    rig.write(batch(1, 100, b"a"))
    rig.disk.add(Fault(Verb.WRITE, errno.ENOSPC, path="*.oidx"))
    with pytest.raises(OSError, match="No space"):
        rig.write(batch(1, 100, b"x"))
    rig.write(batch(1, 50, b"c"))
    assert rig.batches() == [b"a" * 100, b"c" * 50]
    assert rig.entries() == [(1, 0, 100), (1, 104, 50)]
    rig.log.sync()
    checksum = RunningChecksum()
    checksum.update(rig.index_bytes()[: 2 * ENTRY_BYTES])
    assert rig.log.synced_meta().checksum == checksum.value(), "the refused entries are not in it"


def test_a_segment_that_cannot_be_made_leaves_no_trace_and_the_old_one_goes_on() -> None:
    rig = Rig()
    rig.write(batch(1, 4_000))
    rig.disk.add(Fault(Verb.ALLOCATE, errno.ENOSPC, path=f"*{index_name(2)}"))
    with pytest.raises(OSError, match="No space"):
        rig.write(batch())
    assert {path.name for path in rig.fake.files()} == {log_name(1), index_name(1)}
    assert rig.sealed == []
    rig.write(batch())
    assert [number for _, number in rig.sealed] == [3], "a number is never used twice"


# -- failures, sealing, stopping


def test_after_a_failed_sync_nothing_is_written_synced_or_sealed() -> None:
    rig = Rig()
    rig.write(batch())
    rig.disk.add(Fault(Verb.SYNC_DATA, path="*.log"))
    with pytest.raises(SyncError):
        rig.log.synced_meta()  # a checkpoint's, outside of any group
    for again in (rig.log.sync, lambda: rig.log.seal(1), lambda: rig.write(batch())):
        with pytest.raises(SyncError):
            again()
    assert len(rig.batches()) == 1


def test_only_the_active_segment_is_sealed_early_and_only_with_something_in_it() -> None:
    rig = Rig()
    assert not rig.log.seal(1), "it is empty"
    rig.write(batch())
    assert not rig.log.seal(7)
    assert rig.log.seal(1)
    assert [(meta.number, number) for meta, number in rig.sealed] == [(1, 2)]
    assert not rig.log.seal(1)


def test_sealing_early_uses_the_reserve_when_the_disk_is_full() -> None:
    rig = Rig()
    rig.write(batch())
    rig.disk.add(Fault(Verb.ALLOCATE, errno.ENOSPC, path=f"*{log_name(2)}"))
    assert rig.log.seal(1)
    assert [number for _, number in rig.sealed] == [3]


def test_a_clean_stop_syncs_and_cuts_what_was_made_ahead() -> None:
    rig = Rig()
    rig.write(batch())
    assert len(rig.log_bytes()) > 104
    rig.log.witness(clean_stop=True)
    rig.log.close()
    kept = Rig(fake=rig.fake.after_power_loss(), begin=False)
    assert (len(kept.log_bytes()), len(kept.index_bytes())) == (104, ENTRY_BYTES)
    assert rig.idle == 0
    assert rig.log.synced_meta().entries == 1, "what is known of it outlives the files"


def test_a_quiet_second_syncs_and_asks_for_a_checkpoint() -> None:
    rig = Rig()
    rig.write(batch())
    rig.log.witness(clean_stop=False)
    assert rig.idle == 1
    assert Rig(fake=rig.fake.after_power_loss(), begin=False).entries() == [(1, 0, 100)]


def test_a_log_goes_on_behind_what_recovery_found() -> None:
    first = Rig()
    first.write(batch(2))
    meta = first.log.synced_meta()
    checksum = RunningChecksum()
    checksum.update(first.index_bytes()[: 2 * ENTRY_BYTES])
    second = Rig(fake=first.fake.after_kill(), begin=False)
    second.log.go_on(meta, checksum)
    behind = batch(1, 50, b"c")
    second.write(behind)
    assert behind.last_frame == 3
    assert second.batches() == [b"b" * 100, b"c" * 50]
    whole = RunningChecksum()
    whole.update(second.index_bytes()[: 3 * ENTRY_BYTES])
    assert second.log.synced_meta().checksum == whole.value()
