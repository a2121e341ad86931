"""A WAL file, shown frame by frame from the layout tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from headwater.cli.output import preview, printable, say, say_json, shown_path, when
from headwater.cli.show.metadata import Problem
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
from headwater.format.layout import Layout
from headwater.format.mark import decode_mark, find_mark
from headwater.format.names import parse_wal_file_name
from headwater.recovery.topics.table import FileVerdict

Row = tuple[str, int, str, str]
"""Field, offset in the file, type, value."""


def show_wal(
    path: PurePath,
    buffer: memoryview,
    summary: dict[str, Any],
    *,
    as_json: bool,
    at: int,
    limit: int | None,
) -> Problem | None:
    file_regions = read_regions(buffer, path, _number_of(path, buffer))
    scan = file_regions.scan
    if scan.verdict is FileVerdict.NEWER:
        raise NewerFormatError(
            scan.reason,
            path=path,
            offset=scan.end,
            advice="use the version of Headwater that wrote it",
        )
    _say_head(file_regions, summary, as_json)
    for item in islice(_everything(buffer, file_regions, at), limit):
        if as_json:
            say_json(_with_fields(buffer, item))
        else:
            _say(buffer, item)
    gaps = file_regions.gaps
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


def _say_head(file_regions: FileRegions, summary: dict[str, Any], as_json: bool) -> None:
    scan = file_regions.scan
    state = (
        "damaged" if file_regions.gaps and scan.verdict is FileVerdict.CLEAN else scan.verdict.value
    )
    if as_json:
        facts = {"state": state, "groups": scan.groups, "frames": scan.frames, "end": scan.end}
        say_json({**summary, **facts})
        return
    say(f"{shown_path(summary['file'])}: {summary['kind']}, {summary['bytes']:,} bytes, {state}")
    say(f"{scan.groups:,} whole groups, {scan.frames:,} frames, up to byte {scan.end}")


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
    say()
    if isinstance(item, Region):
        size = item.end - item.start
        say(printable(f"UNREADABLE from byte {item.start}, {size:,} bytes: {item.problem}"))
        return
    frame = item.frame
    say(f"frame {item.number}: {type_name(frame.type)}, {frame.size} bytes at {frame.offset}")
    for name, offset, code, value in rows_of(buffer, frame):
        say(f"{offset:>12}  {name:<26}  {code:<4}  {value}".rstrip())


def rows_of(buffer: memoryview, frame: Frame) -> Iterator[Row]:
    """Every field of the frame, fixed part, variable parts and checksum."""
    yield from _fixed(FRAME, buffer, frame.offset, "", frame)
    at = frame.offset + FRAME.size
    for name, value in (("node", frame.node), ("tag", frame.tag)):
        if value:
            yield name, at, "", preview(value)
        at += len(value)
    body = FRAME_BODIES.get(frame.type)
    if body is not None and len(frame.data) == body.size:
        yield from _fixed(body, buffer, at, f"{type_name(frame.type)}.", None)
    elif frame.data:
        yield "data", at, "", preview(frame.data)
    border = frame.offset + frame.size - CHECKSUM_BYTES
    checksum = int.from_bytes(buffer[border : border + CHECKSUM_BYTES], "little")
    yield "xxh3", border, "u64", f"{checksum:016x}"


def _fixed(
    layout: Layout, buffer: memoryview, at: int, prefix: str, frame: Frame | None
) -> Iterator[Row]:
    values = layout.unpack(buffer, at)
    for (name, offset), field in zip(layout.offsets(), layout.fields, strict=True):
        if name not in values:
            continue  # padding
        shown = str(shown_value(name, values[name]))
        if frame is not None:
            shown += _explained(name, frame)
        yield prefix + name, at + offset, field.code, shown


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
        shown["fields"] = [
            {"field": name, "offset": offset, "type": code, "value": value}
            for name, offset, code, value in rows_of(buffer, item.frame)
        ]
    return shown
