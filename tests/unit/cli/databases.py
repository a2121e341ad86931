"""Small data directories with something of every kind in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.clock import Clock
from headwater.core.units import KIB

NO_COMPANY = WalSettings(commit_window_us_min=0, commit_window_us_max=0)
"""No write waits for company: under a clock that only a test moves it would wait for ever."""
SETTINGS = EngineSettings(
    wal=replace(NO_COMPANY, shards=1, file_bytes=64 * KIB, reserve_bytes=KIB),
    segments=SegmentSettings(segment_max_events=40),
    checkpoint_interval_ms=600_000,
)


def fill(directory: Path, clock: Clock | None = None) -> None:
    """Topic `orders`: 100 records in three segments, every third of them deleted. Topic `idle` has
    one record, topic `gone` was dropped."""
    with headwater.open(directory, settings=SETTINGS, clock=clock) as db:
        for first in range(1, 101, 20):
            db.append("orders", [record(seq) for seq in range(first, first + 20)])
        db.append("idle", {"data": "alone"}, idempotency_key="once")
        db.append("gone", {"data": 1})
        db.checkpoint()
        db.drop("gone")
        db.delete("orders", match="third")
        db.checkpoint()


def record(seq: int) -> dict[str, object]:
    return {"data": {"number": seq}, "tag": "third" if seq % 3 == 0 else "other", "node": "n"}


def kept(last: int = 100) -> list[int]:
    return [seq for seq in range(1, last + 1) if seq % 3]


def seqs_in(directory: Path, topic: str = "orders") -> list[int]:
    with headwater.open(directory, read_only=True) as reader:
        return [r.seq for r in reader.diff(topic, limit=1_000).records]


def segment_file(directory: Path, suffix: str, number: int = 0) -> Path:
    """The nth file of this kind of topic 1, oldest first."""
    return sorted((directory / "topics" / "00000001").glob(f"*.{suffix}"))[number]
