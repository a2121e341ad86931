"""One entry of the machines' log: a 24-byte header, JSON, and the header's own checksum.

The checksum behind the JSON is ours: readers that know the header and its length only lose step at
it. A setting leaves it out; entries of both forms may stand in one log, and all of them are read.

An entry never says where it is; its sequence number is one more than that of the entry before it,
over the whole life of the log, so bytes that are missing between two sound entries show.

Those who read whole segments read many entries at once: the ones that are sound and follow each
other by number. `headwater.native.machine_entries` is the compiled twin of that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.format.crc32c import crc32c
from headwater.format.layout import Field, Layout
from headwater.native import compiled

MAGIC: Final = 0x574C4F47
MAGIC_BYTES: Final = MAGIC.to_bytes(4, "big")
PAYLOAD_BYTES_MAX: Final = 16 * MIB
HEADER_CHECK: Final = 0x01
"""Flag: CRC32C of the 24 header bytes stands behind the payload."""
MORE: Final = 0x02
"""Flag: the next entry belongs to the same batch; without all of it, none of it counts."""
KNOWN_FLAGS: Final = HEADER_CHECK | MORE
CHECK_BYTES: Final = 4


class EntryType(IntEnum):
    PUT_MACHINE = 1
    CREATE_INSTANCE = 2
    APPLY_EVENT = 3
    DELETE_INSTANCE = 4
    SNAPSHOT = 5
    CHECKPOINT = 6


ENTRY_TYPE_MEANING: Final = {
    EntryType.PUT_MACHINE: "a version of a machine was defined",
    EntryType.CREATE_INSTANCE: "an instance was made",
    EntryType.APPLY_EVENT: "an event moved an instance, or it was migrated",
    EntryType.DELETE_INSTANCE: "an instance was deleted; its entries stay",
    EntryType.SNAPSHOT: "a snapshot is complete that covers everything before its `wal_offset`",
    EntryType.CHECKPOINT: "everything before `synced` is on stable storage",
}

ENTRY: Final = Layout(
    "machine entry",
    (
        Field("magic", "u32", "WLOG, 0x574C4F47"),
        Field("type", "u8", "what happened"),
        Field("flags", "u8", "bit 0: header checksum behind the payload; bit 1: batch goes on"),
        Field("reserved", "u16", "must be 0"),
        Field("length", "u32", "bytes of the payload"),
        Field("crc32c", "u32", "CRC32C of the payload"),
        Field("sequence", "u64", "one more than the entry before"),
    ),
    tail=(
        ("length", "payload", "JSON"),
        ("4", "header_crc32c", "CRC32C of the 24 header bytes, if flag bit 0 is set"),
    ),
    big_endian=True,
)
HEADER_BYTES: Final = ENTRY.size
OVERHEAD_BYTES: Final = HEADER_BYTES + CHECK_BYTES
_pack: Final = ENTRY.packer.pack
_pack_check: Final = struct.Struct(">I").pack
_unpack: Final = ENTRY.packer.unpack_from
_TYPES: Final = {int(kind): kind for kind in EntryType}


class MachineEntry(NamedTuple):
    kind: EntryType
    more: bool
    sequence: int
    payload: bytes
    size: int
    """All of its bytes."""


def encode_entry(kind: EntryType, sequence: int, payload: bytes, *, more: bool = False) -> bytes:
    flags = HEADER_CHECK | MORE if more else HEADER_CHECK
    header = _pack(MAGIC, kind, flags, 0, len(payload), crc32c(payload), sequence)
    return b"".join((header, payload, crc32c(header).to_bytes(CHECK_BYTES, "big")))


def encode_entries(
    payloads: Sequence[tuple[EntryType, bytes]],
    sequence: int,
    *,
    is_batch: bool,
    is_plain: bool = False,
) -> bytes:
    """Entries that follow each other, as `encode_entry` makes them, without a call for each.

    Plain ones are without the checksum of the header."""
    if is_plain:
        return _plain_entries(payloads, sequence, is_batch)
    parts: list[bytes] = []
    left = len(payloads)
    for kind, payload in payloads:
        left -= 1
        flags = HEADER_CHECK | MORE if is_batch and left else HEADER_CHECK
        header = _pack(MAGIC, kind, flags, 0, len(payload), crc32c(payload), sequence)
        parts += (header, payload, _pack_check(crc32c(header)))
        sequence += 1
    return b"".join(parts)


def _plain_entries(
    payloads: Sequence[tuple[EntryType, bytes]], sequence: int, is_batch: bool
) -> bytes:
    last = len(payloads) - 1
    parts: list[bytes] = []
    for number, (kind, payload) in enumerate(payloads):
        flags = MORE if is_batch and number < last else 0
        checksum = crc32c(payload)
        parts += (_pack(MAGIC, kind, flags, 0, len(payload), checksum, sequence + number), payload)
    return b"".join(parts)


def decode_entry(buffer: bytes, at: int, end: int) -> MachineEntry:
    """The entry at `at`; FormatError says what is wrong with the bytes there.

    Header and payload are both checked. Entries without a header checksum are read too.
    """
    if at + HEADER_BYTES > end:
        raise FormatError("an entry's header is cut off", at)
    magic, kind_code, flags, reserved, length, checksum, sequence = _unpack(buffer, at)
    if magic != MAGIC:
        raise FormatError("no entry begins here", at)
    checked = flags & HEADER_CHECK
    body_at = at + HEADER_BYTES
    body_end = body_at + length
    size = HEADER_BYTES + length + (CHECK_BYTES if checked else 0)
    if length > PAYLOAD_BYTES_MAX or at + size > end:
        raise FormatError("an entry's length does not fit", at)
    if checked:
        stored_check = int.from_bytes(buffer[body_end : body_end + CHECK_BYTES], "big")
        if stored_check != crc32c(buffer[at:body_at]):
            raise FormatError("an entry's header does not match its checksum", at)
    kind = _TYPES.get(kind_code)
    if kind is None or reserved or flags & ~KNOWN_FLAGS:
        raise FormatError("an entry of an unknown kind", at)
    payload = buffer[body_at:body_end]
    if crc32c(payload) != checksum:
        raise FormatError("an entry's payload does not match its checksum", at)
    return MachineEntry(kind, bool(flags & MORE), sequence, payload, size)


def sequence_in(header: bytes) -> int | None:
    """The sequence number in the first bytes of an entry; None when there is no entry."""
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC_BYTES):
        return None
    sequence: int = _unpack(header, 0)[-1]
    return sequence


def header_is_sound(buffer: bytes, at: int, end: int) -> bool:
    """True when the header proves itself, whatever became of the payload."""
    if at + HEADER_BYTES > end:
        return False
    magic, _, flags, _, length, _, _ = _unpack(buffer, at)
    body_end = at + HEADER_BYTES + length
    return (
        magic == MAGIC
        and bool(flags & HEADER_CHECK)
        and body_end + CHECK_BYTES <= end
        and int.from_bytes(buffer[body_end : body_end + CHECK_BYTES], "big")
        == crc32c(buffer[at : at + HEADER_BYTES])
    )


def is_newer(buffer: bytes, at: int, end: int) -> bool:
    """True for a sound header of a kind or flag this software does not know."""
    if not header_is_sound(buffer, at, end):
        return False
    _, kind_code, flags, reserved, _, _, _ = _unpack(buffer, at)
    return kind_code not in _TYPES or bool(reserved) or bool(flags & ~KNOWN_FLAGS)


RUN_ENTRIES_MAX: Final = 4_096
"""In one run: what their payloads take in memory beside the segment is bounded."""
_KINDS: Final = tuple(EntryType)
_native: Final = compiled("machine_entries")


class EntryRun(NamedTuple):
    first: int
    """Number of the first one."""
    whole: int
    """So many of them, from the first on, are in batches that end among them."""
    end: int
    """Behind the last one."""
    kinds: list[EntryType]
    offsets: list[int]
    """Where each begins."""
    payloads: list[bytes]

    def behind(self, count: int) -> EntryRun:
        """Without the first ones."""
        kinds, offsets, payloads = self.kinds[count:], self.offsets[count:], self.payloads[count:]
        whole = max(self.whole - count, 0)
        return EntryRun(self.first + count, whole, self.end, kinds, offsets, payloads)


def read_run(buffer: bytes, at: int, limit: int = RUN_ENTRIES_MAX) -> EntryRun:
    """Entries from `at` on, so many at most; without any where no sound entry begins."""
    if _native is not None:
        run = _native.read_run(buffer, at, limit, _KINDS)
        if run is not None:
            return EntryRun(*run)
    return _read_run(buffer, at, limit)


def _read_run(buffer: bytes, at: int, limit: int) -> EntryRun:
    first = whole = 0
    kinds: list[EntryType] = []
    offsets: list[int] = []
    payloads: list[bytes] = []
    end = len(buffer)
    while len(kinds) < limit:
        try:
            entry = decode_entry(buffer, at, end)
        except FormatError:
            break
        if not kinds:
            first = entry.sequence
        elif entry.sequence != first + len(kinds):
            break
        kinds.append(entry.kind)
        offsets.append(at)
        payloads.append(entry.payload)
        if not entry.more:
            whole = len(kinds)
        at += entry.size
    return EntryRun(first, whole, at, kinds, offsets, payloads)
