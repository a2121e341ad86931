"""Metadata snapshots: everything about topics that is not records, so that recovery need not
begin at the beginning of time.

A file is magic, version, length, checksum, then a msgpack body. It is replaced by name, never in
place; the one before is kept until the next.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.control_frames import IdempotencyEntry, QueueMeta, RouterMeta
from headwater.format.frame import UnknownFrameError
from headwater.format.layout import Field, Layout

META_DIRECTORY: Final = "meta"
SNAPSHOT_MAGIC: Final = 0x544F4E5357444848  # "HHDWSNOT" little-endian, never a frame length
SNAPSHOT_VERSION: Final = 1

SNAPSHOT_HEADER: Final = Layout(
    "snapshot header",
    (
        Field("magic", "u64", "which kind of file this is"),
        Field("version", "u32", f"format version, {SNAPSHOT_VERSION}"),
        Field("reserved", "pad4", ""),
        Field("body_bytes", "u64", "bytes of the body"),
        Field("xxh3", "u64", "XXH3-64, seed 0, over the body"),
    ),
    tail=(("body_bytes", "body", "msgpack of the snapshot"),),
)

_NAME: Final = re.compile(r"snapshot-([0-9]{16})\.bin")


class TopicMeta(msgspec.Struct, frozen=True, array_like=True):
    topic_id: int
    name: str
    epoch: int
    settings: dict[str, Any]
    head_seq: int
    ceiling: int
    """No seq up to here may be handed out again."""
    evict_floor: int
    earliest_seq: int
    delete_below: int
    eviction_reason: int
    count: int
    bytes: int
    last_ts: int
    checkpointed_seq: int
    active_first_seq: int
    active_data_bytes: int
    keys: tuple[IdempotencyEntry, ...] = ()
    queue: QueueMeta | None = None
    """What is known of its leases, if it is a queue and anything is."""
    flagged: tuple[tuple[int, int], ...] = ()
    """For segments with deletes in their files: the first seq, and a seq whose delete is there. A
    copy of the files from before that delete is known by it."""


class ShardMeta(msgspec.Struct, frozen=True, array_like=True):
    directory: str
    """Relative to the log's directory; empty for the flat one."""
    covered_frame: int
    """Every frame up to this number is in this snapshot or in segments."""
    log_id: int
    """Of the log these frames are in: the directory may be given to another one."""


class Snapshot(msgspec.Struct, frozen=True):
    number: int
    next_topic_id: int
    topics: tuple[TopicMeta, ...]
    shards: tuple[ShardMeta, ...]
    epochs: dict[str, int]
    """The last epoch of every name that was dropped."""
    routers: tuple[RouterMeta, ...] = ()


def snapshot_name(number: int) -> str:
    return f"snapshot-{number:016d}.bin"


def parse_snapshot_name(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_snapshot(snapshot: Snapshot) -> bytes:
    body = msgspec.msgpack.encode(snapshot)
    header = SNAPSHOT_HEADER.packer.pack(
        SNAPSHOT_MAGIC, SNAPSHOT_VERSION, len(body), checksum64(body)
    )
    return header + body


def decode_snapshot(contents: bytes) -> Snapshot:
    header = SNAPSHOT_HEADER.unpack(contents)
    if header["magic"] != SNAPSHOT_MAGIC:
        raise FormatError("not a snapshot")
    if header["version"] > SNAPSHOT_VERSION:
        raise UnknownFrameError(f"snapshot version {header['version']} is newer than this software")
    if header["version"] < SNAPSHOT_VERSION:
        raise FormatError(f"there was never a snapshot version {header['version']}")
    body = memoryview(contents)[SNAPSHOT_HEADER.size :]
    if len(body) != header["body_bytes"]:
        raise FormatError(f"snapshot has {len(body)} of {header['body_bytes']} bytes")
    if checksum64(body) != header["xxh3"]:
        raise FormatError("snapshot checksum does not match")
    try:
        return msgspec.msgpack.decode(body, type=Snapshot)
    except msgspec.MsgspecError as error:
        raise FormatError(f"snapshot: {error}") from error
