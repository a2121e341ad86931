"""CURRENT, REPAIRS and snapshots, shown field by field."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.cli.output import printable, say, say_json, say_table, shown_path
from headwater.core.errors import FormatError, NewerFormatError
from headwater.format.frame import UnknownFrameError
from headwater.format.log_state import decode_current, decode_repairs
from headwater.format.snapshot import SNAPSHOT_HEADER, Snapshot, decode_snapshot

Problem = tuple[str, int]
"""What is wrong, and at which byte."""

_CURRENT_PARTS = ("active", "active_bytes", "durable_offset", "oldest", "log_id", "xxh3")


def show_current(contents: bytes, summary: dict[str, Any], *, as_json: bool) -> Problem | None:
    try:
        decode_current(contents)
    except FormatError as error:
        return _damaged(error, contents, summary, as_json)
    rows = []
    at = 0
    for name, word in zip(_CURRENT_PARTS, contents.decode().split(), strict=True):
        value = word.partition("=")[2] or word
        rows.append((name, at + len(word) - len(value), value))
        at += len(word) + 1
    if as_json:
        fields = {name: {"offset": offset, "value": value} for name, offset, value in rows}
        say_json({**summary, "sound": True, "fields": fields})
    else:
        _say_summary(summary, "sound")
        table = [[name, str(offset), value] for name, offset, value in rows]
        say_table(["field", "offset", "value"], table, "offset")
    return None


def show_repairs(contents: bytes, summary: dict[str, Any], *, as_json: bool) -> Problem | None:
    try:
        repairs = decode_repairs(contents)
    except FormatError as error:
        return _damaged(error, contents, summary, as_json)
    if as_json:
        say_json({**summary, "sound": True, **msgspec.to_builtins(repairs)})
        return None
    _say_summary(summary, f"sound, {len(repairs.skips)} agreed loss(es)")
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


def _damaged(
    error: FormatError, contents: bytes, summary: dict[str, Any], as_json: bool
) -> Problem:
    if as_json:
        say_json({**summary, "sound": False, "reason": error.reason, "offset": error.offset})
    else:
        _say_summary(summary, f"DAMAGED: {error.reason}")
        say(printable(contents[:512].decode("utf-8", "backslashreplace")))
    return error.reason, error.offset


def _say_summary(summary: dict[str, Any], state: str) -> None:
    say(f"{shown_path(summary['file'])}: {summary['kind']}, {summary['bytes']:,} bytes, {state}")


_HEXADECIMAL = frozenset({"magic", "xxh3"})


def show_snapshot(contents: bytes, summary: dict[str, Any], *, as_json: bool) -> Problem | None:
    problem: Problem | None = None
    snapshot: Snapshot | None = None
    try:
        snapshot = decode_snapshot(contents)
    except UnknownFrameError as error:
        raise NewerFormatError(
            error.reason,
            path=summary["file"],
            advice="use the version of Headwater that wrote it",
        ) from error
    except FormatError as error:
        problem = error.reason, error.offset
    fields = _header(contents)
    if as_json:
        body = None if snapshot is None else _topics(snapshot)
        say_json({**summary, "sound": problem is None, "header": fields, "snapshot": body})
        return problem
    state = "sound" if problem is None else f"DAMAGED: {problem[0]}"
    say(f"{shown_path(summary['file'])}: {summary['kind']}, {summary['bytes']:,} bytes, {state}")
    rows = [[str(f["field"]), str(f["offset"]), f["type"], str(f["value"])] for f in fields]
    say_table(["field", "offset", "type", "value"], rows, "offset")
    if snapshot is not None:
        _say_topics(snapshot)
    return problem


def _header(contents: bytes) -> list[dict[str, Any]]:
    try:
        values = SNAPSHOT_HEADER.unpack(contents)
    except FormatError:
        return []
    return [
        {
            "field": name,
            "offset": offset,
            "type": field.code,
            "value": f"{values[name]:016x}" if name in _HEXADECIMAL else values[name],
        }
        for (name, offset), field in zip(
            SNAPSHOT_HEADER.offsets(), SNAPSHOT_HEADER.fields, strict=True
        )
        if name in values
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
