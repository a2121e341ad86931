"""Damage behind the checkpoint is told from an unfinished write by events that say what was synced.

Damage before such an event is refused and nothing is changed; what nobody vouched for is cut. And
no crash, whatever it leaves of unsynced writes, is ever taken for damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import PurePath
from typing import NamedTuple

import pytest

from headwater.core.durability import Durability
from headwater.core.errors import DiskFullError
from headwater.engine.kafka.group_state import Committed
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    count_entries,
    keys_of,
    pack_entries,
    read_entries,
)
from headwater.format.kafka.events import INTERNAL_KEY, Synced, decode_event, encode_event
from headwater.recovery.kafka.verify import check_kafka_segment, join_kafka, plan_kafka
from headwater.recovery.kafka.walk import entries_known_synced
from headwater.testing import DROPS, RANDOM, FakeDisk, FaultDisk, Verb
from headwater.testing.trace import Image
from tests.crash.kafka_story import KafkaStory, opens_or_refuses
from tests.crash.matrix import slice_of, tried
from tests.rig.kafka import KAFKA, LARGE_KAFKA, TELLING_KAFKA, KafkaLife, batch_of

pytestmark = pytest.mark.crash

TELLING = replace(LARGE_KAFKA, synced_event_bytes=1)
LOG, INDEX = KAFKA / "0.log", KAFKA / "0.oidx"
UNCHECKED = frozenset({*range(8), *range(12, 16)})
"""Bytes of a batch that its CRC does not cover: base offset and leader epoch."""


class Batch(NamedTuple):
    entry: int
    """The first of its entries."""
    records: int
    begin: int
    """Where its length prefix stands."""
    end: int
    internal: bool
    synced: int | None
    """Of an event that says so: how many entries were synced."""


def batches_of(disk: FakeDisk, number: int = 0) -> list[Batch]:
    """Read by hand: what stands in a log, and whose it is by its index."""
    log, index = disk.files()[KAFKA / f"{number}.log"], disk.files()[KAFKA / f"{number}.oidx"]
    keys, found, begin, entry = keys_of(read_entries(index, count_entries(index))), [], 0, 0
    while entry < len(keys):
        end = begin + 4 + int.from_bytes(log[begin : begin + 4], "little")
        batch = log[begin + 4 : end]
        internal = keys[entry].tobytes() == INTERNAL_KEY
        event = decode_event(batch) if internal else None
        synced = event.entries if isinstance(event, Synced) else None
        records = read_header(batch).record_count
        found.append(Batch(entry, records, begin, end, internal, synced))
        begin, entry = end, entry + records
    return found


def events_of(disk: FakeDisk, number: int = 0) -> list[Batch]:
    return [batch for batch in batches_of(disk, number) if batch.synced is not None]


def written(settings: object = TELLING) -> tuple[KafkaLife, FakeDisk, int]:
    """A tail of synced groups behind a checkpoint, which ends at the entry that is returned."""
    assert isinstance(settings, type(TELLING))
    life = KafkaLife(settings=settings)
    assert isinstance(life.disk, FakeDisk)
    life.create("orders")
    life.append("orders", batch_of("old"))
    saved = life.store.checkpoint().segments[-1].entries
    for number in range(6):
        words = [f"{number}.{each}" for each in range(number % 3 + 1)]
        life.append("orders", batch_of(*words))
    return life, life.disk, saved


@cache
def tail() -> tuple[Image, int, int, list[Batch]]:
    """What is on the disk, where the checkpoint and the last event end, and the batches."""
    _, disk, saved = written()
    batches = batches_of(disk)
    synced = [batch.synced for batch in batches if batch.synced is not None][-1]
    assert saved < synced < batches[-1].entry + batches[-1].records
    return disk.after_kill().snapshot(), saved, synced, batches


def places() -> Iterator[tuple[PurePath, int, Batch]]:
    """Every byte behind the checkpoint whose change matters, and the batch it is of."""
    _, saved, _, batches = tail()
    for batch in batches:
        if batch.entry < saved:
            continue
        for at in range(batch.begin, batch.end):
            if at - batch.begin - 4 not in UNCHECKED:
                yield LOG, at, batch
        entries = range(batch.entry * ENTRY_BYTES, (batch.entry + batch.records) * ENTRY_BYTES)
        for at in entries:
            yield INDEX, at, batch


def damaged(path: PurePath, at: int, zeros: int) -> FakeDisk | None:
    """One bit flipped, or so many zeros; None when that changes nothing."""
    disk = FakeDisk(image=tail()[0])
    before = disk.files()[path]
    bad = bytes(zeros) if zeros else bytes([before[at] ^ (1 << at % 8)])
    if before[at : at + len(bad)] == bad:
        return None
    disk.damage(path, at, bad)
    return disk


def told_as_bad(disk: FakeDisk) -> bool:
    plan = plan_kafka(disk, KAFKA)
    looks = [check_kafka_segment(disk, each) for each in plan.segments]
    return any(fault.bad for fault in join_kafka(plan, looks))


@pytest.mark.parametrize("zeros", [0, 1])
def test_damage_before_an_event_is_refused_and_behind_it_is_cut(zeros: int) -> None:
    _, _, synced, batches = tail()
    verdicts: dict[bool, int] = {True: 0, False: 0}
    for path, at, batch in slice_of(places(), 3):
        disk = damaged(path, at, zeros)
        if disk is None:
            continue
        witnessed = batch.entry < synced
        bad, before = told_as_bad(disk), disk.files()
        life = opens_or_refuses(disk, TELLING)
        what = f"byte {at} of {path.name}, in the batch of entry {batch.entry}"
        assert isinstance(life, str) == witnessed == bad, f"{what}: {life}, verify says {bad}"
        if isinstance(life, str):
            assert disk.files() == before, f"{what}: refused and changed"
            assert f"0.log at byte {batch.begin}" in life, life
            assert f"byte {batch.entry * ENTRY_BYTES} of 0.oidx" in life, life
            assert "headwater repair" in life
        else:
            kept = sum(b.records for b in batches if b.entry < batch.entry and not b.internal)
            assert len(life.values("orders")) == kept, what
        verdicts[witnessed] += 1
        tried("kafka: damage before and behind events")
    assert min(verdicts.values()) > 5, verdicts


def test_a_stretch_of_zeros_before_an_event_is_refused() -> None:
    _, saved, synced, batches = tail()
    firsts = [batch for batch in batches if saved <= batch.entry < synced]
    for first in firsts:
        for path, begin, end in (
            (LOG, first.begin, firsts[-1].end),
            (INDEX, first.entry * ENTRY_BYTES, synced * ENTRY_BYTES),
        ):
            disk = damaged(path, begin, end - begin)
            assert disk is not None
            refused = opens_or_refuses(disk, TELLING)
            assert isinstance(refused, str)
            assert f"0.log at byte {first.begin}" in refused


def test_an_event_that_is_damaged_itself_leaves_the_one_before_it() -> None:
    image, _, _, batches = tail()
    *_, before, last = [batch for batch in batches if batch.synced is not None]
    early, late = before.synced, last.synced
    assert early is not None
    assert late is not None
    for entry, witnessed in ((early - 1, True), (early, False), (late - 1, False)):
        [batch] = [b for b in batches if b.entry <= entry < b.entry + b.records]
        disk = FakeDisk(image=image)
        disk.damage(LOG, last.end - 2, b"\xff")
        disk.damage(LOG, batch.end - 2, b"\xff")
        assert isinstance(opens_or_refuses(disk, TELLING), str) == witnessed, entry


def test_a_log_without_events_is_cut_as_it_always_was() -> None:
    life, disk, saved = written(LARGE_KAFKA)
    assert not events_of(disk)
    second = [batch for batch in batches_of(disk) if batch.entry >= saved][1]
    disk.damage(LOG, second.end - 2, b"\xff")
    again = KafkaLife(disk, TELLING, life.clock)
    assert again.store.cut is not None
    assert again.store.cut.offset == second.begin
    assert again.values("orders") == [b"old", b"0.0"]
    again.append("orders", batch_of("new"))
    again.append("orders", batch_of("newer"))
    assert KafkaLife(disk.after_power_loss(), TELLING).values("orders")[2:] == [b"new", b"newer"]


@pytest.mark.parametrize("plan", ["drops", "random"])
def test_no_crash_is_taken_for_damage(plan: str) -> None:
    story = KafkaStory(LARGE_KAFKA)
    story.create("orders", 1)
    story.checkpoint()
    for number in range(3):
        story.append("orders", 0, f"s{number}")
        story.append("orders", 0, f"d{number}", sure=False)
        story.life.clock.advance(LARGE_KAFKA.synced_event_interval_ms * 1_000)
        story.append("orders", 0, f"e{number}", f"f{number}", sure=False)
    story.append("orders", 0, "last")
    chosen = {"drops": DROPS, "random": replace(RANDOM, random_states=12)}[plan]
    for state in slice_of(story.states(chosen), 1, always=60):
        story.judge(state)
        tried(f"kafka: {plan} between events")
    # Each stands behind a write that was not synced when it was written itself.
    assert [e.entry - (e.synced or 0) for e in events_of(story.disk)] == [1, 1, 1]


def test_an_event_vouches_for_no_more_than_the_last_sync() -> None:
    life = KafkaLife(settings=TELLING)
    assert isinstance(life.disk, FakeDisk)
    life.create("orders")
    life.append("orders", batch_of("synced"))
    for _ in range(3):
        life.append("orders", batch_of("written"), durability=Durability.DISK)
    life.append("orders", batch_of("last"))
    # The second says nothing about what was only written before it.
    assert [batch.synced for batch in events_of(life.disk)] == [1, 3]
    assert [batch.entry for batch in events_of(life.disk)] == [1, 3]


def test_an_event_rides_in_a_group_and_costs_no_call() -> None:
    disk = FaultDisk(FakeDisk(["/data"]))
    life = KafkaLife(disk, replace(TELLING, log_ahead_bytes=2**16, index_ahead_bytes=2**16))
    life.create("orders")
    inner = disk.inner
    assert isinstance(inner, FakeDisk)
    for _ in range(4):
        calls, events = len(disk.calls), len(events_of(inner))
        life.append("orders", batch_of("one"))
        made = [(call.verb, call.path.name) for call in disk.calls[calls:]]
        assert made == [
            (Verb.WRITE, "0.log"),
            (Verb.WRITE, "0.oidx"),
            (Verb.SYNC_DATA, "0.log"),
            (Verb.SYNC_DATA, "0.oidx"),
        ]
        assert len(events_of(inner)) == events + 1


def test_events_come_with_time_or_bytes_and_not_behind_a_checkpoint() -> None:
    settings = replace(LARGE_KAFKA, synced_event_bytes=3 * len(batch_of("x" * 90)))
    life = KafkaLife(settings=settings)
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    life.create("orders")

    def grew(*words: str) -> int:
        before = len(events_of(disk))
        for word in words:
            life.append("orders", batch_of(word))
        return len(events_of(disk)) - before

    assert grew("a", "b") == 0
    life.clock.advance(settings.synced_event_interval_ms * 1_000)
    assert grew("c", "d") == 1
    assert grew("x" * 90, "y" * 90) == 0
    assert grew("z" * 90, "e") == 1
    life.clock.advance(5_000_000)
    life.store.checkpoint()
    assert grew("g") == 0  # the checkpoint vouches for all before
    assert grew("h") == 1
    life.clock.advance(60_000_000)
    assert life.owner.shard is not None
    written = len(disk.files()[LOG].rstrip(b"\0"))
    life.owner.shard.tick()
    assert len(disk.files()[LOG].rstrip(b"\0")) == written  # nothing is said to nobody


def test_events_stay_inside_the_segment_they_are_about() -> None:
    life = KafkaLife(settings=TELLING_KAFKA)
    assert isinstance(life.disk, FakeDisk)
    life.create("orders")
    for number in range(40):
        life.append("orders", batch_of("x" * (number * 7 % 90)))
    logs = [path for path in life.disk.files() if path.suffix == ".log"]
    assert len(logs) > 4
    for path in logs:
        assert len(life.disk.files()[path]) <= TELLING_KAFKA.segment_bytes + 1_000
        batches = batches_of(life.disk, int(path.stem))
        assert batches[-1].end <= TELLING_KAFKA.segment_bytes
        assert all(batch.synced == batch.entry for batch in batches if batch.synced is not None)


def test_the_reserve_of_a_full_disk_is_not_spent_on_events() -> None:
    life = KafkaLife(settings=TELLING)
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    life.create("orders")
    life.append("orders", batch_of("one"))
    events = len(events_of(disk))
    disk.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        life.append("orders", batch_of("x" * 1_000))
    for offset in range(2):
        rows = {("orders", 0): Committed(offset)}
        life.do(partial(life.store.commit_offsets, 1, "readers", rows))
    assert len(events_of(disk)) == events
    disk.capacity_bytes = None
    life.clock.advance(2_000_000)
    life.append("orders", batch_of("two"))
    assert len(events_of(disk)) == events + 1


@pytest.mark.parametrize(("said", "believed"), [(2, 2), (3, 3), (4, 0), (2**40, 0)])
def test_nobody_vouches_for_what_follows_him(said: int, believed: int) -> None:
    batch = encode_event(Synced(said), 1)
    log = memoryview(len(batch).to_bytes(4, "little") + batch)
    index = pack_entries(7, 999, 50, b"k" * 28, 3) + pack_entries(7, 0, len(batch), INTERNAL_KEY, 1)
    entries = read_entries(index, 4)
    assert entries_known_synced(7, entries, 1, log) == believed
    assert entries_known_synced(8, entries, 1, log) == 0  # of another log
