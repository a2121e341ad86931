"""Snapshots of machines: one file of compressed blocks, and an index that names it.

```
file  = header block* end      block = block header, zstd of msgpack
```

The first block is the heading: what the snapshot is of. Then come machines, instances sorted by
id, idempotency keys and retired ids, some thousand rows a block. A file without its end block was
never finished. Only module that imports zstandard for machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

import msgspec
import zstandard

from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.format.crc32c import crc32c
from headwater.format.frame import UnknownFrameError
from headwater.format.layout import Field, Layout

SNAPSHOT_MAGIC: Final = 0x4857534D  # "HWSM"
MACHINE_SNAPSHOT_VERSION: Final = 1
BLOCK_BYTES_MAX: Final = 256 * MIB
ROWS_PER_BLOCK: Final = 4_096
_LEVEL: Final = 1


class BlockKind(IntEnum):
    HEADING = 1
    MACHINES = 2
    INSTANCES = 3
    KEYS = 4
    RETIRED_IDS = 5
    END = 6


MACHINE_SNAPSHOT_HEADER: Final = Layout(
    "machine snapshot header",
    (
        Field("magic", "u32", "HWSM"),
        Field("version", "u32", f"format version, {MACHINE_SNAPSHOT_VERSION}"),
    ),
    big_endian=True,
)
SNAPSHOT_BLOCK: Final = Layout(
    "machine snapshot block",
    (
        Field("kind", "u32", "1 heading, 2 machines, 3 instances, 4 keys, 5 retired ids, 6 end"),
        Field("plain_bytes", "u32", "bytes of the msgpack before compression"),
        Field("packed_bytes", "u32", "bytes of the zstd frame that follows"),
        Field(
            "crc32c", "u32", "CRC32C of `kind number plain_bytes ` in digits, then the zstd frame"
        ),
    ),
    tail=(("packed_bytes", "packed", "zstd of msgpack: a list of rows"),),
    big_endian=True,
)


class SnapshotHeading(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a snapshot is of. The index has one of each, so people can read it there."""

    timestamp: str
    wal_offset: int
    """Everything before this offset is in the snapshot."""
    instance_count: int
    machines: tuple[str, ...]
    sequence: int
    """Number of the entry at `wal_offset`."""
    file: str
    doubt_before: int = 0
    """Damage was met up to here; see the engine's tables."""
    damaged_entries: int = 0


class SnapshotIndex(msgspec.Struct, frozen=True):
    snapshots: tuple[SnapshotHeading, ...]
    """The newest is last."""


def encode_index(index: SnapshotIndex) -> bytes:
    return msgspec.json.format(msgspec.json.encode(index), indent=2) + b"\n"


def decode_index(contents: bytes) -> SnapshotIndex:
    try:
        return msgspec.json.decode(contents, type=SnapshotIndex)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(f"index.json cannot be read: {error}") from error


def encode_start() -> bytes:
    return MACHINE_SNAPSHOT_HEADER.packer.pack(SNAPSHOT_MAGIC, MACHINE_SNAPSHOT_VERSION)


class BlockEncoder:
    """Blocks in order; each knows its number, so that none can be left out or exchanged."""

    def __init__(self) -> None:
        self._number = 0
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    def encode(self, kind: BlockKind, rows: Any) -> bytes:
        plain = msgspec.msgpack.encode(rows)
        packed = self._compressor.compress(plain)
        check = _check(kind, self._number, len(plain), packed)
        self._number += 1
        return SNAPSHOT_BLOCK.packer.pack(kind, len(plain), len(packed), check) + packed


def _check(kind: int, number: int, plain_bytes: int, packed: bytes) -> int:
    return crc32c(b"%d %d %d " % (kind, number, plain_bytes) + packed)


def decode_blocks(contents: bytes) -> Iterator[tuple[BlockKind, bytes]]:
    """Kind and msgpack of each block; FormatError for anything that is not a whole snapshot."""
    header = MACHINE_SNAPSHOT_HEADER.unpack(contents)
    if header["magic"] != SNAPSHOT_MAGIC:
        raise FormatError("not a snapshot of machines")
    if header["version"] != MACHINE_SNAPSHOT_VERSION:
        raise UnknownFrameError(f"snapshot version {header['version']} is not known")
    at, number = MACHINE_SNAPSHOT_HEADER.size, 0
    decompressor = zstandard.ZstdDecompressor()
    while True:
        block = SNAPSHOT_BLOCK.unpack(contents, at)
        start = at + SNAPSHOT_BLOCK.size
        packed = contents[start : start + block["packed_bytes"]]
        if len(packed) < block["packed_bytes"] or block["plain_bytes"] > BLOCK_BYTES_MAX:
            raise FormatError("a block is cut off", at)
        if _check(block["kind"], number, block["plain_bytes"], packed) != block["crc32c"]:
            raise FormatError("a block does not match its checksum", at)
        try:
            kind = BlockKind(block["kind"])
            plain = decompressor.decompress(packed, max_output_size=block["plain_bytes"])
        except (ValueError, zstandard.ZstdError) as error:
            raise FormatError(f"a block cannot be read: {error}", at) from error
        yield kind, plain
        at = start + block["packed_bytes"]
        number += 1
        if kind is BlockKind.END:
            if at != len(contents):
                raise FormatError("something stands behind the end", at)
            return
