"""A process that uses an engine until somebody kills it, and tells what was acknowledged.

Every line is written after its answer and flushed: what the pipe has, was promised.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.engine.database import Database
from headwater.engine.opening import open_database

CLASSES = ("fsync", "disk", "memory")
TOPICS = tuple(f"{each}-{number}" for number in range(8) for each in CLASSES)

SETTINGS = EngineSettings(
    wal=WalSettings(shards=2, file_bytes=32 * 1024, zero_chunk_bytes=16 * 1024, head_ahead=32),
    segments=SegmentSettings(segment_max_events=20, segment_max_bytes=8 * 1024),
    checkpoint_interval_ms=5,
    checkpoint_tail_bytes=2_000,
    snapshot_wal_bytes=16 * 1024,
    cache_bytes=4_000,
)


def settings(shards: int) -> EngineSettings:
    return replace(SETTINGS, wal=replace(SETTINGS.wal, shards=shards))


def payload(topic: str, seq: int) -> dict[str, Any]:
    return {"topic": topic, "seq": seq, "fill": "." * (seq * 37 % 200)}


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def one_step(db: Database, rng: random.Random) -> None:
    topic = rng.choice(TOPICS)
    choice = rng.random()
    head = db.state(topic).head_seq
    if choice < 0.85:
        count = rng.choice((1, 1, 1, 2, 5))
        batch = [
            {"data": payload(topic, seq), "tag": "odd" if seq % 2 else "even"}
            for seq in range(head + 1, head + 1 + count)
        ]
        appended = db.append(topic, batch, expect_head_seq=head)
        tell("ack", topic, appended.first_seq, appended.last_seq)
    elif choice < 0.90:
        below = max(head - 40, 0)
        tell("deleting", topic, below, "-")
        db.delete(topic, before_seq=below)
        tell("deleted", topic, below, "-")
    elif choice < 0.95:
        below = max(head - 10, 0)
        tell("deleting", topic, below, "odd")
        db.delete(topic, before_seq=below, match="odd")
        tell("deleted", topic, below, "odd")
    else:
        db.checkpoint()
        tell("checkpoint")


def main() -> None:
    directory, shards, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    db = open_database(directory, settings=settings(shards))
    for topic in TOPICS:
        db.create(topic, durability=topic.partition("-")[0])
    tell("ready")
    while True:
        one_step(db, rng)


if __name__ == "__main__":
    main()
