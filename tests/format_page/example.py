"""The worked example of docs/format.md: one group, encoded by the code that writes real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.format.checksum import checksum64
from headwater.format.control_frames import FRAME_BODIES
from headwater.format.frame import (
    CHECKSUM_BYTES,
    FRAME,
    Frame,
    FrameFlag,
    FrameType,
    decode_frame,
    encode_frame,
)
from headwater.format.layout import Layout
from headwater.format.mark import FORMAT_VERSION, CommitMark, MarkKind, pack_mark

_TS: Final = 1_700_000_000_000
_HEX_BYTES_MAX: Final = 16


def example_group() -> bytes:
    """The first group of a new log: a mark and one record."""
    record = encode_frame(
        FrameType.APPEND,
        7,
        seq=1,
        ts=_TS,
        flags=FrameFlag.DURABLE | FrameFlag.HAS_NODE | FrameFlag.HAS_TAG,
        node=b"web-1",
        tag=b"order",
        data=b'{"total":42}',
    )
    mark = CommitMark(
        version=FORMAT_VERSION,
        kind=MarkKind.GROUP,
        frame_count=1,
        body_bytes=len(record),
        body_hash=checksum64(record),
        run=1,
        log_id=0x0123456789ABCDEF,
        file_frame=1,
        file_bytes=64 * 1024 * 1024,
        frame=1,
        offset=0,
        durable_offset=0,
        chain=0,
    )
    return pack_mark(_TS, *mark) + record


def example_table() -> str:
    """Every byte of the group with the field it belongs to."""
    group = memoryview(example_group())
    rows = ["| offset | bytes | field | value |", "|---|---|---|---|"]
    at = 0
    while at < len(group):
        frame = decode_frame(group, at, len(group))
        for offset, width, field, value in _parts(group, frame):
            raw = bytes(group[offset : offset + width])
            rows.append(f"| {offset} | `{raw.hex(' ')}` | {field} | {value} |")
        at += frame.size
    return "\n".join(rows)


def example_hex() -> str:
    """The same bytes as a hex dump that can be pasted into other tools."""
    group = example_group()
    return "\n".join(
        f"{at:08x}  {group[at : at + _HEX_BYTES_MAX].hex(' ')}"
        for at in range(0, len(group), _HEX_BYTES_MAX)
    )


def _parts(group: memoryview, frame: Frame) -> Iterator[tuple[int, int, str, str]]:
    yield from _fields(FRAME, group, frame.offset, "")
    at = frame.offset + FRAME.size
    for name, value in (("node", frame.node), ("tag", frame.tag)):
        if value:
            yield at, len(value), name, f"`{value.decode()}`"
            at += len(value)
    body = FRAME_BODIES.get(frame.type)
    if body is not None:
        yield from _fields(body, group, at, f"{body.name}: ")
    elif frame.data:
        yield at, len(frame.data), "data", f"`{frame.data.decode()}`"
    border = frame.offset + frame.size - CHECKSUM_BYTES
    yield border, CHECKSUM_BYTES, "xxh3", "over the bytes from `type` to here"


def _fields(
    layout: Layout, group: memoryview, at: int, prefix: str
) -> Iterator[tuple[int, int, str, str]]:
    values = layout.unpack(group, at)
    for (name, offset), field in zip(layout.offsets(), layout.fields, strict=True):
        value = values.get(name, 0)
        shown = f"{value:#018x}" if value > 2**48 else str(value)
        if layout is FRAME and name == "type":
            shown += f" {FrameType(value).name}"
        yield at + offset, field.width, prefix + name, shown
