"""A WAL file, shown frame by frame from the layout tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from headwater.cli.output import preview, say, say_json, when
from headwater.cli.show.shown_file import (
    FieldRow,
    Problem,
    ShownFile,
    layout_rows,
    say_rows,
    unreadable,
)
from headwater.cli.wal.dump import as_json_object
from headwater.cli.wal.frame_regions import (
    FileRegions,
    NumberedFrame,
    Region,
    frames_between,
    read_regions,
    shown_value,
    type_name,
)
from headwater.core.errors import FormatError, NewerFormatError
from headwater.format.control_frames import FRAME_BODIES
from headwater.format.frame import CHECKSUM_BYTES, FRAME, Frame, FrameFlag
from headwater.format.mark import decode_mark, find_mark
from headwater.format.names import parse_wal_file_name
from headwater.recovery.topics.table import FileVerdict


def show_wal(file: ShownFile) -> Problem | None:
    buffer = file.buffer
    file_regions = read_regions(buffer, file.path, _number_of(file.path, buffer))
    scan, gaps = file_regions.scan, file_regions.gaps
    if scan.verdict is FileVerdict.NEWER:
        raise NewerFormatError(scan.reason, path=file.path, offset=scan.end)
    state = "damaged" if gaps and scan.verdict is FileVerdict.CLEAN else scan.verdict.value
    file.say_head(state, state=state, groups=scan.groups, frames=scan.frames, end=scan.end)
    if not file.as_json:
        say(f"{scan.groups:,} whole groups, {scan.frames:,} frames, up to byte {scan.end}")
    for item in islice(_everything(buffer, file_regions, file.at), file.limit):
        if file.as_json:
            say_json(_with_fields(buffer, item))
        else:
            _say(buffer, item)
    if not gaps or (scan.verdict is FileVerdict.TORN and len(gaps) == 1):
        return None
    return gaps[0].problem or "damaged", gaps[0].start


def _number_of(path: PurePath, buffer: memoryview) -> int:
    """From the name; a copy in quarantine has another name, but its marks have the number."""
    number = parse_wal_file_name(path.name)
    if number is not None:
        return number
    try:
        return decode_mark(buffer, 0, len(buffer)).file_frame
    except FormatError:
        mark = find_mark(buffer, 0, None)
        return 0 if mark is None else mark.file_frame


def _everything(
    buffer: memoryview, file_regions: FileRegions, at: int
) -> Iterator[NumberedFrame | Region]:
    for region in file_regions.regions:
        if region.end <= at:
            continue
        if region.problem is not None:
            yield region
            continue
        for item in frames_between(buffer, region):
            if item.frame.offset + item.frame.size > at:
                yield item


def _say(buffer: memoryview, item: NumberedFrame | Region) -> None:
    if isinstance(item, Region):
        say_rows(unreadable(item.start, item.end - item.start, item.problem), (), 0)
        return
    frame = item.frame
    what = f"frame {item.number}: {type_name(frame.type)}"
    say_rows(f"{what}, {frame.size} bytes at {frame.offset}", _rows(buffer, frame), 26)


def _rows(buffer: memoryview, frame: Frame) -> Iterator[FieldRow]:
    """Every field of the frame, fixed part, variable parts and checksum."""
    for row in layout_rows(FRAME, buffer, frame.offset):
        shown = shown_value(row.field, row.value)
        yield row._replace(value=f"{shown}{_explained(row.field, frame)}")
    at = frame.offset + FRAME.size
    for name, value in (("node", frame.node), ("tag", frame.tag)):
        if value:
            yield FieldRow(name, at, "", preview(value))
        at += len(value)
    body = FRAME_BODIES.get(frame.type)
    if body is not None and len(frame.data) == body.size:
        for row in layout_rows(body, buffer, at):
            shown = str(shown_value(row.field, row.value))
            yield row._replace(field=f"{type_name(frame.type)}.{row.field}", value=shown)
    elif frame.data:
        yield FieldRow("data", at, "", preview(frame.data))
    border = frame.offset + frame.size - CHECKSUM_BYTES
    checksum = int.from_bytes(buffer[border : border + CHECKSUM_BYTES], "little")
    yield FieldRow("xxh3", border, "u64", f"{checksum:016x}")


def _explained(name: str, frame: Frame) -> str:
    if name == "type":
        return f" ({type_name(frame.type)})"
    if name == "ts" and frame.ts:
        return f" ({when(frame.ts)})"
    if name == "flags" and frame.flags:
        names = [flag.name.lower() for flag in FrameFlag if flag.name and frame.flags & flag]
        return f" ({', '.join(names)})"
    return ""


def _with_fields(buffer: memoryview, item: NumberedFrame | Region) -> dict[str, Any]:
    shown = as_json_object(item)
    if isinstance(item, NumberedFrame):
        shown["fields"] = [row._asdict() for row in _rows(buffer, item.frame)]
    return shown
