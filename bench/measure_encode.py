"""How fast frames are made and read, beside what hashing and copying the same bytes costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bench.log_under_test import LogUnderTest, WrongResultError
from bench.payloads import PAYLOAD_BYTES, PAYLOADS
from bench.registry import Row, Run, benchmark
from bench.turns import median_rate, repeated, take_turns
from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.core.units import MIB
from headwater.disk import PosixDisk
from headwater.format.appends import encode_appends
from headwater.format.checksum import checksum64
from headwater.format.frame import FrameType, decode_frame, encode_frame
from headwater.format.table import read_table
from headwater.recovery.topics.replay import replay
from headwater.recovery.topics.report import inspect_wal
from headwater.recovery.topics.survey import read_log_file


def _conditions(**more: object) -> dict[str, str]:
    told = {"payload": f"{PAYLOAD_BYTES} B", "durability": "none, in memory"}
    return told | {name: str(value) for name, value in more.items()}


def _encoders(batch: int) -> dict[str, Callable[[], list[bytes]]]:
    datas = PAYLOADS[:batch]
    empty, flags, times = [b""] * batch, [4] * batch, [1] * batch

    def one_by_one() -> list[bytes]:
        return [
            encode_frame(FrameType.APPEND, 7, seq=seq, ts=1, flags=4, data=data)
            for seq, data in enumerate(datas, 1)
        ]

    def at_once() -> list[bytes]:
        made = encode_appends(7, 1, times, flags, empty, empty, datas)
        ends = [*made.offsets[1:], len(made.buffer)]
        return [made.buffer[at:end] for at, end in zip(made.offsets, ends, strict=True)]

    return {"encode_frame": one_by_one, "encode_appends": at_once}


def _hash_all(frames: list[bytes]) -> list[int]:
    return [checksum64(frame) for frame in frames]


def _check_encoded(frames: list[bytes]) -> None:
    for frame, data in zip(frames, PAYLOADS, strict=False):
        if decode_frame(memoryview(frame), 0, len(frame)).data != data:
            raise WrongResultError("a frame does not read back as it was made")


@benchmark("encode", "How many append frames a second are made, against hashing and copying them?")
def encode(run: Run) -> list[Row]:
    rows = []
    for batch in (1, 100, 1000):
        frames = _encoders(batch)["encode_frame"]()
        whole = b"".join(frames)
        steps: dict[str, Callable[[], object]] = {
            "xxh3": partial(_hash_all, frames),
            "memcpy": partial(bytearray, whole),
            **_encoders(batch),
        }
        for name, step in steps.items():
            if name.startswith("encode"):
                _check_encoded(step())  # type: ignore[arg-type]
        turns = take_turns(run, {name: repeated(_counted(s, batch)) for name, s in steps.items()})
        told = _conditions(batch=batch)
        own = {
            name: Row(f"{name}, batch of {batch}", median_rate(turns[name]), "frames/s", told)
            for name in steps
        }
        rows += [own["memcpy"], own["xxh3"]]
        rows += [own[name].against(own["xxh3"]) for name in ("encode_frame", "encode_appends")]
    return rows


def _counted(step: Callable[[], object], batch: int) -> Callable[[], int]:
    """Enough calls between two looks at the clock that looking costs nothing."""
    calls = max(1, 2000 // batch)

    def many() -> int:
        for _ in range(calls):
            step()
        return calls * batch

    return many


def write_log(directory: Path, frames: int, group: int) -> None:
    log = LogUnderTest(directory, WalSettings(file_bytes=4 * MIB))
    log.heads[1] = frames
    for first in range(1, frames + 1, group):
        ticket = log.ticket(1, first, min(group, frames + 1 - first), Durability.DISK, None)
        log.shard.submit(ticket)
        ticket.wait()
    log.close_and_check()


@benchmark("scan", "How fast is a log looked through and replayed after a restart?")
def scan(run: Run) -> list[Row]:
    rows = []
    for group in (1, 64, 1000):
        frames = run.size(200_000, 2_000) if group > 1 else run.size(50_000, 500)
        directory = run.directory / str(group)
        write_log(directory, frames, group)
        rows += _scan_rows(run, directory / "wal", frames, group)
    return rows


def _scan_rows(run: Run, directory: Path, frames: int, group: int) -> list[Row]:
    disk = PosixDisk()
    report = inspect_wal(disk, directory)
    paths = [scan.path for shard in report.shards for scan in shard.files]

    def hashed() -> int:
        for path in paths:
            checksum64(read_log_file(disk, path))
        return frames

    def copied() -> int:
        for path in paths:
            bytearray(read_log_file(disk, path))
        return frames

    def surveyed() -> int:
        found = [scan for shard in inspect_wal(disk, directory).shards for scan in shard.files]
        return sum(scan.frames - scan.groups for scan in found)

    def by_frame() -> int:
        return sum(1 for group in replay(disk, report.shards) for _ in group.frames())

    def by_table() -> int:
        rows_read = 0
        for scan in (scan for shard in report.shards for scan in shard.files):
            spans = scan.spans
            stretches = zip(spans[0::4], spans[1::4], strict=True)
            rows_read += len(read_table(read_log_file(disk, scan.path), stretches))
        return rows_read

    steps: Mapping[str, Callable[[], int]] = {
        "read and xxh3 of the files": hashed,
        "read and memcpy of the files": copied,
        "survey": surveyed,
        "replay, frame by frame": by_frame,
        "replay, as a table": by_table,
    }  # fmt: skip
    for name, step in steps.items():
        if step() != frames:
            raise WrongResultError(f"{name}: not all frames were seen")
    used = sum(scan.end for shard in report.shards for scan in shard.files)
    turns = take_turns(run, {name: repeated(step) for name, step in steps.items()})
    baseline: Row | None = None
    rows = []
    for name in steps:
        rate = median_rate(turns[name])
        told = _conditions(
            frames=f"{frames:,}", frames_per_group=group, MB_s=f"{rate * used / frames / 1e6:,.0f}",
            files="in the page cache",
        )  # fmt: skip
        row = Row(f"{name}, groups of {group}", rate, "frames/s", told)
        baseline = baseline or row
        rows.append(row if row is baseline else row.against(baseline))
    return rows
