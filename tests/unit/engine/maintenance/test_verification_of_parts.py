"""Both verify verbs look at Kafka's log and at the machines, with the same findings."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath

import pytest

from headwater.engine.read_only.directory_check import verify_directory
from headwater.spark.jobs.verify import VerifyOptions, verify
from headwater.testing import FakeDisk, ManualClock
from tests.spark.workloads import Engine
from tests.unit.recovery.test_kafka_verify import image as kafka_image
from tests.unit.recovery.test_machine_verify import image as machines_image

DATA = PurePosixPath("/data")


def everything() -> FakeDisk:
    """One data directory with topics, partitions and machines in it."""
    engine = Engine()
    engine.do([("append", "one", 9, "a", 30), ("checkpoint",)])
    [root] = {path.parents[1] for path in engine.disk.files() if path.parent.name == "wal"}
    disk = FakeDisk(["/data"])
    for path, content in engine.disk.files().items():
        disk.write_file(DATA / path.relative_to(root), content)
    for image in (kafka_image(True), machines_image(True, True)):
        for path, content in FakeDisk(image=image).files().items():
            disk.write_file(path, content)
    return disk


def both(disk: FakeDisk) -> list[set[tuple[PurePath, int | None, str, bool]]]:
    report = verify_directory(disk, DATA, ManualClock(), lambda _: lambda _: None)
    by_engine = {(PurePath(f.path), f.offset, f.what, f.bad) for f in report.faults}
    job = verify(
        disk,
        ManualClock(),
        lambda function, items: [function(item) for item in items],
        VerifyOptions(path=str(DATA)),
    )
    by_job = {(PurePath(f.file), f.offset, f.meaning, f.bad) for f in job.findings}
    assert (report.kafka_batches, report.machine_entries) == (
        job.kafka_batches,
        job.machine_entries,
    )
    assert job.ok is not any(f.bad for f in report.faults)
    return [by_engine, by_job]


def test_a_directory_with_everything_in_it_is_sound() -> None:
    disk = everything()
    assert both(disk) == [set(), set()]
    report = verify_directory(disk, DATA, ManualClock(), lambda _: lambda _: None)
    assert report.kafka_segments > 2
    assert report.machine_segments > 0


@pytest.mark.parametrize("suffix", [".log", ".oidx", ".wal", ".snap", "checkpoint"])
def test_both_verbs_tell_the_same_faults(suffix: str) -> None:
    disk = everything()
    parts = (DATA / "kafka", DATA / "machines")
    path = next(
        path
        for path, content in sorted(disk.files().items())
        if path.name.endswith(suffix) and any(path.is_relative_to(part) for part in parts)
        if content.strip(b"\0")
    )
    content = bytearray(disk.files()[path])
    content[45] ^= 0x10
    disk.write_file(path, bytes(content))
    by_engine, by_job = both(disk)
    assert by_engine == by_job
    assert any(found[0] == path and found[3] for found in by_engine)


def test_a_volume_of_its_own_is_as_good_as_a_directory() -> None:
    """As a container has it: ext4 keeps `lost+found` at the top of every volume."""
    disk = everything()
    disk.make_directory(DATA / "lost+found")
    assert both(disk) == [set(), set()]
    disk.make_directory(DATA / "found+lost")
    for found in both(disk):
        assert [path.name for path, *_ in found] == ["found+lost"]
