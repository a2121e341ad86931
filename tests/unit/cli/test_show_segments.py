"""`headwater show` for the files of topics: segments, their indexes, snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.format.segment import ENTRY_BYTES
from tests.unit.cli.conftest import Run
from tests.unit.cli.databases import fill, segment_file
from tests.unit.cli.logs import flip


@pytest.fixture
def full(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


def test_a_data_file_shows_every_field_with_its_offset(run: Run, full: Path) -> None:
    outcome = run("show", segment_file(full, "data"), "--limit", "3")
    assert outcome.code == 0
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["5", "seq", "u64", "1"] in rows
    assert ["30", "tag", "other"] in rows
    assert ["35", "data", '{"number":1}'] in rows
    assert "seq 3: deleted" in outcome.out
    assert "3 frames shown" in outcome.out


def test_json_of_a_data_file_is_the_file_and_then_its_frames(run: Run, full: Path) -> None:
    head, *frames = run("show", segment_file(full, "data", 1), "--json").json_lines()
    assert head["kind"] == "segment data"
    assert [frame["seq"] for frame in frames] == list(range(41, 81))
    assert {frame["state"] for frame in frames} == {"live", "deleted"}


def test_at_shows_the_frame_a_message_named(run: Run, full: Path) -> None:
    path = segment_file(full, "data")
    _, first, second, *_ = run("show", path, "--json", "--limit", "2").json_lines()
    at = str(second["offset"] + 3)
    assert run("show", path, "--json", "--at", at, "--limit", "1").json_lines()[1] == second
    assert first["offset"] == 0


def test_a_damaged_frame_is_shown_in_its_place_and_the_rest_behind_it(run: Run, full: Path) -> None:
    path = segment_file(full, "data")
    flip(path, 45)
    outcome = run("show", path)
    assert outcome.code == 5
    assert "UNREADABLE from byte 0" in outcome.out
    assert "seq 40: live" in outcome.out
    assert f"checksum does not match in {path} at byte 0" in outcome.complaint()
    flip(path, 3)
    assert "runs past the end" in run("show", path).complaint()


def test_an_index_shows_its_entries_and_which_are_damaged(run: Run, full: Path) -> None:
    path = segment_file(full, "idx", 1)
    outcome = run("show", path, "--limit", "2")
    assert outcome.code == 0
    assert "segment index, 800 bytes, 40 entries" in outcome.out
    assert "38 more entries; see them with --at 40" in outcome.out
    flip(path, 5 * ENTRY_BYTES)
    outcome = run("show", path, "--json")
    assert outcome.code == 5
    head, *entries = outcome.json_lines()
    assert (head["first_seq"], head["damaged"]) == (41, 1)
    assert [entry["seq"] for entry in entries if entry["state"] == "DAMAGED"] == [46]
    assert f"the entry is damaged in {path} at byte 100" in outcome.complaint()


def test_a_snapshot_shows_its_header_and_its_topics(run: Run, full: Path) -> None:
    path = max((full / "meta").iterdir())
    outcome = run("show", path)
    assert outcome.code == 0
    rows = [line.split() for line in outcome.out.splitlines()]
    assert ["version", "8", "u32", "1"] in rows
    assert any(row[:2] == ["1", "orders"] for row in rows)
    shown = run("show", path, "--json").json()
    assert [topic["name"] for topic in shown["snapshot"]["topics"]] == ["orders", "idle"]
    assert shown["snapshot"]["epochs"] == {"gone": 1}


def test_a_damaged_snapshot_says_so_and_is_known_by_its_content(run: Run, full: Path) -> None:
    path = full / "copy"
    path.write_bytes(max((full / "meta").iterdir()).read_bytes())
    assert "snapshot, " in run("show", path).out
    flip(path, 60)
    outcome = run("show", path)
    assert outcome.code == 5
    assert "DAMAGED: snapshot checksum does not match" in outcome.out
    flip(path, 8 + 1)
    assert "newer" in run("show", path).complaint()
