"""Retention holds of the machines' log: nobody's transitions are deleted behind their back."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.machines import CompactionSettings, FsyncKind, FsyncPolicy, MachineSettings
from headwater.engine.database import Database
from headwater.engine.engine import Engine
from headwater.engine.machines import positions
from headwater.engine.machines.host import MachineHost
from headwater.format.machines.names import segment_of
from tests.server.running_server import eventually

TOPIC = "machines:transitions"
LAMP: dict[str, Any] = {
    "states": ["off", "on"],
    "initial": "off",
    "transitions": [
        {"from": "off", "event": "PRESS", "to": "on"},
        {"from": "on", "event": "PRESS", "to": "off"},
    ],
}
MACHINES = MachineSettings(
    wal_segment_bytes=4_096,
    reserve_bytes=256,
    zero_chunk_bytes=4_096,
    switch_interval_us=None,
    feed_interval_ms=5,
    fsync_policy=FsyncPolicy(FsyncKind.NEVER),
    compaction=CompactionSettings(enabled=False),
)
SETTINGS = EngineSettings(machines=MACHINES)


def opened(directory: Path, machines: MachineSettings = MACHINES) -> Database:
    return headwater.open(directory, settings=replace(SETTINGS, machines=machines))


def begin(database: Database) -> None:
    database.machines.put_machine("lamp", 1, LAMP)
    database.machines.create_instance("lamp", 1, "lamp")


def press(database: Database, times: int) -> list[int]:
    return [database.machines.apply_event("lamp", "PRESS").wal_offset for _ in range(times)]


def in_topic(database: Database) -> list[int]:
    if database.engine.find(TOPIC) is None:
        return []
    records = database.diff(TOPIC, 0, limit=10_000).records
    return [record.data["wal_offset"] for record in records]


def oldest_segment(database: Database) -> int:
    store = database.engine.machines.store
    assert store is not None
    return store.wal_stats().oldest_segment


def held_back(directory: Path, killed: Path) -> list[int]:
    """A server whose topic takes no more, killed; the offsets it acknowledged."""
    database = opened(directory)
    begin(database)
    moved = press(database, 20)
    eventually(lambda: in_topic(database) == moved)
    database.create(TOPIC, cap_records=20, discard="reject")
    moved += press(database, 200)
    database.machines.compact()  # from here on there is a snapshot that could let the log go
    shutil.copytree(directory, killed)
    database.close()
    return moved


def test_compaction_before_the_feeder_is_there_deletes_nothing_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routers that copy again make the time between opening and feeding long."""
    moved = held_back(tmp_path / "data", tmp_path / "killed")
    start_feeder = MachineHost.start_feeder
    deleted: list[int] = []

    def compacted_before(room: MachineHost, engine: Engine) -> None:
        assert room.store is not None
        deleted.append(room.store.compact().segments_deleted)
        start_feeder(room, engine)

    monkeypatch.setattr(MachineHost, "start_feeder", compacted_before)
    again = opened(tmp_path / "killed")
    assert deleted[0] < segment_of(moved[20]), "what the feeder has not copied stays"
    again.create(TOPIC, cap_records=0)
    eventually(lambda: in_topic(again)[-1:] == moved[-1:])
    assert in_topic(again) == moved
    again.machines.compact()
    assert oldest_segment(again) > 1, "and once it has, they go"
    again.close()


def test_a_disk_that_is_full_at_the_stop_stops_nothing_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    database = opened(tmp_path / "data")
    begin(database)
    moved = press(database, 20)
    eventually(lambda: in_topic(database) == moved)
    with monkeypatch.context() as patch:
        patch.setattr(positions, "replace_file", no_room)
        database.machines.compact()
        assert oldest_segment(database) == 1, "FED could not say that they may go"
        database.close()
    assert any("cannot be saved" in each for each in caplog.messages)
    again = opened(tmp_path / "data")
    moved += press(again, 3)
    eventually(lambda: in_topic(again) == moved)
    again.close()
