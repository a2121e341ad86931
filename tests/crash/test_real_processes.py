"""Real processes on a real disk: killed under load, stopped politely, two at one directory."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

import pytest

from headwater.core.errors import DirectoryInUseError
from headwater.disk import PosixDisk
from headwater.recovery.topics.repair import claim_directory
from headwater.recovery.topics.replay import replay
from headwater.recovery.topics.report import inspect_wal
from tests.crash.matrix import FULL, tried
from tests.crash.writer_process import TOPICS, payload

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

REPOSITORY = Path(__file__).parents[2]
KILLS = 300 if FULL else 26
"""In each of two layouts."""
ACKS_BEFORE_KILL = (5, 40, 1, 90, 20, 150, 60)


@contextmanager
def writer(directory: Path, shards: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer_process", str(directory), str(shards)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Acked:
    """What the pipe told before the process died."""

    def __init__(self) -> None:
        self.heads = dict.fromkeys(TOPICS, 0)
        self.run = 0

    def hear(self, line: str) -> str:
        word, *rest = line.split()
        if word == "head":
            topic, seq = map(int, rest)
            assert seq >= self.heads[topic], f"topic {topic} lost {seq + 1} to {self.heads[topic]}"
            self.heads[topic] = seq
        elif word == "ack":
            topic, seq = map(int, rest)
            assert seq > self.heads[topic], f"seq {seq} of topic {topic} was handed out twice"
            self.heads[topic] = seq
        elif word == "ready":
            assert int(rest[0]) > self.run, "runs grow"
            self.run = int(rest[0])
        else:
            assert word == "closed", line
        return word


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    yield from (line for line in process.stdout if line.endswith("\n"))


def check_directory(directory: Path, acked: Acked) -> None:
    """Every topic dense from 1, every byte as written, nothing acked missing."""
    disk = PosixDisk()
    report = inspect_wal(disk, PurePath(directory) / "wal", deep=True)
    assert not report.refusals
    found = dict.fromkeys(TOPICS, 0)
    for group in replay(disk, report.shards):
        for frame in group.frames():
            assert frame.seq == found[frame.topic_id] + 1, f"topic {frame.topic_id} is not dense"
            assert frame.data == payload(frame.topic_id, frame.seq)
            found[frame.topic_id] = frame.seq
    lost = {topic: (seq, acked.heads[topic]) for topic, seq in found.items()}
    assert all(seq >= head for seq, head in lost.values()), f"(found, acked) by topic: {lost}"


@pytest.mark.claims(164, 202)
@pytest.mark.timeout(7200 if FULL else 600)
@pytest.mark.parametrize("shards", [1, 3])
def test_nothing_acked_is_lost_when_a_writer_is_killed_again_and_again(
    tmp_path: Path, shards: int
) -> None:
    acked = Acked()
    files_seen = 0
    for kill in range(KILLS):
        with writer(tmp_path, shards) as process:
            acks = 0
            for line in lines(process):
                acks += acked.hear(line) == "ack"
                if acks == ACKS_BEFORE_KILL[kill % len(ACKS_BEFORE_KILL)]:
                    process.kill()  # and hear out what is still in the pipe
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        files_seen = max(files_seen, len(list((tmp_path / "wal").rglob("wal-*.log"))))
        tried("real process: killed under load")
    check_directory(tmp_path, acked)
    assert files_seen > shards, "no rotation happened"
    assert min(acked.heads.values()) > 0


@pytest.mark.parametrize("times", [1, 2])
def test_a_polite_stop_writes_the_closing_mark_even_when_asked_twice(
    tmp_path: Path, times: int
) -> None:
    acked = Acked()
    with writer(tmp_path, 2) as process:
        acks, word = 0, ""
        for line in lines(process):
            word = acked.hear(line)
            acks += word == "ack"
            if acks in range(30, 30 + times) and word == "ack":
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert word == "closed"
    check_directory(tmp_path, acked)
    report = inspect_wal(PosixDisk(), PurePath(tmp_path) / "wal")
    assert [shard.files[-1].clean_stop for shard in report.shards] == [True, True]
    tried("real process: stopped by SIGTERM")


@pytest.mark.claims(112)
def test_a_second_process_is_refused_with_one_line_that_names_the_first(tmp_path: Path) -> None:
    acked = Acked()
    with writer(tmp_path, 1) as first:
        for line in lines(first):
            if acked.hear(line) == "ready":
                break
        with writer(tmp_path, 1) as second:
            out, err = second.communicate(timeout=60)
        assert (second.returncode, out) == (DirectoryInUseError.exit_code, "")
        assert len(err.splitlines()) == 1
        assert str(tmp_path) in err
        assert str(first.pid) in err
        assert "in use" in err
    tried("real process: second at one directory")


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    with writer(tmp_path, 1) as process:
        for line in lines(process):
            if line.startswith("ready"):
                break
        with pytest.raises(DirectoryInUseError):
            claim_directory(PosixDisk(), PurePath(tmp_path))
    claim_directory(PosixDisk(), PurePath(tmp_path)).release()
