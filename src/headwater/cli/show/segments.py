"""The two files of a segment, shown frame by frame and entry by entry from the layout tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from headwater.cli.output import preview, printable, say, say_json, say_table, shown_path, when
from headwater.cli.show.metadata import Problem
from headwater.core.errors import FormatError
from headwater.format.segment import (
    ENTRY_BYTES,
    SEGMENT_FRAME,
    IndexFlag,
    SegmentFile,
    SegmentRecord,
    bad_entries,
    decode_segment_frame,
    index_flags,
    parse_segment_file,
    segment_frame_size,
    shared_shift,
    unpack_identity,
)
from headwater.format.segment.frame import STATE_BYTES
from headwater.store.pair import whole_entries

ENTRIES_SHOWN = 1_000
"""Entries of an index that are shown without --limit."""

FrameOrError = SegmentRecord | FormatError


def show_data(
    buffer: memoryview, summary: dict[str, Any], *, as_json: bool, at: int, limit: int | None
) -> Problem | None:
    problem: Problem | None = None
    frames = 0
    _say_head(summary, as_json)
    for offset, size, frame in islice(_frames(buffer, at), limit):
        frames += 1
        if isinstance(frame, FormatError):
            problem = problem or (frame.reason, offset)
        if as_json:
            say_json(_frame_as_json(buffer, offset, size, frame))
        else:
            _say_frame(buffer, offset, size, frame)
    if not as_json:
        say()
        say(f"{frames:,} frames shown")
    return problem


def _frames(buffer: memoryview, at: int) -> Iterator[tuple[int, int, FrameOrError]]:
    """Every frame that reaches beyond `at`; behind a damaged one as far as its length leads."""
    offset, end = 0, len(buffer)
    while offset < end:
        try:
            size = segment_frame_size(buffer, offset, end)
        except FormatError as error:
            yield offset, end - offset, error
            return
        if offset + size > at:
            try:
                yield offset, size, decode_segment_frame(buffer, offset, end)
            except FormatError as error:
                yield offset, size, error
        offset += size


def _say_frame(buffer: memoryview, offset: int, size: int, frame: FrameOrError) -> None:
    say()
    if isinstance(frame, FormatError):
        say(printable(f"UNREADABLE from byte {offset}, {size:,} bytes: {frame.reason}"))
        return
    say(f"seq {frame.seq}: {frame.state.name.lower()}, {size} bytes at {offset}")
    for field in _fields(buffer, frame):
        code = field["type"]
        say(f"{field['offset']:>12}  {field['field']:<10}  {code:<4}  {field['value']}".rstrip())


def _fields(buffer: memoryview, record: SegmentRecord) -> Iterator[dict[str, Any]]:
    values = SEGMENT_FRAME.unpack(buffer, record.offset)
    for (name, start), field in zip(SEGMENT_FRAME.offsets(), SEGMENT_FRAME.fields, strict=True):
        shown = str(values[name])
        if name == "ts":
            shown += f" ({when(record.ts)})"
        if name == "flags":
            shown += _flag_names(record.flags)
        yield _field(name, record.offset + start, field.code, shown)
    at = record.offset + SEGMENT_FRAME.size
    parts = (("node", record.node), ("tag", record.tag), ("data", record.data))
    for name, value in (*parts, ("meta", record.meta or b"")):
        if value:
            yield _field(name, at, "", preview(value))
        at += len(value)
    end = record.offset + record.size
    checksum = int.from_bytes(buffer[end - STATE_BYTES - 8 : end - STATE_BYTES], "little")
    yield _field("xxh3", end - STATE_BYTES - 8, "u64", f"{checksum:016x}")
    state = f"{int(record.state):#04x} ({record.state.name.lower()})"
    yield _field("state", end - STATE_BYTES, "u8", state)


def _field(name: str, offset: int, code: str, value: str) -> dict[str, Any]:
    return {"field": name, "offset": offset, "type": code, "value": value}


def _flag_names(flags: int) -> str:
    names = [flag.name.lower() for flag in IndexFlag if flag.name and flags & flag]
    return f" ({', '.join(names)})" if names else ""


def _frame_as_json(
    buffer: memoryview, offset: int, size: int, frame: FrameOrError
) -> dict[str, Any]:
    if isinstance(frame, FormatError):
        return {"offset": offset, "bytes": size, "unreadable": frame.reason}
    return {
        "offset": offset,
        "bytes": size,
        "seq": frame.seq,
        "state": frame.state.name.lower(),
        "fields": list(_fields(buffer, frame)),
    }


def show_index(
    path: PurePath,
    buffer: memoryview,
    summary: dict[str, Any],
    *,
    as_json: bool,
    at: int,
    limit: int | None,
) -> Problem | None:
    """Entry by entry; the name says which seq is the first."""
    parsed = parse_segment_file(path.name)
    first_seq, kind = parsed if parsed is not None else (1, SegmentFile.IDX)
    entries = whole_entries(bytes(buffer))
    salt = shared_shift(entries, first_seq) or 0
    bad = set(bad_entries(entries, first_seq, salt).tolist())
    problem = _index_problem(len(buffer), bad)
    records = len(entries) - (kind is SegmentFile.COLD and len(entries) > 0)
    identity = unpack_identity(int(entries["ts"][-1])) if records < len(entries) else None
    if identity is not None:
        summary = {**summary, "topic_id": identity.topic_id}
    counts = {"first_seq": first_seq, "entries": records, "damaged": len(bad)}
    summary = {**summary, "salt": salt, **counts}
    _say_head(summary, as_json)
    start = at // ENTRY_BYTES
    stop = min(records, start + (ENTRIES_SHOWN if limit is None else limit))
    flags = index_flags(entries)
    rows = []
    for index in range(start, stop):
        entry = entries[index]
        state = "DAMAGED" if index in bad else "sound"
        named = _flag_names(int(flags[index])).strip(" ()")
        facts = (first_seq + index, int(entry["offset"]), int(entry["len"]), int(entry["ts"]))
        if as_json:
            names = ("seq", "frame_offset", "len", "ts")
            shown = dict(zip(names, facts, strict=True))
            say_json({"offset": index * ENTRY_BYTES, **shown, "flags": named, "state": state})
        else:
            seq, offset, length, ts = facts
            cells = (index * ENTRY_BYTES, seq, offset, length)
            rows.append([*map(str, cells), when(ts), named, state])
    if rows:
        headings = ["offset", "seq", "frame at", "bytes", "time", "flags", "state"]
        say_table(headings, rows, "offset seq bytes")
    if not as_json and stop < records:
        say(f"{records - stop:,} more entries; see them with --at {stop * ENTRY_BYTES}")
    return problem


def _index_problem(size: int, bad: set[int]) -> Problem | None:
    if bad:
        return "the entry is damaged", min(bad) * ENTRY_BYTES
    if size % ENTRY_BYTES:
        return "half an entry at the end", size - size % ENTRY_BYTES
    return None


def _say_head(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(summary)
        return
    more = "".join(
        f", {summary[name]:,} {name}" for name in ("entries", "damaged") if summary.get(name)
    )
    if "topic_id" in summary:
        more += f", of topic {summary['topic_id']}"
    say(f"{shown_path(summary['file'])}: {summary['kind']}, {summary['bytes']:,} bytes{more}")
