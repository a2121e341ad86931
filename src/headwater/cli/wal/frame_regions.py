"""From a log file to its regions: whole groups, and what lies between them.

Uses the one scan there is, over and over: where it stops and a believable mark follows, the gap is
noted and the scan goes on behind it, as a repair would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.format.frame import Frame, FrameType, decode_frame
from headwater.format.mark import decode_mark
from headwater.recovery.topics.scan import END_OF_FILE, FileScan, MarkChain, Surroundings, scan_file
from headwater.recovery.topics.table import FileVerdict

GAPS_MAX: Final = 100
_HASHES: Final = frozenset({"body_hash", "chain", "log_id", "xxh3"})


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a file: whole groups when there is no `problem`."""

    start: int
    end: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FileRegions:
    scan: FileScan
    regions: tuple[Region, ...]

    @property
    def gaps(self) -> list[Region]:
        return [region for region in self.regions if region.problem is not None]


@dataclass(frozen=True, slots=True)
class NumberedFrame:
    number: int
    """Among all frames of the shard, from 1."""
    frame: Frame


def read_regions(
    buffer: memoryview, path: PurePath, number: int, agreed: Mapping[int, int] | None = None
) -> FileRegions:
    """`agreed`: losses that REPAIRS records, offset -> where to go on."""
    skips = dict(agreed or {})
    reasons = dict.fromkeys(skips, "passed over, as agreed in REPAIRS")
    while True:
        scan = FileScan(path, number)
        scan_file(buffer, scan, MarkChain(), Surroundings(skips=skips))
        if scan.verdict is FileVerdict.CLEAN or scan.resume is None or len(reasons) >= GAPS_MAX:
            break
        skips[scan.end] = scan.resume
        reasons[scan.end] = scan.reason
    return FileRegions(scan, tuple(_cut(buffer, scan, skips, reasons)))


def _cut(
    buffer: memoryview, scan: FileScan, skips: Mapping[int, int], reasons: Mapping[int, str]
) -> Iterator[Region]:
    start = 0
    for offset in sorted(skips):
        if not start <= offset <= scan.end:
            continue
        if offset > start:
            yield Region(start, offset)
        start = len(buffer) if skips[offset] == END_OF_FILE else skips[offset]
        yield Region(offset, start, reasons[offset])
    if scan.end > start:
        yield Region(start, scan.end)
    if scan.verdict not in (FileVerdict.CLEAN, FileVerdict.EMPTY):
        yield Region(scan.end, len(buffer), f"{scan.verdict.value}: {scan.reason}")


def frames_between(
    buffer: memoryview, region: Region, first_number: int = 0
) -> Iterator[NumberedFrame]:
    """Every frame of a stretch of whole groups, marks too. Groups before `first_number` are
    skipped without being read."""
    at = region.start
    while at < region.end:
        mark = decode_mark(buffer, at, region.end)
        number = mark.frame
        if number + mark.frame_count < first_number:
            at = mark.end
            continue
        while at < mark.end:
            frame = decode_frame(buffer, at, mark.end, verify=False)
            if number >= first_number:
                yield NumberedFrame(number, frame)
            number += 1
            at += frame.size


def type_name(frame_type: FrameType) -> str:
    return frame_type.name.lower()


def shown_value(name: str, value: int) -> int | str:
    """Hashes in hexadecimal, and as text: they do not fit into every JSON reader's numbers."""
    return f"{value:016x}" if name in _HASHES else value
