"""`headwater backup` beside an owner in another process, and the way back."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.core.results import Tombstone
from tests.e2e.owner_process import BATCH, CAP, busy_settings, start_owner
from tests.e2e.test_read_only_beside_owner import everything_in, finish

pytestmark = pytest.mark.e2e

ROUNDS = 100
SCRIPT = Path(sys.executable).with_name("headwater")


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def succeed(*words: str | Path) -> Any:
    done = command(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def records_of(directory: Path, topic: str) -> list[tuple[int, object]]:
    with headwater.open(directory, read_only=True) as reader:
        found = reader.watch(topic, idle_ms=0)
        return [(r.seq, r.data) for r in found if not isinstance(r, Tombstone)]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_owner(tmp_path / "data", ROUNDS, tmp_path / "cold")
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()


def acked_up_to(owner: subprocess.Popen[str], least: int) -> int:
    assert owner.stdout is not None
    for line in owner.stdout:
        if line.startswith("acked") and int(line.split()[1]) >= least:
            return int(line.split()[1])
    pytest.fail("the owner ended early")


def test_a_backup_under_load_restores_to_a_prefix_with_everything_acked_before(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    for number in range(1, 3):
        acked = acked_up_to(owner, number * 15 * BATCH)
        file, back = tmp_path / f"{number}.tar", tmp_path / f"back-{number}"
        succeed("backup", tmp_path / "data", file, "--cold", tmp_path / "cold")
        verified = succeed("backup", "--verify", file)
        restored = succeed("restore", file, back)
        assert verified["records"] == restored["records"]
        for topic in ("whole", "quick"):
            found = records_of(back, topic)
            assert found == [(seq, seq) for seq in range(1, len(found) + 1)]
            assert len(found) >= acked
        capped = records_of(back, "capped")
        seqs = [seq for seq, _ in capped]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert seqs[-1] >= acked
        assert len(seqs) >= min(CAP, acked)
        assert all(seq == data for seq, data in capped)
        tagged = dict(records_of(back, "tagged"))
        assert set(range(2, acked + 1, 2)) <= tagged.keys()
        with headwater.open(back, settings=busy_settings()) as db:
            head = db.state("whole").head_seq
            assert db.append("whole", {"data": 0}).first_seq == head + 1


def test_a_backup_changes_nothing_in_the_directory_and_leaves_one_file(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    finish(owner)
    owner.send_signal(signal.SIGSTOP)
    os.waitpid(owner.pid, os.WUNTRACED)
    before = everything_in(tmp_path / "data")
    out = tmp_path / "out"
    out.mkdir()
    succeed("backup", tmp_path / "data", out / "b.tar", "--verify", "--cold", tmp_path / "cold")
    assert everything_in(tmp_path / "data") == before
    assert [path.name for path in out.iterdir()] == ["b.tar"]
    listed = subprocess.run(["tar", "-tf", out / "b.tar"], capture_output=True, check=True)
    assert b"MANIFEST" in listed.stdout


def test_segments_in_the_cold_tier_are_asked_for_and_not_left_out(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    finish(owner)
    done = command("backup", tmp_path / "data", tmp_path / "b.tar")
    assert done.returncode == 5
    assert re.search("cold tier", done.stderr)
    assert not list(tmp_path.glob("b.tar*"))


def test_a_crashed_directory_is_backed_up_without_being_opened(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    acked = acked_up_to(owner, 30 * BATCH)
    owner.kill()
    owner.wait()
    before = everything_in(tmp_path / "data")
    succeed("backup", tmp_path / "data", tmp_path / "b.tar", "--cold", tmp_path / "cold")
    assert everything_in(tmp_path / "data") == before
    succeed("restore", tmp_path / "b.tar", tmp_path / "back")
    assert len(records_of(tmp_path / "back", "whole")) >= acked


def test_a_backup_that_is_killed_leaves_nothing_that_looks_finished(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    finish(owner)
    words: list[str | Path] = ["backup"]
    words += [tmp_path / "data", tmp_path / "b.tar", "--cold", tmp_path / "cold"]
    process = subprocess.Popen([SCRIPT, *map(str, words)], stderr=subprocess.DEVNULL)
    while process.poll() is None and not (tmp_path / "b.tar.tmp").exists():
        continue
    process.kill()
    process.wait()
    if not (tmp_path / "b.tar").exists():  # it may have been faster than the signal
        assert command("restore", tmp_path / "b.tar.tmp", tmp_path / "back").returncode != 0
        succeed(*words)
    succeed("backup", "--verify", tmp_path / "b.tar")
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob("*.tmp"))
