"""CURRENT, REPAIRS and snapshots, shown field by field."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.cli.output import printable, say, say_table, shown_path
from headwater.cli.show.shown_file import FieldRow, Problem, ShownFile, layout_rows
from headwater.core.errors import FormatError, NewerFormatError
from headwater.format.frame import UnknownFrameError
from headwater.format.log_state import decode_current, decode_repairs
from headwater.format.snapshot import SNAPSHOT_HEADER, Snapshot, decode_snapshot

_CURRENT_PARTS = ("active", "active_bytes", "durable_offset", "oldest", "log_id", "xxh3")


def show_current(file: ShownFile) -> Problem | None:
    contents = bytes(file.buffer)
    try:
        decode_current(contents)
    except FormatError as error:
        return _damaged(error, file)
    rows = []
    at = 0
    for name, word in zip(_CURRENT_PARTS, contents.decode().split(), strict=True):
        value = word.partition("=")[2] or word
        rows.append((name, at + len(word) - len(value), value))
        at += len(word) + 1
    fields = {name: {"offset": offset, "value": value} for name, offset, value in rows}
    file.say_head("sound", sound=True, fields=fields)
    if not file.as_json:
        table = [[name, str(offset), value] for name, offset, value in rows]
        say_table(["field", "offset", "value"], table, "offset")
    return None


def show_repairs(file: ShownFile) -> Problem | None:
    try:
        repairs = decode_repairs(bytes(file.buffer))
    except FormatError as error:
        return _damaged(error, file)
    state = f"sound, {len(repairs.skips)} agreed loss(es)"
    file.say_head(state, sound=True, **msgspec.to_builtins(repairs))
    if file.as_json:
        return None
    table = [
        [
            str(skip.file),
            str(skip.offset),
            "next file" if skip.resume < 0 else str(skip.resume),
            skip.reason,
        ]
        for skip in repairs.skips
    ]
    say_table(["file", "offset", "resume", "reason"], table, "file offset resume")
    return None


def _damaged(error: FormatError, file: ShownFile) -> Problem:
    state = f"DAMAGED: {error.reason}"
    file.say_head(state, sound=False, reason=error.reason, offset=error.offset)
    if not file.as_json:
        say(printable(bytes(file.buffer[:512]).decode("utf-8", "backslashreplace")))
    return error.reason, error.offset


_HEXADECIMAL = frozenset({"magic", "xxh3"})


def show_snapshot(file: ShownFile) -> Problem | None:
    contents = bytes(file.buffer)
    problem: Problem | None = None
    snapshot: Snapshot | None = None
    try:
        snapshot = decode_snapshot(contents)
    except UnknownFrameError as error:
        raise NewerFormatError(error.reason, path=file.path) from error
    except FormatError as error:
        problem = error.reason, error.offset
    fields = _header(contents)
    state = "sound" if problem is None else f"DAMAGED: {problem[0]}"
    body = None if snapshot is None else _topics(snapshot)
    header = [row._asdict() for row in fields]
    file.say_head(state, sound=problem is None, header=header, snapshot=body)
    if file.as_json:
        return problem
    say_table(FieldRow._fields, [list(map(str, row)) for row in fields], "offset")
    if snapshot is not None:
        _say_topics(snapshot)
    return problem


def _header(contents: bytes) -> list[FieldRow]:
    try:
        rows = list(layout_rows(SNAPSHOT_HEADER, contents, 0))
    except FormatError:
        return []
    return [
        row._replace(value=f"{row.value:016x}") if row.field in _HEXADECIMAL else row
        for row in rows
    ]


def _topics(snapshot: Snapshot) -> dict[str, Any]:
    as_json: dict[str, Any] = msgspec.to_builtins(snapshot)
    as_json["topics"] = [
        {**msgspec.structs.asdict(topic), "keys": len(topic.keys)} for topic in snapshot.topics
    ]
    as_json["shards"] = [msgspec.structs.asdict(shard) for shard in snapshot.shards]
    return as_json


def _say_topics(snapshot: Snapshot) -> None:
    say()
    say(f"snapshot {snapshot.number}, next topic id {snapshot.next_topic_id}")
    for shard in snapshot.shards:
        say(f"log {shown_path(shard.directory or '.')}: covered up to frame {shard.covered_frame}")
    headings = ["id", "topic", "epoch", "head", "earliest", "count", "bytes", "checkpointed"]
    rows = [
        [
            str(topic.topic_id),
            topic.name,
            str(topic.epoch),
            str(topic.head_seq),
            str(topic.earliest_seq),
            str(topic.count),
            str(topic.bytes),
            str(topic.checkpointed_seq),
        ]
        for topic in snapshot.topics
    ]
    if rows:
        say()
        say_table(headings, rows, "id epoch head earliest count bytes checkpointed")
