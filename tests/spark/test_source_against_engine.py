"""The source against the engine's own reading: any order of events, and the rows are the same.

After every few steps the files are read by the source, beside the living owner, and held against
what the owner itself gives; then once more after a clean stop. Segments of eight records and log
files of a few kilobytes make every kind of file come and go.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.units import KIB
from tests.spark.direct_reader import Row, every_row, read

SMALL = EngineSettings(
    wal=WalSettings(shards=1, file_bytes=8 * KIB, reserve_bytes=KIB, zero_chunk_bytes=4 * KIB),
    segments=SegmentSettings(segment_max_events=8, hot_retain_segments=1, rewrite_dead_ratio=0.3),
    checkpoint_interval_ms=3_600_000,
    checkpoint_tail_bytes=1,
)
CLASSES = ("fsync", "disk", "memory")
TAGS = ("x", "xy", "y", "ÿ")

# What happens how often. A look compares everything with the engine.
EVENTS = {
    "append": 8,
    "append many": 4,
    "delete": 4,
    "delete below": 1,
    "cap": 1,
    "cap bytes": 1,
    "drop": 0.3,
    "checkpoint": 1,
    "round": 4,
    "look": 8,
    "reopen": 0.5,
}


def some_record(rng: Random) -> dict[str, Any]:
    record: dict[str, Any] = {
        "data": rng.choice((rng.randrange(9), {"s": "aé" * rng.randrange(9)}))
    }
    if rng.random() < 0.8:
        record["tag"] = rng.choice(TAGS)
    if rng.random() < 0.5:
        record["node"] = rng.choice(("n1", "nö"))
    if rng.random() < 0.3:
        record["meta"] = {"trace": "ü"}
    return record


class Life:
    """A database that is written to, and read by the source beside it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "data"
        self.cold = directory / "cold"
        self.cold.mkdir()
        self.open()

    def open(self) -> None:
        changed = EngineSettings(
            wal=SMALL.wal,
            segments=SMALL.segments,
            cold_url=str(self.cold),
            checkpoint_interval_ms=SMALL.checkpoint_interval_ms,
            checkpoint_tail_bytes=SMALL.checkpoint_tail_bytes,
        )
        self.db = headwater.open(self.path, settings=changed)

    def step(self, kind: str, rng: Random) -> None:
        db, name = self.db, rng.choice(CLASSES)
        known = {state.topic for state in db.topics()}
        if kind.startswith("append"):
            count = rng.randrange(9, 25) if kind == "append many" else rng.randrange(1, 5)
            records = [some_record(rng) for _ in range(count)]
            db.append(name, records, settings={"durability": name})
        elif kind == "checkpoint":
            db.checkpoint()
        elif kind == "round":
            db.engine._housekeeping.round()
        elif kind == "look":
            self.check()
        elif kind == "reopen":
            db.close()
            self.open()
        elif name in known:
            self.change(kind, name, rng)

    def change(self, kind: str, name: str, rng: Random) -> None:
        db = self.db
        head = db.state(name).head_seq
        if kind == "delete":
            before = rng.choice((None, None, rng.randrange(1, head + 2)))
            db.delete(name, match=rng.choice((*TAGS, "x*", "*")), before_seq=before)
        elif kind == "delete below":
            db.delete(name, before_seq=max(1, head - rng.randrange(40)))
        elif kind == "cap":
            db.create(name, cap_records=rng.choice((0, 5, 20)))
        elif kind == "cap bytes":
            db.create(name, cap_bytes=rng.choice((0, 100)))
        elif kind == "drop":
            db.drop(name)

    def check(self) -> None:
        """Everything acknowledged is in the log once a later synced write is."""
        self.db.append("fence", {"data": 0})
        for name in CLASSES:
            if name not in {state.topic for state in self.db.topics()}:
                continue
            rows, _ = every_row(self.db, name, self.db.state(name).earliest_seq - 1)
            assert self.read(name) == rows
            assert self.read(name, rowsPerPartition=3) == rows
            self.check_losses(name)

    def read(self, name: str, **options: Any) -> list[Row]:
        return read(self.path, topic=name, cold=self.cold, **options)

    def check_losses(self, name: str) -> None:
        rows, losses = every_row(self.db, name)
        read = self.read(name, startingSeq=1, failOnDataLoss=False)
        gaps = [row["gap"] for row in read if row["gap"] is not None]
        assert [row for row in read if row["gap"] is None] == rows
        assert [gap["gap_from"] for gap in gaps] == [loss.gap_from for loss in losses]
        for gap, loss in zip(gaps, losses, strict=True):
            # Deleted records behind a loss may belong to the gap, or be passed over silently.
            assert gap["gap_to"] <= loss.gap_to
            assert gap["missed_estimate"] == loss.missed_estimate


@contextmanager
def life() -> Iterator[Life]:
    with tempfile.TemporaryDirectory() as directory:
        one = Life(Path(directory))
        try:
            yield one
        finally:
            one.db.close()


def story(seed: int, events: int) -> None:
    rng = Random(seed)
    with life() as one:
        for kind in rng.choices(list(EVENTS), list(EVENTS.values()), k=events):
            one.step(kind, rng)
        one.check()
        expected = {
            state.topic: every_row(one.db, state.topic, state.earliest_seq - 1)[0]
            for state in one.db.topics()
        }
        one.db.close()
        for name, rows in expected.items():
            assert one.read(name) == rows, "after a clean stop"
        one.open()


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_those_of_the_engine_in_any_order_of_events(seed: int) -> None:
    story(seed, 80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_rows_are_those_of_the_engine_in_long_stories_too(seed: int) -> None:
    story(seed, 300)
