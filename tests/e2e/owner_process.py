"""A database in a process of its own that never sits still: it writes, checkpoints, trims, deletes,
rewrites, moves to cold and drops, and says on stdout what it has acknowledged.

Run as `python -m tests.e2e.owner_process DIR ROUNDS [COLD]`. After the rounds it prints `done` and
stays open until a line comes on stdin. Every record's data is its seq.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.units import KIB

BATCH = 20
CAP = 300


def busy_settings(cold: str | None = None) -> EngineSettings:
    """Everything small, so that every kind of file comes and goes many times a second."""
    return EngineSettings(
        wal=WalSettings(shards=2, file_bytes=32 * KIB, reserve_bytes=KIB),
        segments=SegmentSettings(segment_max_events=64, hot_retain_segments=2),
        cold_url=cold,
        checkpoint_interval_ms=5,
        checkpoint_tail_bytes=2 * KIB,
        snapshot_wal_bytes=32 * KIB,
        cache_bytes=16 * KIB,
        refresh_interval_ms=5,
    )


def start_owner(directory: Path, rounds: int, cold: Path | None = None) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.e2e.owner_process", str(directory), str(rounds)]
    words += [] if cold is None else [str(cold)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def records(first_seq: int) -> list[dict[str, object]]:
    return [
        {"data": seq, "tag": "odd" if seq % 2 else "even", "node": f"n{seq % 3}"}
        for seq in range(first_seq, first_seq + BATCH)
    ]


def main() -> None:
    directory, rounds = sys.argv[1], int(sys.argv[2])
    cold = sys.argv[3] if len(sys.argv) > 3 else None
    with headwater.open(directory, settings=busy_settings(cold)) as db:
        db.create("whole")
        db.create("tagged")
        db.create("quick", durability="disk")
        db.create("capped", cap_records=CAP)
        print("open", flush=True)
        for number in range(rounds):
            first = number * BATCH + 1
            for topic in ("whole", "quick", "capped", "tagged"):
                db.append(topic, records(first))
            if number % 4 == 3:
                db.delete("tagged", match="odd")
            db.append(f"short-{number % 2}", {"data": 1})
            if number % 3 == 2:
                db.drop(f"short-{number % 2}")
            print(f"acked {first + BATCH - 1}", flush=True)
        print("done", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
