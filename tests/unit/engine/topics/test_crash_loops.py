"""Killed over and over, sooner than any checkpoint is due: what a start replays stays bounded.

What is refused leaves everything as it was.
"""

from __future__ import annotations

import dataclasses

import pytest

from headwater.core.errors import NewerFormatError
from headwater.disk import OpenMode
from headwater.format.snapshot import SNAPSHOT_HEADER
from headwater.testing import KILL, ManualClock
from tests.rig.life import SMALL, new_disk, open_stepped

LIVES = 12
RECORDS_A_LIFE = 15


def replayed_in_each_life(frames_max: int) -> list[int]:
    settings = dataclasses.replace(SMALL, replay_frames_max=frames_max, snapshot_wal_bytes=2**40)
    settings = dataclasses.replace(
        settings, wal=dataclasses.replace(settings.wal, file_bytes=2**20)
    )
    disk, clock = new_disk(), ManualClock()
    replayed = []
    for life in range(LIVES):
        db = open_stepped(disk, settings, clock)
        replayed.append(db.engine.notes.frames_replayed)
        for number in range(RECORDS_A_LIFE):
            db.append(
                f"t{number % 3}", {"data": [life, number]}, idempotency_key=f"{life}.{number}"
            )
        disk = next(disk.crash_states(disk.point, KILL))
    db = open_stepped(disk, settings, clock)
    for topic in range(3):
        found = [record.data for record in db.diff(f"t{topic}", limit=1_000).records]
        assert found == [
            [life, number] for life in range(LIVES) for number in range(topic, RECORDS_A_LIFE, 3)
        ]
    return replayed


def test_what_a_start_replays_in_a_crash_loop_is_bounded() -> None:
    a_life = 2 * RECORDS_A_LIFE + 3  # a record and its key, and the topics when they are made
    bounded = replayed_in_each_life(frames_max=40)
    assert max(bounded) <= 40 + a_life
    unbounded = replayed_in_each_life(frames_max=10**6)
    assert unbounded[-1] > 5 * max(bounded), "or the test shows nothing"


def test_a_snapshot_of_a_newer_version_is_refused_before_the_log_is_touched() -> None:
    disk, clock = new_disk(), ManualClock()
    db = open_stepped(disk, SMALL, clock)
    db.append("t", {"data": 1})
    db.checkpoint()
    db.append("t", {"data": 2})
    disk = next(disk.crash_states(disk.point, KILL))
    (snapshot,) = (path for path in disk.files() if path.name.startswith("snapshot-"))
    file = disk.open(snapshot, OpenMode.UPDATE)
    file.write(SNAPSHOT_HEADER.offset_of("version"), [b"\x40"])
    file.close()
    log = max(path for path in disk.files() if path.name.startswith("wal-"))
    file = disk.open(log, OpenMode.UPDATE)
    file.write(len(disk.files()[log].rstrip(b"\0")), [b"a write that did not end"])
    file.close()
    before = {path: content for path, content in disk.files().items() if path.name != "LOCK"}
    with pytest.raises(NewerFormatError):
        open_stepped(disk, SMALL, clock)
    after = {path: content for path, content in disk.files().items() if path.name != "LOCK"}
    assert after == before
