"""`headwater repair`, or `wal repair`: a plan by default, action only when asked, and locked."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.disk import PosixDisk
from tests.unit.cli.conftest import Run
from tests.unit.cli.logs import everything_in, flip


@pytest.fixture
def damaged(data: Path, wal_file: Path) -> Path:
    flip(wal_file, 1_000)
    return data


def test_a_sound_log_needs_no_repair_and_gets_none(run: Run, data: Path) -> None:
    before = everything_in(data)
    for apply in ((), ("--apply",)):
        for named in (data, data / "wal"):
            outcome = run("wal", "repair", named, *apply)
            assert outcome.code == 0
            assert outcome.out == f"{named}: nothing to repair\n"
    assert run("wal", "repair", data, "--json").json() == {"applied": False, "plans": []}
    assert everything_in(data) == before


def test_repair_is_a_verb_beside_verify_as_well(run: Run, damaged: Path) -> None:
    assert run("repair", damaged).out == run("wal", "repair", damaged).out
    assert run("repair", damaged, "--apply").code == 0
    assert run("verify", damaged).code == 0


def test_without_apply_the_plan_is_shown_and_nothing_is_changed(run: Run, damaged: Path) -> None:
    before = everything_in(damaged)
    outcome = run("wal", "repair", damaged)
    assert outcome.code == 0
    assert "1. wal-0000000000000001.log: pass over: " in outcome.out
    assert "Gives up 2 frame(s): a group with damage in it is passed over whole." in outcome.out
    assert f"headwater repair {damaged} --apply" in outcome.out
    (plan,) = run("wal", "repair", damaged, "--json").json()["plans"]
    (step,) = plan["steps"]
    assert step["kind"] == "skip"
    assert step["offset"] <= 1_000 < step["resume"]
    assert (step["lost"], step["unit"]) == (2, "frame")
    assert everything_in(damaged) == before


def test_apply_makes_the_log_sound_and_keeps_what_was_there(
    run: Run, damaged: Path, wal_file: Path
) -> None:
    contents = wal_file.read_bytes()
    outcome = run("wal", "repair", damaged, "--apply")
    assert outcome.code == 0
    assert f"repaired: {damaged}: 20 groups of the topics' log can be read" in outcome.out
    assert wal_file.read_bytes() == contents
    copy = damaged / "wal" / "quarantine" / f"{wal_file.name}.damaged"
    assert copy.read_bytes() == contents
    assert run("wal", "verify", damaged).code == 0
    assert run("wal", "repair", damaged).out.endswith("nothing to repair\n")


def test_apply_with_json_tells_what_was_done_and_how_it_stands(run: Run, damaged: Path) -> None:
    told = run("wal", "repair", damaged, "--apply", "--json").json()
    assert told["applied"] is True
    assert [step["kind"] for step in told["plans"][0]["steps"]] == ["skip"]
    assert told["after"]["ok"] is True


def test_a_directory_in_use_is_refused_with_four_and_untouched(run: Run, damaged: Path) -> None:
    lock = PosixDisk().lock_directory(damaged)
    try:
        before = everything_in(damaged)
        outcome = run("wal", "repair", damaged, "--apply")
        assert outcome.code == 4
        assert f"{damaged} is in use by another Headwater" in outcome.complaint()
        assert everything_in(damaged) == before
        assert run("wal", "repair", damaged).code == 0, "a plan needs no lock"
    finally:
        lock.release()


def test_a_log_directory_that_stands_alone_is_not_repaired(
    run: Run, damaged: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "somewhere"
    (damaged / "wal").rename(alone)
    before = everything_in(tmp_path)
    outcome = run("wal", "repair", alone, "--apply")
    assert outcome.code == 2
    assert "cannot be locked" in outcome.complaint()
    assert everything_in(tmp_path) == before


def test_a_disk_that_refuses_gives_one_line_and_not_a_traceback(
    run: Run, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(PosixDisk, "rename", refuse)
    outcome = run("wal", "repair", damaged, "--apply")
    assert outcome.code == 5
    assert "read-only file system" in outcome.complaint()
