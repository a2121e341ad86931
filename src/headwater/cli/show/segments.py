"""The two files of a segment, shown frame by frame and entry by entry from the layout tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from headwater.cli.output import preview, say, say_json, say_table, when
from headwater.cli.show.shown_file import (
    FieldRow,
    Problem,
    ShownFile,
    layout_rows,
    say_rows,
    unreadable,
)
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


def show_data(file: ShownFile) -> Problem | None:
    problem: Problem | None = None
    frames = 0
    file.say_head()
    for offset, size, frame in islice(_frames(file.buffer, file.at), file.limit):
        frames += 1
        if isinstance(frame, FormatError):
            problem = problem or (frame.reason, offset)
        if file.as_json:
            say_json(_frame_as_json(file.buffer, offset, size, frame))
        else:
            _say_frame(file.buffer, offset, size, frame)
    if not file.as_json:
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
    if isinstance(frame, FormatError):
        say_rows(unreadable(offset, size, frame.reason), (), 0)
        return
    heading = f"seq {frame.seq}: {frame.state.name.lower()}, {size} bytes at {offset}"
    say_rows(heading, _rows(buffer, frame), 10)


def _rows(buffer: memoryview, record: SegmentRecord) -> Iterator[FieldRow]:
    explained = {"ts": f" ({when(record.ts)})", "flags": _flag_names(record.flags)}
    for row in layout_rows(SEGMENT_FRAME, buffer, record.offset):
        yield row._replace(value=f"{row.value}{explained.get(row.field, '')}")
    at = record.offset + SEGMENT_FRAME.size
    parts = (("node", record.node), ("tag", record.tag), ("data", record.data))
    for name, value in (*parts, ("meta", record.meta or b"")):
        if value:
            yield FieldRow(name, at, "", preview(value))
        at += len(value)
    end = record.offset + record.size
    checksum = int.from_bytes(buffer[end - STATE_BYTES - 8 : end - STATE_BYTES], "little")
    yield FieldRow("xxh3", end - STATE_BYTES - 8, "u64", f"{checksum:016x}")
    state = f"{int(record.state):#04x} ({record.state.name.lower()})"
    yield FieldRow("state", end - STATE_BYTES, "u8", state)


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
        "fields": [row._asdict() for row in _rows(buffer, frame)],
    }


def show_index(file: ShownFile) -> Problem | None:
    """Entry by entry; the name says which seq is the first."""
    parsed = parse_segment_file(file.path.name)
    first_seq, kind = parsed if parsed is not None else (1, SegmentFile.IDX)
    entries = whole_entries(bytes(file.buffer))
    salt = shared_shift(entries, first_seq) or 0
    bad = set(bad_entries(entries, first_seq, salt).tolist())
    problem = _index_problem(len(file.buffer), bad)
    records = len(entries) - (kind is SegmentFile.COLD and len(entries) > 0)
    identity = unpack_identity(int(entries["ts"][-1])) if records < len(entries) else None
    whose = {} if identity is None else {"topic_id": identity.topic_id}
    counts = {"entries": records, "damaged": len(bad)}
    known = [f"{count:,} {name}" for name, count in counts.items() if count]
    known += [f"of topic {topic_id}" for topic_id in whose.values()]
    file.say_head(", ".join(known), **whose, salt=salt, first_seq=first_seq, **counts)
    start = file.at // ENTRY_BYTES
    stop = min(records, start + (ENTRIES_SHOWN if file.limit is None else file.limit))
    flags = index_flags(entries)
    rows = []
    for index in range(start, stop):
        entry = entries[index]
        state = "DAMAGED" if index in bad else "sound"
        named = _flag_names(int(flags[index])).strip(" ()")
        facts = (first_seq + index, int(entry["offset"]), int(entry["len"]), int(entry["ts"]))
        if file.as_json:
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
    if not file.as_json and stop < records:
        say(f"{records - stop:,} more entries; see them with --at {stop * ENTRY_BYTES}")
    return problem


def _index_problem(size: int, bad: set[int]) -> Problem | None:
    if bad:
        return "the entry is damaged", min(bad) * ENTRY_BYTES
    if size % ENTRY_BYTES:
        return "half an entry at the end", size - size % ENTRY_BYTES
    return None
