"""`headwater wal verify`: sound, unfinished or damaged, and never a byte changed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.config.wal import WalSettings
from headwater.core.units import KIB
from tests.unit.cli.conftest import Run
from tests.unit.cli.logs import (
    append,
    everything_in,
    flip,
    open_log,
    some_payloads,
    write_log,
)


def test_a_sound_log_is_ok_and_exits_with_zero(run: Run, data: Path) -> None:
    before = everything_in(data)
    outcome = run("wal", "verify", data)
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.splitlines()[-1] == (
        f"ok: {data}/wal: 1 shard, 1 file, 21 groups, 41 frames"
    )
    assert everything_in(data) == before


def test_the_wal_directory_itself_is_accepted_too(run: Run, data: Path) -> None:
    assert run("wal", "verify", data / "wal").out == run("wal", "verify", data).out


def test_the_current_directory_can_be_named_with_dots(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data / "wal")
    for dots in (".", ".."):
        outcome = run("wal", "verify", dots)
        assert outcome.code == 0
        assert f"ok: {data}/wal: 1 shard" in outcome.out


def test_json_tells_every_file_and_that_all_is_well(run: Run, data: Path) -> None:
    report = run("wal", "verify", data, "--json", "--deep").json()
    assert report["ok"] is True
    assert report["findings"] == []
    assert [entry["verdict"] for entry in report["files"]] == ["clean"]


def test_all_shards_are_looked_at(run: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "data", some_payloads(3), WalSettings(shards=2, file_bytes=16 * KIB))
    report = run("wal", "verify", tmp_path / "data", "--json").json()
    assert report["shards"] == 2
    assert [Path(entry["path"]).parent.name for entry in report["files"]] == [
        "shard-00",
        "shard-01",
    ]


def test_every_damaged_place_is_listed_with_file_and_offset(
    run: Run, data: Path, wal_file: Path
) -> None:
    flip(wal_file, 200)
    flip(wal_file, 2_000)
    before = everything_in(data)
    outcome = run("wal", "verify", data)
    assert outcome.code == 5
    bad = [line for line in outcome.out.splitlines() if line.startswith("BAD")]
    assert len(bad) == 2
    assert all(f"{wal_file} at byte " in line for line in bad)
    assert "2 problems" in outcome.complaint()
    assert "headwater repair" in outcome.complaint()
    report = run("wal", "verify", data, "--json")
    assert report.code == 5
    offsets = [finding["offset"] for finding in report.json()["findings"]]
    assert offsets[0] == 192
    assert 1_800 < offsets[1] <= 2_000
    assert everything_in(data) == before


def test_an_unfinished_write_at_the_end_is_a_note_not_damage(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = open_log(data)
    append(log, 1, b"first")
    copy = tmp_path / "copy" / "wal"
    copy.mkdir(parents=True)
    for path in (data / "wal").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    log.close()
    flip(copy / "wal-0000000000000001.log", 150)
    outcome = run("wal", "verify", tmp_path / "copy")
    assert outcome.code == 0
    assert "at start: cut at the last whole group" in outcome.out


def test_a_foreign_file_beside_the_log_is_named_without_its_control_characters(
    run: Run, data: Path
) -> None:
    (data / "wal" / "evil\x1b[31m.txt").write_text("x")
    outcome = run("wal", "verify", data)
    assert outcome.code == 5
    assert "\x1b" not in outcome.out + outcome.err
    assert "evil\\x1b[31m.txt: not a name this software gives" in outcome.out


def test_an_empty_log_is_ok_and_called_empty(run: Run, tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    outcome = run("wal", "verify", tmp_path)
    assert outcome.code == 0
    assert outcome.out == f"ok: {tmp_path}/wal: empty\n"


def test_a_log_that_is_being_written_is_not_disturbed_and_not_called_damaged(
    run: Run, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    log = open_log(data)
    stop = threading.Event()
    written: list[int] = []

    def write() -> None:
        seq = 0
        while not stop.is_set():
            seq += 1
            append(log, seq, b"x" * 900)
            written.append(seq)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(12):
            outcome = run("wal", "verify", data)
            assert outcome.code == 0, outcome.out + outcome.err
            assert "BAD" not in outcome.out
    finally:
        stop.set()
        writer.join()
        log.close()
    assert log.wal.poison is None
    dumped = run("wal", "dump", data, "--json").json_lines()
    assert [frame["seq"] for frame in dumped if frame["type"] == "append"] == written
