"""Wrote `wal-v1/`, once. Kept to show how the bytes came about; refuses to write them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.disk import PosixDisk
from headwater.format.control_frames import (
    IdempotencyEntry,
    encode_head_watermark,
    encode_idempotency,
)
from headwater.format.frame import Frame, FrameFlag, FrameType, encode_frame, join_data
from headwater.recovery.topics.plan import apply_repairs, plan_repairs
from headwater.recovery.topics.repair import recover
from headwater.recovery.topics.replay import replay
from headwater.recovery.topics.report import inspect_wal
from headwater.testing import ManualClock
from headwater.wal.counters import WalCounters
from headwater.wal.frame_log import FrameLog
from headwater.wal.ticket import Ticket

HERE = Path(__file__).parent / "wal-v1"
WAL = HERE / "wal"
SETTINGS = WalSettings(shards=1, file_bytes=2048, reserve_bytes=128, zero_chunk_bytes=1024)
LOG_ID = 0x0123456789ABCDEF
OTHER_TYPES = (2, 3, 4, 5, 6, 7, 8, 9, 10)


def appends(topic: int, first: int, count: int, ts: int) -> bytes:
    frames = []
    for seq in range(first, first + count):
        flags, node, tag, meta = 0, b"", b"", None
        if seq % 2:
            flags |= FrameFlag.HAS_TAG | FrameFlag.HAS_NODE
            node, tag = b"node-1", "größe".encode()
        if seq % 3 == 0:
            flags |= FrameFlag.HAS_META
            meta = b'{"m":1}'
        data = join_data(f'{{"seq":{seq}}}'.encode(), meta)
        frames.append(
            encode_frame(
                FrameType.APPEND, topic, seq=seq, ts=ts, flags=flags, node=node, tag=tag, data=data
            )
        )
    return b"".join(frames)


def write_run(clock: ManualClock, bodies: list[tuple[bytes, int]]) -> None:
    recovered = recover(PosixDisk(), WAL, SETTINGS, lambda: LOG_ID)
    position = recovered.positions[0]
    log = FrameLog(PosixDisk(), WAL, SETTINGS, clock, position, WalCounters())
    log.open()
    for body, count in bodies:
        log.write_group([Ticket(body, count, Durability.FSYNC)], essential=False)
        log.sync()
        clock.advance(1_000)
    log.witness(clean_stop=False)
    log.witness(clean_stop=True)
    log.close()


def shown(frame: Frame) -> dict[str, Any]:
    fields = asdict(frame)
    fields["type"] = int(frame.type)
    for name in ("node", "tag", "data"):
        fields[name] = fields[name].hex()
    return fields


def expected() -> dict[str, Any]:
    """What the reader of the day finds: checked by eye, then the yardstick for all later ones."""
    report = inspect_wal(PosixDisk(), WAL, deep=True)
    shard = report.shards[0]
    assert shard.current is not None
    return {
        "current": asdict(shard.current),
        "files": [
            [scan.path.name, scan.verdict.value, scan.end, scan.groups, scan.frames, scan.skipped]
            for scan in shard.files
        ],
        "skips": [[skip.file, skip.offset, skip.resume] for skip in shard.repairs.skips],
        "groups": [
            {
                "file": group.path.name,
                "run": group.run,
                "first_frame": group.first_frame,
                "frames": [shown(frame) for frame in group.frames()],
            }
            for group in replay(PosixDisk(), report.shards)
        ],
    }


def main() -> None:
    HERE.mkdir()  # fails when the files are there, and that is the point
    clock = ManualClock(wall_ms=1_750_000_000_000)
    key = IdempotencyEntry(b"key-1", 1, 3, 1_750_000_600_000, created=True)
    others = b"".join(
        encode_frame(kind, kind, ts=clock.wall_ms(), data=f"body of type {kind}".encode())
        for kind in OTHER_TYPES
    )
    write_run(
        clock,
        [
            (appends(1, 1, 3, 1_750_000_000_001) + encode_idempotency(1, key, 5), 4),
            (others, len(OTHER_TYPES)),
            (appends(2, 1, 1, 1_750_000_000_002), 1),
            (encode_head_watermark(2, 257, 6) + appends(2, 2, 4, 1_750_000_000_003), 5),
            (appends(1, 4, 2, 1_750_000_000_004), 2),
        ],
    )
    write_run(clock, [(appends(3, n, 2, 1_750_000_000_005), 2) for n in range(1, 9, 2)])
    damaged = sorted(WAL.glob("wal-*.log"))[0]
    content = bytearray(damaged.read_bytes())
    content[content.index(appends(2, 1, 1, 1_750_000_000_002)) + 45] ^= 0xFF
    damaged.write_bytes(content)
    for plan in plan_repairs(PosixDisk(), WAL):
        apply_repairs(PosixDisk(), plan)
    write_run(clock, [(appends(3, 9, 1, 1_750_000_000_006), 1)])
    (HERE / "expected.json").write_text(json.dumps(expected(), indent=1) + "\n")


if __name__ == "__main__":
    main()
