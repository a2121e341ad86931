"""Looking at what an engine wrote, and ending it the hard way."""

from __future__ import annotations

import shutil
from pathlib import Path

import headwater
from headwater.format.frame import Frame
from headwater.format.names import WAL_DIRECTORY
from headwater.recovery.topics.replay import replay
from headwater.recovery.topics.report import inspect_wal


def frames_in_log(db: headwater.Database) -> list[Frame]:
    """Every frame that is in the log files now."""
    core = db.engine.core
    report = inspect_wal(core.disk, core.directory / WAL_DIRECTORY)
    return [frame for group in replay(core.disk, report.shards) for frame in group.frames()]


def killed(db: headwater.Database, to: Path) -> Path:
    """The directory as a killed process leaves it: a copy, taken while the owner runs on."""
    shutil.copytree(str(db.engine.core.directory), to)
    return to
