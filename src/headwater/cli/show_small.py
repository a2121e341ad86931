"""CURRENT and REPAIRS, shown part by part."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.cli.output import printable, say, say_json, say_table, shown_path
from headwater.core.errors import FormatError
from headwater.format.current import decode_current
from headwater.format.repairs import decode_repairs

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
