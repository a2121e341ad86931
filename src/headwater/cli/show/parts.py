"""Files of Kafka's log and of state machines, shown piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from headwater.cli.output import preview, printable, say, say_json, say_table, when
from headwater.cli.show.file_kinds import FileKind
from headwater.cli.show.shown_file import Problem, ShownFile
from headwater.core.errors import FormatError, NewerFormatError
from headwater.format.kafka.batch import CODECS, read_header, read_sound
from headwater.format.kafka.checkpoint import decode_checkpoint
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    PREFIX_BYTES,
    count_entries,
    find_runs,
    read_entries,
)
from headwater.format.machines.current import decode_machine_current
from headwater.format.machines.entry import MAGIC_BYTES, decode_entry
from headwater.format.machines.history import (
    HISTORY_FOOTER,
    HISTORY_INDEX_ENTRY,
    decode_footer,
    decode_history_index,
)
from headwater.format.machines.snapshot import BlockKind, decode_blocks

PARTS_SHOWN: Final = 1_000
"""Batches, entries or blocks that are shown without --limit."""


class FilePart(NamedTuple):
    offset: int
    size: int
    facts: dict[str, Any]
    problem: str = ""


def show_parts(file: ShownFile) -> Problem | None:
    """Show every part at or behind `at`, damaged ones in their order; gives the first problem."""
    file.say_head()
    parts = (part for part in PARTS_OF[file.kind](file.buffer) if part.offset + part.size > file.at)
    problem: Problem | None = None
    rows: list[list[str]] = []
    headings: list[str] = []
    for part in islice(parts, PARTS_SHOWN if file.limit is None else file.limit):
        if part.problem:
            problem = problem or (part.problem, part.offset)
        state = f"DAMAGED: {part.problem}" if part.problem else "sound"
        if file.as_json:
            facts = {name: _plain(value) for name, value in part.facts.items()}
            say_json({"offset": part.offset, "bytes": part.size, **facts, "state": state})
            continue
        headings = headings or ["offset", "bytes", *part.facts, "state"]
        cells = [printable(_text(part.facts.get(name, ""))) for name in headings[2:-1]]
        rows.append([str(part.offset), str(part.size), *cells, state])
    if rows:
        say_table(headings, rows, "offset bytes")
    if not file.as_json and next(parts, None) is not None:
        say("there is more; see it with --at and --limit")
    return problem


def _plain(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return value.decode("utf-8", "backslashreplace")


def _text(value: Any) -> str:
    return preview(value) if isinstance(value, bytes) else str(value)


def _kafka_log(buffer: memoryview) -> Iterator[FilePart]:
    at = 0
    while at + PREFIX_BYTES <= len(buffer):
        length = int.from_bytes(buffer[at : at + PREFIX_BYTES], "little")
        if not length and not bytes(buffer[at:]).strip(b"\0"):
            return
        batch = buffer[at + PREFIX_BYTES : at + PREFIX_BYTES + length]
        if not length or len(batch) < length:
            yield FilePart(at, len(buffer) - at, {}, "no batch begins here")
            return
        problem, facts = "", {}
        try:
            header = read_header(batch)
            facts = {
                "base_offset": header.base_offset,
                "records": header.record_count,
                "codec": dict(enumerate(CODECS)).get(header.codec, str(header.codec)),
                "producer_id": header.producer_id,
                "base_sequence": header.base_sequence,
                "time": when(max(header.max_timestamp, 0)),
            }
            read_sound(batch)
        except FormatError as error:
            problem = error.reason
        yield FilePart(at, PREFIX_BYTES + length, facts, problem)
        at += PREFIX_BYTES + length


def _kafka_index(buffer: memoryview) -> Iterator[FilePart]:
    """The equal entries of a batch are one part."""
    runs = find_runs(read_entries(buffer, count_entries(buffer)))
    for start, count, entry in zip(
        runs.starts.tolist(), runs.counts.tolist(), runs.entries, strict=True
    ):
        facts = {
            "records": count,
            "segment_id": int(entry["segment_id"]),
            "physical_offset": int(entry["physical_offset"]),
            "length": int(entry["length"]),
            "org_id": int(entry["org_id"]),
            "topic_hash": bytes(entry["topic_hash"]).ljust(16, b"\0").hex(),
            "partition": int(entry["partition"]),
        }
        yield FilePart(start * ENTRY_BYTES, count * ENTRY_BYTES, facts)


def _kafka_spare(buffer: memoryview) -> Iterator[FilePart]:
    yield FilePart(0, len(buffer), {"means": "nothing"})


def _kafka_checkpoint(buffer: memoryview) -> Iterator[FilePart]:
    try:
        checkpoint = decode_checkpoint(bytes(buffer))
    except FormatError as error:
        yield FilePart(error.offset, len(buffer), {}, error.reason)
        return
    except NewerFormatError as error:
        yield FilePart(0, len(buffer), {}, error.what)
        return
    facts = {
        "as_of": checkpoint.as_of,
        "segments": [msgspec.to_builtins(each) for each in checkpoint.segments],
        "topics": [f"{each.org}/{each.name}/{len(each.partitions)}" for each in checkpoint.topics],
        "groups": len(checkpoint.groups),
        "memberships": len(checkpoint.memberships),
        "clean": checkpoint.clean,
    }
    yield FilePart(0, len(buffer), facts)


def _machine_log(buffer: memoryview) -> Iterator[FilePart]:
    contents = bytes(buffer)
    at, end = 0, len(contents)
    while at < end and contents.count(0, at) != end - at:
        try:
            entry = decode_entry(contents, at, end)
        except FormatError as error:
            following = contents.find(MAGIC_BYTES, at + 1)
            size = (following if following > 0 else end) - at
            yield FilePart(at, size, {"sequence": "", "type": "", "data": ""}, error.reason)
            at += size
            continue
        facts = {"sequence": entry.sequence, "type": entry.kind.name, "data": entry.payload}
        yield FilePart(at, entry.size, facts)
        at += entry.size


def _machine_snapshot(buffer: memoryview) -> Iterator[FilePart]:
    blocks = decode_blocks(bytes(buffer))
    number = 0
    while True:
        try:
            kind, plain = next(blocks)
        except StopIteration:
            return
        except FormatError as error:
            yield FilePart(error.offset, len(buffer), {"block": number}, error.reason)
            return
        rows = msgspec.msgpack.decode(plain)
        contents = rows if kind in (BlockKind.HEADING, BlockKind.END) else f"{len(rows)} rows"
        yield FilePart(0, len(buffer), {"block": number, "kind": kind.name, "contents": contents})
        number += 1


def _machine_history(buffer: memoryview) -> Iterator[FilePart]:
    """The entries that are kept, then where each of them was, and the footer."""
    contents = bytes(buffer)
    footer_at = max(len(contents) - HISTORY_FOOTER.size, 0)
    footer = contents[footer_at:]
    # The name of the file says whose history it is; here the footer's own word is shown.
    segment = HISTORY_FOOTER.unpack(footer)["segment"] if footer_at else 0
    try:
        decoded = decode_footer(footer, len(contents), segment)
        index_at = footer_at - decoded.entries * HISTORY_INDEX_ENTRY.size
        decode_history_index(contents[index_at:footer_at], decoded)
    except FormatError as error:
        yield FilePart(footer_at, len(contents) - footer_at, {}, error.reason)
        return
    yield from _machine_log(buffer[:index_at])
    facts = {"segment": decoded.segment, "entries": decoded.entries, "newest_ms": decoded.newest_ms}
    yield FilePart(index_at, len(contents) - index_at, facts)


def _machine_current(buffer: memoryview) -> Iterator[FilePart]:
    try:
        decoded = decode_machine_current(bytes(buffer))
    except FormatError as error:
        yield FilePart(error.offset, len(buffer), {}, error.reason)
        return
    facts = {"active": decoded.active, "durable": decoded.durable, "oldest": decoded.oldest}
    yield FilePart(0, len(buffer), facts)


PARTS_OF: Final[dict[FileKind, Callable[[memoryview], Iterator[FilePart]]]] = {
    FileKind.KAFKA_LOG: _kafka_log,
    FileKind.KAFKA_INDEX: _kafka_index,
    FileKind.KAFKA_CHECKPOINT: _kafka_checkpoint,
    FileKind.KAFKA_SPARE: _kafka_spare,
    FileKind.MACHINE_LOG: _machine_log,
    FileKind.MACHINE_SNAPSHOT: _machine_snapshot,
    FileKind.MACHINE_HISTORY: _machine_history,
    FileKind.MACHINE_CURRENT: _machine_current,
}
