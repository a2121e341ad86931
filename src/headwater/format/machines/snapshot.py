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
from typing import Any, Final, NamedTuple

import msgspec
import zstandard

from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.format.crc32c import crc32c
from headwater.format.frame import UnknownFrameError
from headwater.format.layout import Field, Layout

SNAPSHOT_MAGIC: Final = 0x4857534D  # "HWSM"
MACHINE_SNAPSHOT_VERSION: Final = 1
VERSIONS_MAX: Final = 255
"""A number beyond is no newer version, but damage."""
BLOCK_BYTES_MAX: Final = 256 * MIB
ROWS_PER_BLOCK: Final = 4_096
_LEVEL: Final = 1
LOST_BLOCKS_MAX: Final = 64
"""So many blocks in a row may be bad for the next sound one to be found."""


class BlockKind(IntEnum):
    HEADING = 1
    MACHINES = 2
    INSTANCES = 3
    KEYS = 4
    RETIRED_IDS = 5
    END = 6


_KINDS: Final = frozenset(map(int, BlockKind))

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


class PackedBlock(NamedTuple):
    """A block whose checksum fits, as it lies in the file."""

    kind: BlockKind
    number: int
    offset: int
    end: int
    plain_bytes: int
    packed: bytes


class LostBlocks(NamedTuple):
    """A stretch of a damaged snapshot in which no block can be found."""

    offset: int
    end: int


def check_start(contents: bytes) -> None:
    """FormatError for a file that does not begin as a snapshot of machines does."""
    header = MACHINE_SNAPSHOT_HEADER.unpack(contents)
    if header["magic"] != SNAPSHOT_MAGIC:
        raise FormatError("not a snapshot of machines")
    version = header["version"]
    if MACHINE_SNAPSHOT_VERSION < version <= VERSIONS_MAX:
        raise UnknownFrameError(f"snapshot version {version} is not known")
    if version != MACHINE_SNAPSHOT_VERSION:
        raise FormatError(f"version {version}, which no software has")


def packed_blocks(contents: bytes) -> Iterator[PackedBlock]:
    """Every block against its checksum; FormatError for anything that is not a whole snapshot."""
    check_start(contents)
    at, number = MACHINE_SNAPSHOT_HEADER.size, 0
    while True:
        block = _block_at(contents, at, number)
        yield block
        at = block.end
        number += 1
        if block.kind is BlockKind.END:
            if at != len(contents):
                raise FormatError("something stands behind the end", at)
            return


def _block_at(contents: bytes, at: int, number: int) -> PackedBlock:
    fields = SNAPSHOT_BLOCK.unpack(contents, at)
    start = at + SNAPSHOT_BLOCK.size
    packed = contents[start : start + fields["packed_bytes"]]
    if len(packed) < fields["packed_bytes"] or fields["plain_bytes"] > BLOCK_BYTES_MAX:
        raise FormatError("a block is cut off", at)
    if _check(fields["kind"], number, fields["plain_bytes"], packed) != fields["crc32c"]:
        raise FormatError("a block does not match its checksum", at)
    try:
        kind = BlockKind(fields["kind"])
    except ValueError as error:
        raise FormatError(f"a block cannot be read: {error}", at) from error
    end = start + fields["packed_bytes"]
    return PackedBlock(kind, number, at, end, fields["plain_bytes"], packed)


def unpack_block(block: PackedBlock) -> bytes:
    """The msgpack in it."""
    try:
        return zstandard.ZstdDecompressor().decompress(
            block.packed, max_output_size=block.plain_bytes
        )
    except zstandard.ZstdError as error:
        raise FormatError(f"a block cannot be read: {error}", block.offset) from error


def decode_blocks(contents: bytes) -> Iterator[tuple[BlockKind, bytes]]:
    """Kind and msgpack of each block; FormatError for anything that is not a whole snapshot."""
    for block in packed_blocks(contents):
        yield block.kind, unpack_block(block)


def sound_blocks(contents: bytes) -> Iterator[PackedBlock | LostBlocks]:
    """What of a damaged snapshot can be read, for a repair, and where nothing can.

    A block knows its number, so behind a bad one the next is found where bytes are a block of a
    number that may be: a reader that counts blocks up to here has seen at most one in each header's
    room.
    """
    at, number = MACHINE_SNAPSHOT_HEADER.size, 0
    while at < len(contents):
        block = _try_block(contents, at, number)
        if block is None:
            begin = at
            block = _next_block(contents, at, number)
            at = len(contents) if block is None else block.offset
            yield LostBlocks(begin, at)
        if block is not None:
            yield block
            at, number = block.end, block.number + 1
            if block.kind is BlockKind.END:
                return


def _next_block(contents: bytes, bad: int, number: int) -> PackedBlock | None:
    """Mostly only the bad block's bytes are wrong, and its header tells where the next begins."""
    at = bad + 1
    while 0 <= (start := contents.find(b"\0\0\0", at)) < len(contents):
        for skipped in range(1, LOST_BLOCKS_MAX + 1):
            block = _try_block(contents, start, number + skipped)
            if block is not None:
                return block
        at = start + 1
    return None


def _try_block(contents: bytes, at: int, number: int) -> PackedBlock | None:
    kind = contents[at + 3] if at + SNAPSHOT_BLOCK.size <= len(contents) else 0
    if kind not in _KINDS:
        return None
    try:
        return _block_at(contents, at, number)
    except FormatError:
        return None
