"""`headwater wal dump`: every frame of the log, in the order of the files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Any

import typer

from headwater.cli.log_directory import DirectoryArgument, find_log
from headwater.cli.option_groups import JsonOption
from headwater.cli.output import (
    complain,
    on_terminal,
    preview,
    printable,
    say,
    say_json,
    shown_path,
    terminal_width,
    when,
)
from headwater.cli.progress import reading
from headwater.cli.wal.frame_regions import (
    NumberedFrame,
    Region,
    frames_between,
    read_regions,
    shown_value,
    type_name,
)
from headwater.core.errors import FormatError, StorageError
from headwater.disk import PosixDisk
from headwater.format.control_frames import body_fields
from headwater.format.frame import Frame, FrameFlag, FrameType
from headwater.recovery.topics.report import WalReport, inspect_until_stable
from headwater.recovery.topics.survey import ShardSurvey, read_log_file

FrameOrRegion = tuple[PurePath, NumberedFrame | Region]

_COLUMNS = "{:>10}  {:>9}  {:<15}  {:>6}  {:>8}  {:<24}  {:<12}  {:<12}  {:>8}  {}"
_HEADINGS = _COLUMNS.format(
    "offset", "frame", "type", "topic", "seq", "time", "node", "tag", "bytes", "data"
)
# On a terminal every column counts: the date is dropped, node and tag stand before the data.
_NARROW = "{:>9}  {:>7}  {:<15} {:>5}  {:>7}  {:<12}  {:>6}  {}"
_NARROW_HEADINGS = _NARROW.format(
    "offset", "frame", "type", "topic", "seq", "time", "bytes", "@node #tag data"
)


def dump(
    directory: DirectoryArgument,
    as_json: JsonOption = False,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this many frames.")
    ] = None,
    from_frame: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Begin at this frame; each shard counts its own from 1."
        ),
    ] = 1,
) -> None:
    """Print every frame: where it stands, what it is, and the beginning of what it carries.

    Payloads are shown with control characters escaped. With --json there is one object per line,
    with whole payloads ("data", or "data_base64" where it is not UTF-8). Damaged stretches are
    shown in their place and make the exit code 5. Changes nothing, takes no lock.
    """
    log = find_log(PosixDisk(), directory)
    with reading(log.wal, "Reading the log") as disk:
        report = inspect_until_stable(disk, log.wal)
    printer = _Printer(log.wal, as_json)
    shown = 0
    for path, item in _everything(PosixDisk(), report, from_frame):
        if limit is not None and shown >= limit:
            break
        printer.show(path, item)
        shown += isinstance(item, NumberedFrame)
    if report.refusals:
        complain(
            f"{log.wal} is not sound; what could be read is shown, "
            f"`headwater wal verify {directory}` lists what is wrong"
        )
        raise typer.Exit(StorageError.exit_code)


def _everything(disk: PosixDisk, report: WalReport, from_frame: int) -> Iterator[FrameOrRegion]:
    for shard in report.shards:
        yield from _of_shard(disk, shard, from_frame)


def _of_shard(disk: PosixDisk, shard: ShardSurvey, from_frame: int) -> Iterator[FrameOrRegion]:
    following = [scan.number for scan in shard.files[1:]]
    for index, scan in enumerate(shard.files):
        if index < len(following) and following[index] <= from_frame:
            continue  # all of it lies before
        buffer = read_log_file(disk, scan.path)
        file_regions = read_regions(
            buffer, scan.path, scan.number, shard.repairs.of_file(scan.number)
        )
        for region in file_regions.regions:
            if region.problem is not None:
                yield scan.path, region
                continue
            for frame in frames_between(buffer, region, from_frame):
                yield scan.path, frame


class _Printer:
    """One line a frame. On a terminal the file is a heading, in a pipe it is in every line."""

    def __init__(self, wal_directory: PurePath, as_json: bool) -> None:
        self._wal_directory = wal_directory
        self._as_json = as_json
        self._width = terminal_width() if on_terminal() else None
        self._path: PurePath | None = None

    def show(self, path: PurePath, item: NumberedFrame | Region) -> None:
        if self._as_json:
            say_json({"file": str(path), **as_json_object(item)})
            return
        name = shown_path(path.relative_to(self._wal_directory))
        if self._width is None:
            if self._path is None:
                say(f"{'file':<{len(name)}}  {_HEADINGS}")
            say(f"{name}  {_line(item)}")
        else:
            if path != self._path:
                say(name)
                say(_NARROW_HEADINGS[: self._width])
            say(_narrow_line(item)[: self._width])
        self._path = path


def _line(item: NumberedFrame | Region) -> str:
    if isinstance(item, Region):
        size = item.end - item.start
        what = f"{size:,} bytes up to {item.end}: {item.problem}"
        return f"{item.start:>10}  {'-':>9}  {'(unreadable)':<15}  {printable(what)}"
    frame = item.frame
    return _COLUMNS.format(
        frame.offset,
        item.number,
        type_name(frame.type),
        frame.topic_id,
        frame.seq,
        when(frame.ts),
        preview(frame.node, 24),
        preview(frame.tag, 24),
        len(frame.data),
        summary(frame),
    ).rstrip()


def _narrow_line(item: NumberedFrame | Region) -> str:
    if isinstance(item, Region):
        return _line(item)
    frame = item.frame
    labels = [f"@{preview(frame.node, 16)}"] if frame.node else []
    labels += [f"#{preview(frame.tag, 16)}"] if frame.tag else []
    time = when(frame.ts)
    return _NARROW.format(
        frame.offset,
        item.number,
        type_name(frame.type),
        frame.topic_id,
        frame.seq,
        time[11:23] if time.endswith("Z") else time[:12],
        len(frame.data),
        " ".join([*labels, summary(frame)]),
    )


def summary(frame: Frame) -> str:
    """A frame's data in a few words."""
    fields = body_fields(frame)
    if fields is None:
        return preview(frame.data)
    if frame.type is FrameType.COMMIT_MARK:
        kind = {1: "idle, ", 2: "clean stop, "}.get(fields["kind"], "")
        return (
            f"{kind}group of {fields['frame_count']} in {fields['body_bytes']} bytes, "
            f"run {fields['run']}, synced up to {fields['durable_offset']}"
        )
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def as_json_object(item: NumberedFrame | Region) -> dict[str, Any]:
    if isinstance(item, Region):
        return {
            "offset": item.start,
            "end": item.end,
            "type": "unreadable",
            "reason": item.problem,
        }
    frame = item.frame
    shown: dict[str, Any] = {
        "offset": frame.offset,
        "bytes": frame.size,
        "frame": item.number,
        "type": type_name(frame.type),
        "flags": [flag.name.lower() for flag in FrameFlag if flag.name and frame.flags & flag],
        "topic_id": frame.topic_id,
        "seq": frame.seq,
        "ts": frame.ts,
        **_text("node", frame.node),
        **_text("tag", frame.tag),
        "data_bytes": len(frame.data),
    }
    fields = body_fields(frame)
    if fields is not None:
        return {**shown, "body": {name: shown_value(name, value) for name, value in fields.items()}}
    try:
        data, meta = frame.split_data()
    except FormatError:  # a sound frame whose sender did not keep to the rules
        data, meta = frame.data, None
    shown |= _text("data", data)
    return shown if meta is None else shown | _text("meta", meta)


def _text(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
