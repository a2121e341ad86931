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
from headwater.engine.kafka.errors import DamagedBatchError
from headwater.format.kafka.names import CHECKPOINT_NAME, COPY_NAME, SPARE_NAME
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
from tests.rig.kafka import KAFKA, TELLING_KAFKA, KafkaLife, batch_of

pytestmark = pytest.mark.crash

Seen = dict[Place, tuple[int, list[bytes]]]


@cache
def stopped() -> tuple[Image, Seen]:
    """A store after a clean stop, and what is in it."""
    story = told()
    seen = seen_in(story.life)
    story.life.close()
    return story.disk.snapshot(), seen


@cache
def killed() -> tuple[Image, Seen]:
    """A store in the middle of its work: the last segments are younger than the checkpoint."""
    story = KafkaStory()
    tell(story)
    for number in range(3):
        story.append("clicks", 0, f"d{number}" * 20)
        story.append("orders", 0, f"e{number}" * 20, f"f{number}")
    return story.disk.after_kill().snapshot(), seen_in(story.life)


LIVES = {"stopped": stopped, "killed": killed}


def files_of(image: Image) -> dict[PurePath, bytes]:
    files = FakeDisk(image=image).files().items()
    return {path: data for path, data in files if data and path.name != SPARE_NAME}


def kind_of(path: PurePath) -> str:
    return path.suffix.removeprefix(".") or path.name


def judge(disk: FakeDisk, seen: Seen, what: str) -> str:
    """Refused, refused when it is read, told, or all there and the same. Nothing else may be."""
    before = disk.files()
    life = opens_or_refuses(disk)
    if isinstance(life, str):
        assert str(KAFKA) in life, f"{what}: does not say where: {life}"
        assert disk.files() == before, f"{what}: refused, and changed"
        return "refused"
    files = disk.files()
    assert files[KAFKA / CHECKPOINT_NAME] == files[KAFKA / COPY_NAME], f"{what}: left as they were"
    told = bool(life.store.report.findings)
    verdict = "told" if told else "same"
    assert told or set(seen_topics(life)) == set(seen), f"{what}: topics went in silence"
    for name, index in seen_topics(life):
        start, values = seen[name, index]
        partition = life.partition(name, index)
        found = values_or_refusal(life, name, index)
        if isinstance(found, str):
            assert ".log at byte" in found, f"{what}: does not say where: {found}"
            verdict = "refused when read"
            continue
        begin = partition.log_start_offset
        if told:  # a cut takes what is behind it, records and deletions
            assert begin <= start, what
            kept = found[start - begin :]
            assert kept == values[: len(kept)], f"{what}: other records"
        else:
            assert (begin, found) == (start, values), f"{what}: silent"
    again = opens_or_refuses(disk.after_kill())
    assert not isinstance(again, str), f"{what}: opened once and not twice: {again}"
    return verdict


def values_or_refusal(life: KafkaLife, name: str, index: int) -> list[bytes] | str:
    try:
        return life.values(name, index)
    except DamagedBatchError as error:
        return str(error)


def seen_topics(life: KafkaLife) -> list[Place]:
    return [(t.name, p.index) for t in life.store.topics(1) for p in t.partitions]


@pytest.mark.parametrize("life", LIVES)
def test_a_flipped_bit_in_any_byte_of_any_file_is_never_silent(life: str) -> None:
    image, seen = LIVES[life]()
    verdicts: set[tuple[str, str]] = set()
    flips = [(path, at) for path, data in files_of(image).items() for at in range(len(data))]
    for path, at in slice_of(flips, 7):
        disk = FakeDisk(image=image)
        byte = disk.files()[path][at]
        disk.damage(path, at, bytes([byte ^ (1 << at % 8)]))
        verdict = judge(disk, seen, f"bit {at % 8} of byte {at} of {path}")
        kind = kind_of(path)
        if kind in ("checkpoint", "copy") or life == "stopped":
            assert verdict != "same" or kind == "log", f"byte {at} of {path}"
        verdicts.add((kind, verdict))
        tried(f"kafka, {life}: a bit of {kind}: {verdict}")
    kinds = {(kind, verdict) for kind, verdict in verdicts if kind in ("checkpoint", "copy")}
    assert kinds <= {("checkpoint", "told"), ("checkpoint", "refused"), ("copy", "told")}
    assert {("oidx", "refused"), ("log", "refused when read")} <= verdicts


