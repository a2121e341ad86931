"""`headwater backup` and `headwater restore`: whole, or a clear refusal and nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePath

import pytest

import headwater
from headwater.core.clock import SystemClock
from headwater.core.errors import DiskFullError
from headwater.disk import PosixDisk
from headwater.engine.backup import RestorePoint, make_backup, restore_backup
from headwater.engine.backup.archive import Advance
from headwater.engine.backup.topic_files import SegmentCopier
from headwater.format.backup import BLOCK_BYTES, Manifest, decode_manifest, encode_manifest
from headwater.format.checksum import checksum64
from headwater.format.segment import Entries
from headwater.store.segment import Segment
from headwater.testing import ManualClock
from tests.unit.cli.conftest import Run
from tests.unit.cli.databases import SETTINGS, fill, kept, record, seqs_in
from tests.unit.cli.logs import everything_in, flip

HOUR_MS = 3_600_000


@pytest.fixture
def full(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def file(run: Run, full: Path, tmp_path: Path) -> Path:
    assert run("backup", full, tmp_path / "b.tar").code == 0
    return tmp_path / "b.tar"


def manifest_of(file: Path) -> Manifest:
    contents = file.read_bytes()
    start = contents.rindex(b"MANIFEST\0") + BLOCK_BYTES
    return decode_manifest(contents[start:].rstrip(b"\0"))


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_restored_directory_holds_the_same_records_and_goes_on_behind_them(
    run: Run, full: Path, file: Path, tmp_path: Path
) -> None:
    outcome = run("restore", file, tmp_path / "back")
    assert outcome.code == 0
    assert f"{len(kept()) + 1} records" in outcome.out
    with (
        headwater.open(full, read_only=True) as source,
        headwater.open(tmp_path / "back", settings=SETTINGS) as back,
    ):
        for topic in ("orders", "idle"):
            expected = source.diff(topic, limit=1_000)
            found = back.diff(topic, limit=1_000)
            assert found.records == expected.records
            assert back.state(topic).head_seq == source.state(topic).head_seq
        assert [state.topic for state in back.topics()] == ["idle", "orders"]
        assert back.append("orders", record(101)).first_seq == 101
        assert back.append("gone", {"data": 1}).first_seq == 1
        assert back.state("gone").epoch == 2


def test_reports_are_json_for_programs(run: Run, full: Path, tmp_path: Path) -> None:
    made = run("backup", full, tmp_path / "b.tar", "--json").json()
    assert (made["topics"], made["records"]) == (2, len(kept()) + 1)
    assert made["bytes"] == (tmp_path / "b.tar").stat().st_size
    verified = run("backup", "--verify", tmp_path / "b.tar", "--json").json()
    assert verified["ok"] is True
    assert verified["records"] == made["records"]
    restored = run("restore", tmp_path / "b.tar", tmp_path / "back", "--json").json()
    assert restored["records"] == made["records"]


def test_verify_leaves_nothing_beside_the_backup(run: Run, file: Path, tmp_path: Path) -> None:
    before = names_in(tmp_path)
    outcome = run("backup", "--verify", file)
    assert outcome.code == 0
    assert outcome.out.startswith(f"ok: {file}: restored and read: 2 topics")
    assert names_in(tmp_path) == before


def test_two_backups_of_the_same_state_verify_to_the_same_hash(
    run: Run, full: Path, file: Path, tmp_path: Path
) -> None:
    run("restore", file, tmp_path / "back")
    run("backup", tmp_path / "back", tmp_path / "again.tar")
    hashes = {
        run("backup", "--verify", path, "--json").json()["records_xxh3"]
        for path in (file, tmp_path / "again.tar")
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("kind", [".data", ".idx", ".bin", ".log", "CURRENT"])
def test_a_damaged_member_is_refused_with_its_name_and_offset(
    run: Run, file: Path, tmp_path: Path, kind: str
) -> None:
    member = next(m for m in manifest_of(file).members if m.name.endswith(kind))
    flip(file, member.offset + member.bytes // 2)
    before = names_in(tmp_path)
    for words in (("restore", file, tmp_path / "back"), ("backup", "--verify", file)):
        outcome = run(*words)
        assert outcome.code == 5
        assert member.name in outcome.complaint()
        assert f"at byte {member.offset}" in outcome.complaint()
    assert names_in(tmp_path) == before


def test_every_flipped_header_or_manifest_byte_is_noticed(
    run: Run, file: Path, tmp_path: Path
) -> None:
    contents = file.read_bytes()
    start = contents.rindex(b"MANIFEST\0")
    first = manifest_of(file).members[0].offset - BLOCK_BYTES
    for offset in (0, 3, first, first + 125, first + 150, start + 130, start + 600, start + 900):
        flip(file, offset)
        outcome = run("restore", file, tmp_path / "back")
        assert outcome.code in (2, 5), offset
        assert not (tmp_path / "back").exists()
        flip(file, offset)
    assert run("restore", file, tmp_path / "back").code == 0


def test_a_backup_that_was_cut_is_refused_wherever_it_was_cut(
    run: Run, file: Path, tmp_path: Path
) -> None:
    contents = file.read_bytes()
    end = contents.rindex(b"\nxxh3=")
    for length in (1, 600, 2_000, len(contents) // 2, end - 10, end + 5):
        file.write_bytes(contents[:length])
        outcome = run("restore", file, tmp_path / "back")
        assert outcome.code == (2 if length == 1 else 5), length
        assert str(file) in outcome.complaint()
        assert not (tmp_path / "back").exists()


def test_names_in_a_manifest_never_become_paths_elsewhere(
    run: Run, file: Path, tmp_path: Path
) -> None:
    contents = file.read_bytes()
    start = contents.rindex(b"MANIFEST\0") + BLOCK_BYTES
    manifest = manifest_of(file)
    name = manifest.members[0].name
    evil = "../" * (len(name) // 3)
    forged = encode_manifest(manifest).replace(name.encode(), evil.ljust(len(name), "x").encode())
    body = forged.rpartition(b"\nxxh3=")[0]
    forged = body + f"\nxxh3={checksum64(body):016x}\n".encode()
    file.write_bytes(contents[:start] + forged + contents[start + len(forged) :])
    outcome = run("restore", file, tmp_path / "back")
    assert outcome.code == 5
    assert "is no file of a data directory" in outcome.complaint()


def test_a_newer_backup_is_refused_as_newer(run: Run, file: Path, tmp_path: Path) -> None:
    contents = file.read_bytes().replace(b"headwater backup 1\n", b"headwater backup 9\n")
    file.write_bytes(contents)
    outcome = run("restore", file, tmp_path / "back")
    assert outcome.code == 5
    assert "newer" in outcome.complaint()


@pytest.mark.parametrize("contents", [b"", b"hello", bytes(4_096), b"\xff" * 2_000])
def test_what_is_no_backup_is_called_that(run: Run, tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "letter"
    path.write_bytes(contents)
    for words in (("restore", path, tmp_path / "back"), ("backup", "--verify", path)):
        outcome = run(*words)
        assert outcome.code == 2
        assert outcome.complaint() == f"headwater: {path} is not a backup of Headwater"


def test_places_that_cannot_be_are_refused_in_one_line(
    run: Run, full: Path, file: Path, tmp_path: Path
) -> None:
    for words, part in (
        (("backup", full, file), "is there already"),
        (("backup", full, full / "b.tar"), "is inside of"),
        (("backup", full, tmp_path / "no" / "b.tar"), "there is no directory"),
        (("backup", tmp_path / "no", tmp_path / "c.tar"), "there is no directory"),
        (("backup", tmp_path, tmp_path.parent / "c.tar"), "is not a Headwater data directory"),
        (("backup", full), "headwater backup DIR FILE"),
        (("backup", "--verify", full), "is a directory"),
        (("restore", file, full), "is not empty"),
        (("restore", file, file), "is not a directory"),
        (("restore", file, tmp_path / "no" / "x"), "there is no directory"),
        (("restore", tmp_path / "no.tar", tmp_path / "x"), "there is no file"),
        (("restore", file, tmp_path / "x", "--to-seq", "orders"), "is not TOPIC=SEQ"),
        (("restore", file, tmp_path / "x", "--to-seq", "nobody=3"), "no topic 'nobody'"),
        (("restore", file, tmp_path / "x", "--to-time", "yesterday"), "is no time"),
    ):
        outcome = run(*words)
        assert outcome.code == 2, words
        assert part in outcome.complaint(), words
    assert not (tmp_path / "x").exists()


def test_an_empty_directory_that_is_there_already_can_be_restored_into(
    run: Run, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "back").mkdir()
    assert run("restore", file, tmp_path / "back").code == 0
    assert seqs_in(tmp_path / "back") == kept()


def test_what_an_interrupted_restore_left_is_removed_and_a_strange_directory_is_not(
    run: Run, file: Path, tmp_path: Path
) -> None:
    left = tmp_path / "back.restoring"
    (left / "wal").mkdir(parents=True)
    (left / "wal" / "CURRENT").write_text("half")
    assert run("restore", file, tmp_path / "back").code == 2
    assert (left / "wal" / "CURRENT").read_text() == "half"
    (left / "RESTORING").write_text("")
    assert run("restore", file, tmp_path / "back").code == 0
    assert not left.exists()


def test_no_room_is_said_before_anything_is_written(full: Path, file: Path, tmp_path: Path) -> None:
    class FullDisk(PosixDisk):
        def free_bytes(self, path: PurePath) -> int:
            return 10

    before = names_in(tmp_path)
    with pytest.raises(DiskFullError, match="needs about 1 MiB"):
        make_backup(FullDisk(), full, tmp_path / "c.tar", SETTINGS, SystemClock(), unseen)
    with pytest.raises(DiskFullError, match="restoring needs"):
        restore_backup(FullDisk(), file, tmp_path / "back", RestorePoint(), SystemClock(), unseen)
    assert names_in(tmp_path) == before


def test_a_restore_to_a_seq_deletes_what_came_later_and_gives_no_seq_again(
    run: Run, file: Path, tmp_path: Path
) -> None:
    outcome = run("restore", file, tmp_path / "back", "--to-seq", "orders=50", "--json")
    assert outcome.json()["records_deleted"] == len(kept()) - len(kept(50))
    for _ in range(2):
        with headwater.open(tmp_path / "back", settings=SETTINGS) as db:
            found = [r.seq for r in db.diff("orders", limit=1_000).records]
            assert found[: len(kept(50))] == kept(50)
            head = db.state("orders").head_seq
            assert head == 100 + len(found) - len(kept(50))
            assert db.diff("orders").tombstone is None
            assert db.append("orders", record(1)).first_seq == head + 1
            assert db.diff("idle").records[0].data == "alone"


def test_a_restore_to_a_time_keeps_what_was_there_then(run: Run, tmp_path: Path) -> None:
    clock = ManualClock()
    begun = clock.wall_ms()
    data = tmp_path / "data"
    with headwater.open(data, settings=SETTINGS, clock=clock) as db:
        for topic, key in (("a", "first"), ("a", "second"), ("b", "third")):
            db.append(topic, {"data": key}, idempotency_key=key)
            clock.jump_wall(HOUR_MS)
        db.checkpoint()
        db.append("a", {"data": "last"})
    run("backup", data, tmp_path / "b.tar")
    for name, time in (("ms", str(begun + HOUR_MS)), ("iso", "2023-11-14T23:13:20+00:00")):
        assert run("restore", tmp_path / "b.tar", tmp_path / name, "--to-time", time).code == 0
        with headwater.open(tmp_path / name, settings=SETTINGS, clock=clock) as db:
            assert [r.data for r in db.diff("a").records] == ["first", "second"]
            assert db.diff("b").records == []
            assert (db.state("a").head_seq, db.state("b").head_seq) == (3, 1)
            assert db.append("b", {"data": "again"}, idempotency_key="third").first_seq == 2


def test_an_expired_topic_is_whole_in_its_backup(run: Run, tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=1_000)
    data = tmp_path / "data"
    with headwater.open(data, settings=SETTINGS, clock=clock) as db:
        db.create("short", ttl_ms=HOUR_MS)
        db.append("short", [{"data": n} for n in range(10)])
        db.checkpoint()
        db.delete("short", before_seq=3)
        made = make_backup(PosixDisk(), data, tmp_path / "b.tar", SETTINGS, clock, unseen)
    assert made.records == 8
    assert run("backup", "--verify", tmp_path / "b.tar").code == 0
    back = tmp_path / "back"
    restored = restore_backup(
        PosixDisk(), tmp_path / "b.tar", back, RestorePoint({"short": 5}), clock, unseen
    )
    assert restored.records_deleted == 5
    with headwater.open(back, settings=SETTINGS, clock=clock) as db:
        assert [r.seq for r in db.diff("short").records] == [3, 4, 5]


def test_an_open_directory_is_backed_up_with_what_is_only_in_its_log(
    run: Run, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    fill(data)
    with headwater.open(data, settings=SETTINGS) as db:
        db.append("orders", [record(seq) for seq in range(101, 121)])
        db.delete("orders", before_seq=11)
        before = everything_in(data)
        assert run("backup", data, tmp_path / "b.tar", "--verify").code == 0
        assert everything_in(data) == before
        expected = db.diff("orders", limit=1_000).records
    assert run("restore", tmp_path / "b.tar", tmp_path / "back").code == 0
    with headwater.open(tmp_path / "back", settings=SETTINGS) as back:
        assert back.diff("orders", limit=1_000).records == expected


def unseen(_total: int) -> Advance:
    return lambda _size: None


def test_records_deleted_just_before_are_deleted_in_the_backup_and_not_lost(
    run: Run, tmp_path: Path
) -> None:
    """Segments that are all dead since the last checkpoint: the log of the backup tells why."""
    data, file = tmp_path / "data", tmp_path / "b.tar"
    with headwater.open(data, settings=SETTINGS) as db:
        db.create("jobs", type="queue")
        for name in ("jobs", "orders"):
            db.append(name, [{"data": number, "tag": "old"} for number in range(50)])
            db.append(name, [{"data": number} for number in range(50)])
        db.checkpoint()
        claimed = db.claim("jobs", "n", 50)
        db.ack("jobs", "n", [job.record.seq for job in claimed.jobs])
        db.delete("orders", match="old")
        assert run("backup", data, file, "--verify").code == 0
    assert run("restore", file, tmp_path / "back").code == 0
    with headwater.open(tmp_path / "back", settings=SETTINGS) as back:
        for name in ("jobs", "orders"):
            diff = back.diff(name, limit=1_000)
            assert [record.seq for record in diff.records] == list(range(51, 101))
            assert (diff.tombstone, back.state(name).evict_floor) == (None, 1)


def test_segments_may_move_to_the_cold_tier_while_a_backup_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, cold, file = tmp_path / "data", tmp_path / "cold", tmp_path / "b.tar"
    settings = replace(SETTINGS, cold_url=str(cold))
    read_index = SegmentCopier._index
    with headwater.open(data, settings=settings) as db:
        for first in range(0, 800, 40):
            db.append("orders", [record(first + each) for each in range(40)])
        db.checkpoint()
        topic, reclaimer = db.engine.topic("orders"), db.engine._housekeeping._reclaimer

        def move_and_read(copier: SegmentCopier, path: PurePath, wanted: Segment) -> Entries:
            """It is moved at the last moment."""
            segment = next(each for each in topic.segments if each.first_seq == wanted.first_seq)
            if not segment.is_cold:
                reclaimer._relocate(topic, segment)
            return read_index(copier, path, wanted)

        monkeypatch.setattr(SegmentCopier, "_index", move_and_read)
        report = make_backup(PosixDisk(), data, file, settings, SystemClock(), unseen)
        assert report.records == 800
        assert sum(segment.is_cold for segment in topic.segments) > 2
    restored = restore_backup(
        PosixDisk(), file, tmp_path / "back", RestorePoint(), SystemClock(), unseen
    )
    assert restored.manifest == report.manifest
