"""`headwater.open(path, read_only=True)` beside another process that owns the directory."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.core.results import Tombstone
from headwater.engine.read_only import ReadOnlyDatabase
from tests.e2e.owner_process import BATCH, CAP, busy_settings, start_owner

pytestmark = pytest.mark.e2e

ROUNDS = 100


def everything_in(directory: Path) -> dict[str, str]:
    """Names, lengths, times of change and hashes: nothing can be touched without a trace."""
    found = {}
    for path in sorted(directory.rglob("*")):
        facts = path.stat()
        contents = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(directory))] = f"{facts.st_size} {facts.st_mtime_ns} {contents}"
    return found


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_owner(tmp_path / "data", ROUNDS, tmp_path / "cold")
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()


def open_reader(tmp_path: Path) -> ReadOnlyDatabase:
    settings = busy_settings(str(tmp_path / "cold"))
    return headwater.open(tmp_path / "data", read_only=True, settings=settings)


def finish(owner: subprocess.Popen[str]) -> None:
    """Wait until it has written everything; it stays open."""
    assert owner.stdout is not None
    for line in owner.stdout:
        if line == "done\n":
            return
    pytest.fail("the owner ended early")


def check_dense(seqs: list[int], data: list[object]) -> None:
    assert seqs == list(range(1, len(seqs) + 1))
    assert data == seqs


def test_every_record_is_seen_once_and_in_order_while_the_owner_writes_and_trims(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    last = ROUNDS * BATCH
    for topic in ("whole", "quick"):
        with open_reader(tmp_path) as reader:
            seqs, data = [], []
            for record in reader.watch(topic, idle_ms=30_000):
                assert not isinstance(record, Tombstone)
                seqs.append(record.seq)
                data.append(record.data)
                if record.seq == last:
                    break
        check_dense(seqs, data)
        assert len(seqs) == last


def test_what_is_acknowledged_is_seen_by_the_next_read(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    assert owner.stdout is not None
    with open_reader(tmp_path) as reader:
        cursor = 0
        for line in owner.stdout:
            if line == "done\n":
                break
            acked = int(line.split()[1])
            while cursor < acked:
                diff = reader.diff("whole", cursor, limit=7)
                assert diff.records, f"{cursor} of {acked}"
                assert [record.data for record in diff.records] == [r.seq for r in diff.records]
                assert diff.records[0].seq == cursor + 1
                cursor = diff.next_from_seq
    assert cursor == ROUNDS * BATCH


def test_losses_to_a_cap_are_always_told_and_rows_are_never_wrong(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    expected, told = 1, 0
    with open_reader(tmp_path) as reader:
        for found in reader.watch("capped", idle_ms=30_000):
            if isinstance(found, Tombstone):
                assert found.gap_from == expected
                assert found.reason == "cap"
                expected = found.gap_to + 1
                told += 1
                continue
            assert (found.seq, found.data) == (expected, expected)
            expected += 1
            if expected > ROUNDS * BATCH:
                break
        assert reader.state("capped").count == CAP
    assert expected == ROUNDS * BATCH + 1


def test_deleted_tags_and_dropped_topics_never_give_wrong_rows(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    with open_reader(tmp_path) as reader:
        cursor = 0
        while cursor < ROUNDS * BATCH:
            diff = reader.diff("tagged", cursor, limit=50, wait_ms=30_000)
            assert all(record.data == record.seq for record in diff.records)
            seqs = [record.seq for record in diff.records]
            assert seqs == sorted(set(seqs))
            assert set(range(cursor + 1, diff.next_from_seq + 1, 1)) - set(seqs) <= set(
                range(1, ROUNDS * BATCH, 2)
            ), "only odd records are ever deleted"
            cursor = diff.next_from_seq
            for state in reader.topics("short-"):
                assert state.head_seq >= 1
        finish(owner)
        reader.refresh()
        last_delete = ROUNDS // 4 * 4 * BATCH
        rest = [r.seq for r in reader.watch("tagged", idle_ms=0) if not isinstance(r, Tombstone)]
        odd = range(last_delete + 1, ROUNDS * BATCH + 1, 2)
        assert rest == sorted([*range(2, ROUNDS * BATCH + 1, 2), *odd])


def test_a_reader_changes_nothing_on_disk_and_needs_no_answer_from_the_owner(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    finish(owner)
    owner.send_signal(signal.SIGSTOP)  # alive, and holding the lock, but it cannot move
    os.waitpid(owner.pid, os.WUNTRACED)  # a signal is not obeyed at once: some thread may write
    before = everything_in(tmp_path)
    with open_reader(tmp_path) as reader:
        seen = {state.topic: 0 for state in reader.topics()}
        for topic in seen:
            for found in reader.watch(topic, idle_ms=0):
                seen[topic] += not isinstance(found, Tombstone)
        assert seen["whole"] == ROUNDS * BATCH
        reader.refresh()
    assert everything_in(tmp_path) == before


def test_a_killed_owner_leaves_a_directory_that_can_be_read_as_it_is(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    assert owner.stdout is not None
    acked = 0
    for line in owner.stdout:
        acked = int(line.split()[1])
        if acked >= ROUNDS * BATCH // 2:
            break
    owner.kill()
    owner.wait()
    before = everything_in(tmp_path)
    with open_reader(tmp_path) as reader:
        found = [r for r in reader.watch("whole", idle_ms=0) if not isinstance(r, Tombstone)]
        check_dense([r.seq for r in found], [r.data for r in found])
        assert len(found) >= acked
    assert everything_in(tmp_path) == before