@pytest.mark.parametrize("life", LIVES)
def test_a_file_cut_anywhere_is_never_silent(life: str) -> None:
    image, seen = LIVES[life]()
    files = files_of(image)
    cuts = [(path, at) for path, data in files.items() for at in range(len(data))]
    for path, at in slice_of(cuts, 7):
        disk = FakeDisk(image=image)
        disk.truncate_file(path, at)
        verdict = judge(disk, seen, f"{path} cut at {at}")
        kind = kind_of(path)
        if kind in ("checkpoint", "copy"):
            assert verdict == "told", f"{path} cut at {at}"
        elif life == "stopped":
            assert verdict == "refused", f"{path} cut at {at}"
        tried(f"kafka, {life}: {kind} cut: {verdict}")


def test_a_missing_file_is_refused_and_a_missing_checkpoint_is_written_again() -> None:
    image, seen = stopped()
    for path in files_of(image):
        disk = FakeDisk(image=image)
        disk.unlink(path)
        expected = "told" if kind_of(path) in ("checkpoint", "copy") else "refused"
        assert judge(disk, seen, f"{path} missing") == expected


@pytest.mark.parametrize("gone", [CHECKPOINT_NAME, COPY_NAME])
def test_a_crash_costs_nothing_with_whichever_checkpoint_is_whole(gone: str) -> None:
    """The copy may be the older one: nothing was removed yet that only it leads to."""
    story = told()
    for state in slice_of(story.states(KILL), 3):
        files = state.files()
        if KAFKA / CHECKPOINT_NAME in files and KAFKA / COPY_NAME in files:
            state.damage(KAFKA / gone, 33, b"\x13\xf1")
            state.label += f", {gone} damaged"
            story.judge(state)
            tried("kafka: crashes with one checkpoint")


def test_both_checkpoints_damaged_are_refused_and_both_are_named() -> None:
    image, _ = stopped()
    disk = FakeDisk(image=image)
    for name in (CHECKPOINT_NAME, COPY_NAME):
        disk.damage(KAFKA / name, 60, b"\xff\xff")
    refused = opens_or_refuses(disk)
    assert isinstance(refused, str)
    assert f"{KAFKA / CHECKPOINT_NAME} at byte 24" in refused
    assert COPY_NAME in refused


def test_what_a_start_cuts_or_cannot_place_is_in_quarantine() -> None:
    life = KafkaLife()
    life.create("orders")
    life.store.checkpoint()
    for word in ("one", "two"):
        life.append("orders", batch_of(word), durability=Durability.DISK)
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    log = disk.files()[KAFKA / "0.log"]
    disk.damage(KAFKA / "0.log", log.index(b"two"), b"tvo")
    disk.write_file(KAFKA / "7.log", b"not nothing")
    disk.write_file(KAFKA / "7.oidx", bytes(80))
    before = disk.files()
    store = KafkaLife(disk).store
    assert store.cut is not None
    put_aside = {
        path.name: data for path, data in disk.files().items() if "quarantine" in str(path)
    }
    assert put_aside["7.log"] == b"not nothing"
    torn = put_aside[f"0.log.{store.cut.offset}.torn"]
    assert torn == before[KAFKA / "0.log"][store.cut.offset :].rstrip(b"\0")
    assert b"tvo" in torn
    assert [name for name in put_aside if name.startswith("0.oidx.")]
    lines = [finding.line() for finding in store.report.findings]
    assert any("0.log at byte" in line and "cut" in line for line in lines), lines
    assert any("7.log" in line and "moved to quarantine" in line for line in lines), lines


def test_an_index_emptied_behind_the_checkpoint_is_damage_when_its_log_knows_better() -> None:
    life = KafkaLife(settings=TELLING_KAFKA)
    life.create("orders")
    life.store.checkpoint()
    while life.store.core.active_number == 0:
        life.append("orders", batch_of("x" * 80))
    for _ in range(3):
        life.append("orders", batch_of("y" * 40))
    assert isinstance(life.disk, FakeDisk)
    disk = life.disk.after_kill()
    disk.write_file(KAFKA / "1.oidx", bytes(len(disk.files()[KAFKA / "1.oidx"])))
    refused = opens_or_refuses(disk)
    assert isinstance(refused, str)
    assert "whose log says that it had some" in refused
    assert str(KAFKA / "1.") in refused


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
