"""Repairing Kafka's log: after any damage it opens again, and no offset means another record."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from headwater.core.errors import HeadwaterError
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.checkpoint import KafkaCheckpoint, decode_checkpoint
from headwater.format.kafka.names import CHECKPOINT_NAME, COPY_NAME
from headwater.format.kafka.records import decode_records
from headwater.recovery.finding import StepKind
from headwater.recovery.kafka.plan import KafkaRepairPlan, plan_kafka_repairs
from headwater.recovery.kafka.repair import recover_kafka
from headwater.recovery.kafka.verify import check_kafka_segment, join_kafka, plan_kafka
from headwater.recovery.kafka.view import KafkaView
from headwater.server.kafka.refusals import code_of
from headwater.testing import CHANGING_VERBS, CrashPoint, FakeDisk, FaultDisk, SimulatedCrash
from headwater.wire.kafka.apis import ErrorCode
from tests.crash.kafka_story import ends_in, opens_or_refuses
from tests.crash.matrix import slice_of, tried
from tests.crash.test_kafka_damage import LIVES, Seen, files_of, kind_of, stopped
from tests.rig.kafka import KAFKA, TELLING_KAFKA, KafkaLife, batch_of

pytestmark = pytest.mark.crash


def repaired(disk: FakeDisk) -> KafkaRepairPlan:
    (plan,) = plan_kafka_repairs(disk, KAFKA)
    plan.carry_out(disk)
    assert plan_kafka_repairs(disk, KAFKA) == []
    return plan


def each_offset(life: KafkaLife, name: str, index: int) -> dict[int, bytes | None]:
    """What a consumer gets at every offset; None where it is told of damage."""
    partition = life.partition(name, index)
    found: dict[int, bytes | None] = {}
    for offset in range(partition.log_start_offset, partition.high_watermark):
        found[offset] = value_at(life, name, index, offset)
    return found


def value_at(life: KafkaLife, name: str, index: int, offset: int) -> bytes | None:
    try:
        batch = life.fetch(name, offset, 1, index)[0]
    except HeadwaterError as error:
        if code_of(error) != ErrorCode.CORRUPT_MESSAGE:
            raise
        return None
    base = read_header(batch).base_offset
    values = {base + each.offset_delta: each.value for each in decode_records(batch)}
    return values[offset]


def judge(disk: FakeDisk, seen: Seen, what: str) -> str:
    """The same at every offset, or told; and what comes next has offsets nobody ever had."""
    plan = repaired(disk)
    life = opens_or_refuses(disk)
    assert not isinstance(life, str), f"{what}: repaired, and still refused: {life}"
    if any(step.kind is StepKind.QUARANTINE for step in plan.steps):
        assert not list(life.store.topics(1)), what
        return "begun anew"
    lost = 0
    for (name, index), (start, values) in seen.items():
        if life.store.topic(1, name) is None:
            lost += 1
            continue
        end = start + len(values)
        for offset, value in each_offset(life, name, index).items():
            lost += value is None
            if value is not None and start <= offset < end:
                assert value == values[offset - start], f"{what}: {name}/{index} at {offset}"
        partition = life.partition(name, index)
        assert partition.high_watermark >= end or life.store.cut, f"{what}: {name}/{index} ends"
        given = life.append(name, batch_of("next"), index).base_offset
        assert given >= end or life.store.cut, f"{what}: {name}/{index} gave {given} again"
    again = KafkaLife(disk.after_power_loss(), TELLING_KAFKA)
    for name, index in seen:
        if again.store.topic(1, name) is not None:
            assert list(each_offset(again, name, index).values())[-1] == b"next", what
    told = sum(step.lost or 0 for step in plan.steps)
    assert told or not lost, f"{what}: {lost} lost, and the plan says none"
    return "holes" if told else "nothing lost"


def sound(disk: FakeDisk) -> bool:
    return not plan_kafka_repairs(disk, KAFKA)


@pytest.mark.parametrize("life", LIVES)
def test_after_any_flipped_byte_a_repair_makes_it_open_and_no_offset_moves(life: str) -> None:
    image, seen = LIVES[life]()
    verdicts: set[str] = set()
    flips = [(path, at) for path, data in files_of(image).items() for at in range(len(data))]
    for path, at in slice_of(flips, 7):
        disk = FakeDisk(image=image)
        disk.damage(path, at, bytes([disk.files()[path][at] ^ (1 << at % 8)]))
        if is_newer_or_sound(disk):
            continue
        verdict = judge(disk, seen, f"bit {at % 8} of byte {at} of {path}")
        verdicts.add(verdict)
        tried(f"kafka repaired, {life}: a bit of {kind_of(path)}: {verdict}")
    assert "nothing lost" in verdicts


@pytest.mark.parametrize("kind", ["log", "oidx"])
@pytest.mark.parametrize("life", LIVES)
def test_after_any_cut_a_repair_makes_it_open_and_no_offset_moves(life: str, kind: str) -> None:
    image, seen = LIVES[life]()
    verdicts: set[str] = set()
    files = [(path, data) for path, data in files_of(image).items() if kind_of(path) == kind]
    cuts = [(path, at) for path, data in files for at in range(len(data))]
    for path, at in slice_of(cuts, 7):
        disk = FakeDisk(image=image)
        disk.truncate_file(path, at)
        if is_newer_or_sound(disk):
            continue
        verdict = judge(disk, seen, f"{path} cut at {at}")
        verdicts.add(verdict)
        tried(f"kafka repaired, {life}: {kind} cut: {verdict}")
    assert ({"log": "holes", "oidx": "nothing lost"}[kind]) in verdicts


def is_newer_or_sound(disk: FakeDisk) -> bool:
    refused = opens_or_refuses(disk.clone())
    return not isinstance(refused, str) or "version" in refused


def test_a_missing_file_is_put_together_again_or_becomes_holes() -> None:
    image, seen = stopped()
    for path in files_of(image):
        disk = FakeDisk(image=image)
        disk.unlink(path)
        if not is_newer_or_sound(disk):
            tried(f"kafka repaired: {kind_of(path)} missing: {judge(disk, seen, str(path))}")


def damaged_log() -> tuple[FakeDisk, Seen]:
    """The second of three batches in a full segment cannot be read."""
    image, seen = stopped()
    disk = FakeDisk(image=image)
    checkpoint = decode_checkpoint(disk.files()[KAFKA / CHECKPOINT_NAME])
    log = KAFKA / f"{checkpoint.segments[0].log_number}.log"
    disk.truncate_file(log, len(disk.files()[log]) - 1)
    return disk, seen


def test_a_plan_says_which_offsets_of_which_partition_are_given_up() -> None:
    disk, _ = damaged_log()
    (plan,) = plan_kafka_repairs(disk, KAFKA)
    (lost,) = [step for step in plan.steps if step.lost]
    assert "kafka:" in lost.what
    assert "offset" in lost.what
    assert lost.unit == "record"
    before = disk.files()
    assert plan_kafka_repairs(disk, KAFKA) == [plan]
    assert disk.files() == before, "looking changed something"


def test_what_a_repair_replaces_is_in_quarantine() -> None:
    image, _ = stopped()
    disk = FakeDisk(image=image)
    index = next(path for path in files_of(image) if path.suffix == ".oidx")
    disk.damage(index, 3, b"\x10")
    before = disk.files()[index]
    repaired(disk)
    kept = [data for path, data in disk.files().items() if path.parent.name == "quarantine"]
    assert before in kept
    assert disk.files()[index] == FakeDisk(image=image).files()[index]


@pytest.mark.parametrize("damage", ["log", "index"])
def test_a_crash_in_the_middle_of_a_repair_is_harmless(damage: str) -> None:
    image, seen = stopped()

    def broken() -> FakeDisk:
        if damage == "log":
            return damaged_log()[0]
        disk = FakeDisk(image=image)
        index = next(path for path in files_of(image) if path.suffix == ".oidx")
        disk.damage(index, 3, b"\x10")
        return disk

    whole = broken()
    counting = FaultDisk(whole)
    (plan,) = plan_kafka_repairs(counting, KAFKA)
    plan.carry_out(counting)
    left = kept_of(whole)
    for nth in range(len(counting.calls_of(CHANGING_VERBS))):
        disk = broken()
        with pytest.raises(SimulatedCrash):
            plan.carry_out(FaultDisk(disk, crash=CrashPoint(nth)))
        for state in (disk.after_kill(), disk.after_power_loss()):
            for again in plan_kafka_repairs(state, KAFKA):
                again.carry_out(state)
            assert kept_of(state) == left, f"call {nth}"
            life = KafkaLife(state, TELLING_KAFKA)
            for place, (start, values) in seen.items():
                found = each_offset(life, *place)
                assert all(v in (None, values[at - start]) for at, v in found.items()), place
            tried(f"kafka repaired: crashes in a repair of a {damage}")


def kept_of(disk: FakeDisk) -> dict[PurePath, bytes]:
    files = disk.files().items()
    kept = {path: data for path, data in files if path.parent == KAFKA}
    return {path: data for path, data in kept.items() if path.suffix in (".log", ".oidx")}


def test_without_both_checkpoints_a_log_that_goes_back_to_its_beginning_loses_nothing() -> None:
    life = KafkaLife(settings=TELLING_KAFKA)
    life.create("orders", 2)
    for number in range(30):
        life.append("orders", batch_of(f"o{number}"), number % 2)
    life.close()
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    for name in (CHECKPOINT_NAME, COPY_NAME):
        disk.damage(KAFKA / name, 50, b"\xff\xff")
    plan = repaired(disk)
    assert plan.checkpoint == KafkaCheckpoint()
    again = KafkaLife(disk, TELLING_KAFKA)
    for index in range(2):
        assert again.values("orders", index) == [f"o{n}".encode() for n in range(index, 30, 2)]


def test_without_both_checkpoints_a_log_that_was_compacted_is_begun_anew_from_quarantine() -> None:
    image, seen = stopped()
    disk = FakeDisk(image=image)
    for name in (CHECKPOINT_NAME, COPY_NAME):
        disk.damage(KAFKA / name, 50, b"\xff\xff")
    before = {path.name: data for path, data in disk.files().items() if path.parent == KAFKA}
    assert judge(disk, seen, "both checkpoints") == "begun anew"
    files = disk.files().items()
    kept = {path.name: data for path, data in files if path.parent.name == "quarantine"}
    assert kept == before


def test_a_hole_outlives_checkpoints_retention_and_rewriting() -> None:
    life = KafkaLife(settings=TELLING_KAFKA)
    life.create("orders")
    life.create("clicks")
    for number in range(40):
        life.append("orders", batch_of(f"o{number}" + "." * 30))
        life.append("clicks", batch_of(f"c{number}" + "." * 60))
    life.close()
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    first = min(disk.files(), key=lambda path: (path.suffix != ".log", path.name))
    disk.truncate_file(first, len(disk.files()[first]) // 2)
    repaired(disk)
    life = KafkaLife(disk, TELLING_KAFKA)
    before = each_offset(life, "orders", 0)
    assert None in before.values()
    life.do(lambda: life.partition("clicks").delete_records(35))
    for _ in range(3):
        life.store.housekeep()
    assert life.store.counters.segments_rewritten
    assert each_offset(life, "orders", 0) == before
    life = life.reopen()
    assert each_offset(life, "orders", 0) == before
    life.do(lambda: life.partition("orders").delete_records(38))
    for _ in range(3):
        life.store.housekeep()
    assert each_offset(life, "orders", 0) == {n: before[n] for n in (38, 39)}


def test_a_segment_of_nothing_but_holes_stays_while_there_are_records_before_it() -> None:
    life = KafkaLife(settings=TELLING_KAFKA)
    life.create("orders")
    while life.store.core.active_number < 3:
        life.append("orders", batch_of("o" * 60))
    life.close()
    disk = life.disk
    assert isinstance(disk, FakeDisk)
    disk.unlink(KAFKA / "1.log")
    repaired(disk)
    life = KafkaLife(disk, TELLING_KAFKA)
    before = each_offset(life, "orders", 0)
    lost = [offset for offset, value in before.items() if value is None]
    assert lost
    assert 0 not in lost
    assert len(before) - 1 not in lost
    for _ in range(2):
        life.store.core.reclaim_soon()
        life.store.housekeep()
    assert each_offset(life, "orders", 0) == before
    life.do(lambda: life.partition("orders").delete_records(lost[-1] + 1))
    for _ in range(2):
        life.store.housekeep()
    assert life.store.counters.segments_deleted == 2
    assert each_offset(life, "orders", 0) == {n: v for n, v in before.items() if n > lost[-1]}


def test_verify_and_whoever_looks_beside_know_a_hole() -> None:
    disk, _ = damaged_log()
    repaired(disk)
    recover_kafka(disk, KAFKA)
    plan = plan_kafka(disk, KAFKA)
    checks = [check_kafka_segment(disk, each) for each in plan.segments]
    faults = join_kafka(plan, checks)
    assert [fault for fault in faults if fault.bad] == []
    assert any("a repair gave up" in fault.what for fault in faults)
    life = KafkaLife(disk.clone())
    ends = {
        (topic.name, each.index): each.high_watermark
        for topic in life.store.topics(1)
        for each in topic.partitions
    }
    assert ends_in(KafkaView(disk, KAFKA)) == ends
