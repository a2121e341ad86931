"""Damage and disk errors under Kafka's shared log: found and said, never served, never worse.

After a clean stop every byte is vouched for: by the checkpoint's own checksum, by its checksums of
the indexes, by the CRC of each batch.
"""

from __future__ import annotations

import errno
from functools import cache
from pathlib import PurePath

import pytest

from headwater.core.durability import Durability
from headwater.core.errors import DiskFullError, HeadwaterError, PoisonedError, SyncError
from headwater.engine.kafka.errors import KafkaError
from headwater.format.kafka.names import SPARE_NAME
from headwater.testing import (
    CHANGING_VERBS,
    FAILING_VERBS,
    KILL,
    POWER_LOSS,
    SPACE_VERBS,
    CrashPoint,
    FakeDisk,
    Fault,
    FaultDisk,
    SimulatedCrash,
    Verb,
)
from headwater.testing.trace import Image
from headwater.wal.committer import LogState
from tests.crash.kafka_story import KafkaStory, Place, opens_or_refuses, seen_in, tell, told
from tests.crash.matrix import slice_of, tried
from tests.rig.kafka import KAFKA, KafkaLife, batch_of

pytestmark = pytest.mark.crash

Seen = dict[Place, tuple[int, list[bytes]]]


@cache
def stopped() -> tuple[Image, Seen]:
    """A store after a clean stop, and what is in it."""
    story = told()
    seen = seen_in(story.life)
    story.life.close()
    return story.disk.snapshot(), seen


def files_of(image: Image) -> dict[PurePath, bytes]:
    files = FakeDisk(image=image).files().items()
    return {path: data for path, data in files if data and path.name != SPARE_NAME}


def judge(disk: FakeDisk, seen: Seen, what: str) -> str:
    """Refused, refused when it is read, or all there."""
    life = opens_or_refuses(disk)
    if isinstance(life, str):
        assert str(KAFKA) in life, f"{what}: does not say where: {life}"
        return "refused"
    verdict = "harmless"
    for (name, index), (start, values) in seen.items():
        partition = life.partition(name, index)
        assert partition.high_watermark == start + len(values), what
        found = values_or_refusal(life, name, index)
        if isinstance(found, str):
            assert ".log at byte" in found, f"{what}: does not say where: {found}"
            verdict = "refused when read"
            continue
        assert (partition.log_start_offset, found) == (start, values), what
    assert set(seen_topics(life)) == set(seen), what
    return verdict


def values_or_refusal(life: KafkaLife, name: str, index: int) -> list[bytes] | str:
    try:
        return life.values(name, index)
    except KafkaError as error:
        return str(error)


def seen_topics(life: KafkaLife) -> list[Place]:
    return [(t.name, p.index) for t in life.store.topics(1) for p in t.partitions]


def test_a_flipped_bit_is_found_in_every_byte_of_every_file() -> None:
    image, seen = stopped()
    verdicts: set[str] = set()
    flips = [(path, at) for path, data in files_of(image).items() for at in range(len(data))]
    for path, at in slice_of(flips, 7):
        disk = FakeDisk(image=image)
        byte = disk.files()[path][at]
        disk.damage(path, at, bytes([byte ^ (1 << at % 8)]))
        verdict = judge(disk, seen, f"bit {at % 8} of byte {at} of {path}")
        assert verdict != "harmless" or path.suffix != ".oidx"
        verdicts.add(verdict)
        tried("kafka: flipped bits")
    assert {"refused", "refused when read"} <= verdicts


def test_a_file_cut_anywhere_is_refused() -> None:
    image, seen = stopped()
    cuts = [(path, at) for path, data in files_of(image).items() for at in range(len(data))]
    for path, at in slice_of(cuts, 7):
        disk = FakeDisk(image=image)
        disk.truncate_file(path, at)
        assert judge(disk, seen, f"{path} cut at {at}") == "refused"
        tried("kafka: cut files")


def test_a_missing_file_is_refused() -> None:
    image, seen = stopped()
    for path in files_of(image):
        disk = FakeDisk(image=image)
        disk.unlink(path)
        assert judge(disk, seen, f"{path} missing") == "refused"


def test_damage_behind_the_checkpoint_costs_only_what_is_behind_it() -> None:
    story = KafkaStory()
    tell(story)
    for number in range(3):  # nothing of this is in the checkpoint
        story.append("clicks", 0, f"d{number}")
        story.append("orders", 0, f"e{number}", f"f{number}")
    image, seen = story.disk.after_kill().snapshot(), seen_in(story.life)
    flips = [(path, at) for path, data in files_of(image).items() for at in range(len(data))]
    for path, at in slice_of(flips, 11):
        disk = FakeDisk(image=image)
        disk.damage(path, at, bytes([disk.files()[path][at] ^ 0x10]))
        life = opens_or_refuses(disk)
        if isinstance(life, str):
            continue
        for place in seen_topics(life):
            start, values = seen[place]
            found = values_or_refusal(life, *place)
            if isinstance(found, str):
                continue
            begin = life.partition(*place).log_start_offset
            assert begin <= start
            assert found[start - begin :] == values[: max(len(found) - start + begin, 0)]
        tried("kafka: flipped bits behind the checkpoint")


def test_what_was_cut_never_comes_back() -> None:
    life = KafkaLife()
    life.create("orders")
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    life.store.checkpoint()
    for word in ("one", "two", "six"):
        life.append("orders", batch_of(word), durability=Durability.DISK)
    log = disk.files()[KAFKA / "0.log"]
    disk.damage(KAFKA / "0.log", log.index(b"two"), b"tvo")
    again = KafkaLife(disk)
    assert again.store.cut is not None
    assert again.values("orders") == [b"one"]
    again.append("orders", batch_of("new"))
    assert KafkaLife(disk.after_kill()).values("orders") == [b"one", b"new"]


