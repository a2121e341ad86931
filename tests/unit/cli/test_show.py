"""`headwater show`: any file of ours, field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.logs import HOSTILE, append, flip, open_log


def test_a_wal_file_shows_every_field_with_its_offset(run: Run, wal_file: Path) -> None:
    outcome = run("show", wal_file)
    assert outcome.code == 0
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["0", "frame_len", "u32", "130"] in rows
    assert ["4", "type", "u8", "12", "(commit_mark)"] in rows
    assert ["42", "commit_mark.frame_count", "u32", "1"] in rows
    assert ["172", "data", '{"number":0}'] in rows
    assert "21 whole groups, 41 frames" in outcome.out


def test_json_begins_with_the_file_and_goes_on_with_its_frames(run: Run, wal_file: Path) -> None:
    head, mark, record, *_ = run("show", wal_file, "--json").json_lines()
    assert (head["kind"], head["state"], head["groups"]) == ("WAL file", "clean", 21)
    assert mark["type"] == "commit_mark"
    fields = {field["field"]: field for field in record["fields"]}
    assert fields["data"]["offset"] == 172
    assert fields["data"]["value"] == '{"number":0}'


def test_at_and_limit_show_the_frame_an_error_message_named(run: Run, wal_file: Path) -> None:
    _, *frames = run("show", wal_file, "--json", "--at", "150", "--limit", "2").json_lines()
    assert [frame["offset"] for frame in frames] == [134, 192]


def test_damaged_stretches_are_shown_as_such_with_reason_and_offset(
    run: Run, wal_file: Path
) -> None:
    flip(wal_file, 150)
    flip(wal_file, 2_000)
    outcome = run("show", wal_file)
    assert outcome.code == 5
    gaps = [line for line in outcome.out.splitlines() if line.startswith("UNREADABLE")]
    assert len(gaps) == 2
    assert gaps[0].startswith("UNREADABLE from byte 0, 192 bytes: frame at byte 134: checksum")
    assert f"in {wal_file} at byte 0" in outcome.complaint()


def test_current_and_repairs_are_shown_part_by_part(run: Run, data: Path, wal_file: Path) -> None:
    rows = [line.split() for line in run("show", data / "wal" / "CURRENT").out.splitlines()]
    assert ["active", "0", wal_file.name] in rows
    assert ["active_bytes", "31", "16384"] in rows
    flip(wal_file, 1_000)
    assert run("wal", "repair", data, "--apply").code == 0
    repairs = run("show", data / "wal" / "REPAIRS", "--json").json()
    assert [skip["file"] for skip in repairs["skips"]] == [1]
    assert "checksum does not match" in run("show", data / "wal" / "REPAIRS").out


def test_a_copy_in_quarantine_is_known_by_its_content(run: Run, wal_file: Path) -> None:
    copy = wal_file.with_name("kept-for-later")
    copy.write_bytes(wal_file.read_bytes())
    assert "WAL file, 16,384 bytes, clean" in run("show", copy).out


@pytest.mark.parametrize("name", ["CURRENT", "REPAIRS"])
def test_a_damaged_small_file_says_so_and_shows_its_text(run: Run, data: Path, name: str) -> None:
    path = data / "wal" / name
    path.write_bytes(b"wal-\x1b[2J nonsense\n")
    outcome = run("show", path)
    assert outcome.code == 5
    assert "DAMAGED" in outcome.out
    assert "\x1b" not in outcome.out + outcome.err
    assert f"checksum does not match in {path}" in outcome.complaint()
    assert run("show", path, "--json").json()["sound"] is False


def test_a_file_made_ahead_is_called_that(run: Run, data: Path) -> None:
    (data / "wal" / "prepared.next").write_bytes(bytes(100))
    assert "made ahead, 100 bytes" in run("show", data / "wal" / "prepared.next").out


def test_hostile_bytes_in_a_frame_are_escaped_by_show_as_well(run: Run, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, HOSTILE, node=HOSTILE, tag=HOSTILE)
    log.close()
    text = run("show", tmp_path / "wal" / "wal-0000000000000001.log").out
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize("contents", [b"", b"hello\n", bytes(64), b"\xff" * 500])
def test_a_foreign_file_is_refused_in_one_line(run: Run, tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(contents)
    outcome = run("show", path)
    assert outcome.code == 5
    assert f"found nothing that Headwater writes in {path}" in outcome.complaint()


def test_a_directory_and_a_missing_file_are_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    assert "is a directory" in run("show", tmp_path).complaint()
    assert "there is no file" in run("show", tmp_path / "nothing").complaint()
