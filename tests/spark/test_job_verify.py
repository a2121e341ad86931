"""Verify finds every fault that is planted, in every kind of file, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import PurePath
from typing import TypeVar

import pytest

from headwater.core.errors import RequestError
from headwater.format.checksum import checksum64
from headwater.format.frame import decode_frame
from headwater.format.log_state import decode_repairs
from headwater.format.mark import pack_mark
from headwater.format.names import REPAIRS_NAME, parse_wal_file_name, wal_file_name
from headwater.format.snapshot import SNAPSHOT_HEADER
from headwater.spark.jobs.verify import VerifyFinding, VerifyJobReport, VerifyOptions, verify
from headwater.testing import FakeDisk, ManualClock
from headwater.testing.trace import Image
from tests.crash.damage import SPECIMENS, Outcome, judge
from tests.crash.matrix import slice_of, tried
from tests.rig.life import COLD, DATA, Life, new_disk
from tests.rig.scripts import records
from tests.spark.workloads import Engine

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TOPIC_NAMES = ("one", "two")
NEVER_READ = ("LOCK", "prepared.next")
PADDING = range(SNAPSHOT_HEADER.offset_of("reserved"), SNAPSHOT_HEADER.offset_of("reserved") + 4)
EVERY = {"data": 97, "idx": 37, "cold": 37, "bin": 67, "log": 301, "CURRENT": 17}
"""Of each kind of file, one byte of so many is tried in the short form."""


def here(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    return [function(item) for item in items]


def verified(disk: FakeDisk, cold: str | None = str(COLD)) -> VerifyJobReport:
    before = disk.files()
    report = verify(disk, ManualClock(), here, VerifyOptions(path=str(DATA), cold=cold))
    assert disk.files() == before, "verify changed something"
    return report


def lived(*, cleanly: bool) -> Life:
    """Two topics with hot, cold and active segments, deletes, and records in the log only."""
    fake = new_disk()
    life = Life(fake)
    for name in TOPIC_NAMES:
        life.append(name, records(12, "x"))
        life.append(name, records(2, "y"), key="k")
    for _ in range(4):  # until log files were trimmed
        life.append("two", records(5, size=150))
        life.checkpoint()
    life.delete("one", match="y")
    life.checkpoint()
    life.reclaim()
    assert DATA / "wal" / wal_file_name(1) not in fake.files()
    for name in TOPIC_NAMES:
        life.append(name, records(1))
    if cleanly:
        life.close()
    fake.settle()
    return life


@cache
def directory(cleanly: bool) -> Image:
    """Two topics with hot, cold and active segments, deletes, and records in the log only."""
    return lived(cleanly=cleanly).fake.snapshot()


def test_a_healthy_directory_has_no_findings_stopped_or_killed() -> None:
    for cleanly in (True, False):
        report = verified(FakeDisk(image=directory(cleanly)))
        assert report.ok
        assert report.findings == ()
        assert (report.topics, report.segments, report.snapshots) == (2, 10, 2)
        assert report.records >= 48
        assert report.groups > 5


def test_a_running_directory_has_no_findings() -> None:
    engine = Engine()
    engine.do([("append", "one", 9, "a", 30), ("checkpoint",), ("append", "one", 9, "a", 30)])
    assert verified(engine.disk).findings == ()


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_healthy_log_has_no_findings_that_are_bad(name: str) -> None:
    report = verified(SPECIMENS[name]().disk(), cold=None)
    assert report.ok
    kinds = {finding.kind for finding in report.findings}
    assert kinds <= ({"note"} if name == "repaired" else set())


# -- planted faults


def planted(path: PurePath, content: bytes, every: int) -> Iterator[tuple[str, bytes | None]]:
    for offset in slice_of(range(len(content)), every):
        flipped = bytes([content[offset] ^ 1 << offset % 8])
        yield f"bit flip at {offset}", content[:offset] + flipped + content[offset + 1 :]
    for length in slice_of(range(len(content)), every):
        yield f"cut to {length}", content[:length]
    yield "bytes behind its end", content + b"\x01" * 40
    yield "zeroed", bytes(len(content))
    yield "missing", None


def is_harmless(path: PurePath, what: str) -> bool:
    """Bytes that mean nothing, and a snapshot whose place an older one takes."""
    if path.suffix == ".bin":
        return what in ("missing", *(f"bit flip at {offset}" for offset in PADDING))
    return False


def is_passed_over(name: str, path: PurePath, what: str) -> bool:
    """Inside of what an operator has agreed to lose, nothing can be found."""
    agreed = decode_repairs(SPECIMENS[name]().disk().files()[path.parent / REPAIRS_NAME]).skips
    number = parse_wal_file_name(path.name)
    return any(
        skip.file == number
        and any(f"bit flip at {offset}" == what for offset in range(skip.offset, skip.resume))
        for skip in agreed
    )


def plant(disk: FakeDisk, path: PurePath, content: bytes | None) -> None:
    if content is None:
        disk.unlink(path)
        disk.settle()
    else:
        disk.write_file(path, content)


def reports_on(finding: VerifyFinding, path: PurePath) -> bool:
    """The file, another one of the same segment, or what it belongs to."""
    named = PurePath(finding.file)
    return (
        named == path
        or named.stem == path.stem
        or named in path.parents
        or (named.parent == path.parent and "wal" in path.parts)
    )


@pytest.mark.crash
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("cleanly", [True, False], ids=["stopped", "killed"])
def test_every_planted_fault_is_found(cleanly: bool, kind: str) -> None:
    files = FakeDisk(image=directory(cleanly)).files()
    chosen = [path for path in files if path.name.split(".")[-1] == kind]
    assert chosen
    every = EVERY[kind]
    for path in chosen:
        for what, content in planted(path, files[path], every):
            if content == files[path]:
                continue
            disk = FakeDisk(image=directory(cleanly))
            plant(disk, path, content)
            report = verified(disk)
            if is_harmless(path, what):
                continue
            assert report.findings, f"{what} in {path}"
            assert any(reports_on(finding, path) for finding in report.findings), (
                what,
                path,
                report,
            )
            tried(f"verify job, faults planted in .{kind}")


@pytest.mark.crash
@pytest.mark.parametrize("kind", EVERY)
def test_exchanged_files_are_found(kind: str) -> None:
    files = FakeDisk(image=directory(True)).files()
    chosen = [path for path in files if path.name.split(".")[-1] == kind]
    pairs = [(one, other) for one in chosen for other in chosen if one < other]
    for one, other in pairs:
        if files[one] == files[other]:
            continue
        disk = FakeDisk(image=directory(True))
        disk.write_file(one, files[other])
        disk.write_file(other, files[one])
        assert not verified(disk).ok, f"{one} and {other} exchanged"
        tried(f"verify job, exchanged .{kind} files")


@pytest.mark.crash
@pytest.mark.parametrize("name", SPECIMENS)
def test_every_planted_fault_in_a_log_is_found(name: str) -> None:
    specimen = SPECIMENS[name]()
    files = specimen.disk().files()
    healthy = set(verified(specimen.disk(), cold=None).findings)
    for path in specimen.paths:
        if path.name in NEVER_READ or "quarantine" in path.parts:
            continue
        for what, content in planted(path, files[path], 29):
            if content == files[path]:
                continue
            if name == "repaired" and is_passed_over(name, path, what):
                continue
            disk = specimen.disk()
            plant(disk, path, content)
            report = verified(disk, cold=None)
            if not set(report.findings) - healthy:
                # An end that nobody had witnessed looks as if it had never been written.
                assert judge(specimen, disk, what) is Outcome.ERASED, f"{what} in {path}"
            tried("verify job, faults planted in a log alone")


def test_a_log_that_begins_behind_the_last_snapshot_is_found() -> None:
    disk = FakeDisk(image=directory(True))
    for path in disk.files():
        if path.suffix == ".bin":
            plant(disk, path, None)
    report = verified(disk)
    bad = [finding for finding in report.findings if finding.bad]
    assert [finding.kind for finding in bad] == ["continuity"]
    assert "snapshot ends at frame 0" in bad[0].meaning


def test_a_frame_that_was_never_sound_is_found_in_a_sound_group() -> None:
    """As a broken writer would leave it: the group's hash is that of the bad bytes."""
    specimen = SPECIMENS["killed"]()
    disk, mark = specimen.disk(), specimen.marks[-1]
    content = bytearray(disk.files()[specimen.last])
    content[mark.end - 20] ^= 1
    body = memoryview(content)[mark.body_at : mark.end]
    frame = decode_frame(memoryview(content), mark.offset, mark.body_at)
    content[mark.offset : mark.body_at] = pack_mark(
        frame.ts, *mark._replace(body_hash=checksum64(body.tobytes()))
    )
    disk.write_file(specimen.last, bytes(content))
    report = verified(disk, cold=None)
    assert [(f.file, f.offset, f.bad) for f in report.findings] == [
        (str(specimen.last), mark.offset, True)
    ]
    assert "checksum does not match" in report.findings[0].meaning


