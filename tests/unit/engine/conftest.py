"""A small database in a directory of its own, with everything happening often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.units import KIB

Open = Callable[..., headwater.Database]

SMALL = EngineSettings(
    wal=WalSettings(shards=1, file_bytes=64 * KIB, zero_chunk_bytes=16 * KIB),
    segments=SegmentSettings(segment_max_events=10),
    checkpoint_interval_ms=3_600_000,
)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Open `tmp_path/data`; what a test leaves open is closed."""
    databases: list[headwater.Database] = []

    def open_again(directory: Path = tmp_path / "data", **changes: Any) -> headwater.Database:
        database = headwater.open(directory, settings=replace(SMALL, **changes))
        databases.append(database)
        return database

    yield open_again
    for database in databases:
        database.close()