def test_what_recovery_found_is_synced_before_anybody_relies_on_it() -> None:
    life = KafkaLife()
    life.create("orders")
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    life.append("orders", batch_of("unsynced"), durability=Durability.DISK)
    again = KafkaLife(disk)  # the process was killed, the machine was not
    again.store.checkpoint()
    assert KafkaLife(disk.after_power_loss()).values("orders") == [b"unsynced"]


def test_a_sync_that_failed_for_a_checkpoint_stops_acks_too() -> None:
    inner = FakeDisk(["/data"])
    disk = FaultDisk(inner)
    life = KafkaLife(disk)
    life.create("orders")
    life.append("orders", batch_of("unsynced"), durability=Durability.DISK)
    disk.add(Fault(Verb.SYNC_DATA, errno.EIO, path="*.log", clean_after_error=True))
    with pytest.raises(SyncError):
        life.store.checkpoint()
    disk.clear()
    with pytest.raises(PoisonedError):
        life.append("orders", batch_of("later"))
    assert life.values("orders") == [b"unsynced"]  # reading goes on


def test_pages_that_a_failed_sync_dropped_are_written_again() -> None:
    inner = FakeDisk(["/data"])
    disk = FaultDisk(inner)
    life = KafkaLife(disk)
    life.create("orders")
    for path in ("*.log", "*.oidx"):
        disk.add(Fault(Verb.SYNC_DATA, errno.EIO, path=path, clean_after_error=True))
    with pytest.raises(PoisonedError):
        life.append("orders", batch_of("dropped"))
    again = KafkaLife(inner)  # the machine runs on, and shows what it will never write
    assert again.values("orders") == [b"dropped"]
    again.append("orders", batch_of("acked"))
    left = KafkaLife(inner.after_power_loss())
    assert left.values("orders") == [b"dropped", b"acked"]


def faulty() -> tuple[KafkaStory, FaultDisk]:
    disk = FaultDisk(FakeDisk(["/data"]))
    return KafkaStory(disk=disk), disk


def tell_with(fault: Fault) -> tuple[KafkaStory, FaultDisk, Exception | None]:
    story, disk = faulty()
    disk.add(fault)
    try:
        tell(story)
    except (HeadwaterError, OSError) as error:
        return story, disk, error
    return story, disk, None


@cache
def calls_of(verbs: frozenset[Verb]) -> int:
    story, disk = faulty()
    before = len(disk.calls_of(verbs))
    tell(story)
    return len(disk.calls_of(verbs)) - before


def judge_restarts(story: KafkaStory, label: str) -> None:
    for plan in (KILL, POWER_LOSS):
        for state in story.disk.crash_states(story.disk.point, plan):
            state.label = f"{label}; then {state.label}"
            story.judge(state)


def test_a_failed_call_loses_nothing_that_was_acked() -> None:
    for nth in slice_of(range(calls_of(FAILING_VERBS)), 3):
        fault = Fault(FAILING_VERBS, errno.EIO, nth=nth, clean_after_error=True)
        story, disk, error = tell_with(fault)
        label = f"call {nth} failed: {error}"
        disk.clear()
        if story.life.store.state is LogState.POISONED and not story.life.store.core.closing:
            with pytest.raises(PoisonedError):
                story.life.create("refused")
        judge_restarts(story, label)
        tried("kafka: failed calls")


def test_a_full_disk_refuses_writes_and_resumes_by_itself() -> None:
    for nth in slice_of(range(calls_of(SPACE_VERBS)), 3):
        fault = Fault(SPACE_VERBS - {Verb.SYNC_DATA}, errno.ENOSPC, nth=nth, always=True)
        story, disk, error = tell_with(fault)
        disk.clear()
        store = story.life.store
        if not store.core.closing and store.state is not LogState.POISONED:
            story.life.clock.advance(2_000_000)
            if store.topic(1, "orders") is not None:
                story.append("orders", 0, "after")
            else:
                story.create("orders", 2)
        assert not isinstance(error, PoisonedError), f"call {nth}"
        judge_restarts(story, f"no room from call {nth} on: {error}")
        tried("kafka: full disks")


def test_offsets_are_committed_and_records_deleted_on_a_full_disk() -> None:
    disk = FakeDisk(["/data"])
    story = KafkaStory(disk=FaultDisk(disk))
    story.create("orders", 1)
    story.append("orders", 0, "a", "b")
    disk.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        story.append("orders", 0, "x" * 1000)
    story.commit("orders", 0, 1)
    story.delete("orders", 0, 1)
    assert story.life.values("orders") == [b"b"]
    disk.capacity_bytes = None
    judge_restarts(story, "full")


def test_a_crash_inside_recovery_is_harmless() -> None:
    story = told()
    states = list(slice_of(story.states(KILL), 5, always=2))
    for state in states:
        counting = FaultDisk(state.clone())
        KafkaLife(counting)
        for nth in range(len(counting.calls_of(CHANGING_VERBS))):
            inner = state.clone()
            disk = FaultDisk(inner, crash=CrashPoint(nth))
            with pytest.raises(SimulatedCrash):
                KafkaLife(disk)
            for plan in (KILL, POWER_LOSS):
                for left in inner.crash_states(inner.point, plan):
                    left.crash_point, left.crash_kind = state.crash_point, state.crash_kind
                    story.judge(left)
                    tried("kafka: crashes in recovery")