def test_a_missing_topic_directory_is_found() -> None:
    disk = FakeDisk(image=directory(True))
    for path in disk.files():
        if path.parent == DATA / "topics" / "00000001":
            plant(disk, path, None)
    report = verified(disk)
    assert {finding.kind for finding in report.findings if finding.bad} == {"continuity"}


def test_segments_of_another_topic_are_found_and_told_whose_they_are() -> None:
    """A frame does not name its topic: the index does, and binds the data to it."""
    engine = Engine()
    for topic, size in (("one", 30), ("two", 31)):
        engine.do([("append", topic, 4, None, size)])
    engine.restart(1)
    engine.stop()
    disk = engine.disk
    files = disk.files()
    for suffix in ("data", "idx"):
        mine, yours = (
            DATA / "topics" / topic / f"seg-0000000000000001.{suffix}"
            for topic in ("00000001", "00000002")
        )
        disk.write_file(mine, files[yours])
        disk.write_file(yours, files[mine])
    report = verified(disk)
    foreign = [finding for finding in report.findings if finding.kind == "another's file"]
    assert len(foreign) == 2
    assert "the segment of topic 2 (00000002)" in foreign[0].meaning
    assert "the segment of topic 1 (00000001)" in foreign[1].meaning


def test_cold_segments_of_another_topic_are_found_by_the_index_that_points_at_them() -> None:
    """Exchanged pairs of the same length: sound by themselves, and not what was moved there."""
    engine = Engine()
    for topic, sizes in (("one", (30, 32)), ("two", (32, 30))):
        engine.do([("append", topic, 1, None, size) for size in (*sizes, 4, 4, 4)])
        engine.do([("append", topic, 5, None, 4)])
    engine.do([("checkpoint",), ("reclaim",)])
    engine.restart(1)
    engine.stop()
    files = engine.disk.files()
    mine, yours = (COLD / "topics" / topic for topic in ("00000001", "00000002"))
    for name in ("seg-0000000000000001.data", "seg-0000000000000001.idx"):
        assert len(files[mine / name]) == len(files[yours / name])
        engine.disk.write_file(mine / name, files[yours / name])
        engine.disk.write_file(yours / name, files[mine / name])
    report = verified(engine.disk)
    assert {finding.kind for finding in report.findings} == {"another's file"}
    foreign = [each.meaning for each in report.findings if each.kind == "another's file"]
    assert sum("this is the index of another segment" in meaning for meaning in foreign) == 2
    assert sum("this is the data of another segment" in meaning for meaning in foreign) == 2


def test_without_the_cold_tier_not_everything_is_well() -> None:
    report = verified(FakeDisk(image=directory(True)), cold=None)
    assert not report.ok
    assert {finding.kind for finding in report.findings} == {"cold tier"}
    with pytest.raises(RequestError, match="no directory /warm"):
        verified(FakeDisk(image=directory(True)), cold="/warm")


def test_a_place_that_is_no_data_directory_is_refused() -> None:
    with pytest.raises(RequestError, match="no wal/ in it"):
        verified(FakeDisk(["/", DATA, COLD]))
    with pytest.raises(RequestError, match="no directory"):
        verified(FakeDisk(["/", COLD]))
