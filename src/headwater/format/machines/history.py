"""What is kept of a deleted segment of the machines' log, for the histories of living instances.

```
file = entry* index-entry* footer
```

Entries stand as they did in the log, in its order, each with its checksums. The index says which
entry was where, so a reader finds one by its global offset: the file has its segment's number. A
file without its footer was never finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.format.crc32c import crc32c
from headwater.format.layout import Field, Layout
from headwater.format.machines.entry import MachineEntry, decode_entry

HISTORY_MAGIC: Final = 0x48574D48  # "HWMH"
HISTORY_VERSION: Final = 1
HISTORY_INDEX_ENTRY: Final = Layout(
    "index entry of a machine history",
    (
        Field("offset", "u64", "where the entry was in its segment"),
        Field("position", "u64", "where its bytes begin in this file"),
    ),
    big_endian=True,
)
HISTORY_FOOTER: Final = Layout(
    "machine history footer",
    (
        Field("magic", "u32", "HWMH"),
        Field("version", "u32", f"format version, {HISTORY_VERSION}"),
        Field("segment", "u64", "number of the segment the entries were in"),
        Field("count", "u64", "how many entries, and index entries"),
        Field("newest_ms", "u64", "when the newest of them was made"),
        Field("index_crc32c", "u32", "CRC32C of the index entries"),
        Field("crc32c", "u32", "CRC32C of the footer before this field"),
    ),
    big_endian=True,
)
encode_index_entry: Final = HISTORY_INDEX_ENTRY.packer.pack
_unpack: Final = HISTORY_INDEX_ENTRY.packer.unpack_from
_CHECKED: Final = HISTORY_FOOTER.offset_of("crc32c")


class HistoryFooter(NamedTuple):
    segment: int
    entries: int
    newest_ms: int
    index_crc32c: int


class HistoryIndex:
    """Which entry is where: the bytes as they are in the file, in the order of the offsets."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def __len__(self) -> int:
        return len(self._packed) // HISTORY_INDEX_ENTRY.size

    def __getitem__(self, number: int) -> tuple[int, int]:
        """Offset and position."""
        position: tuple[int, int] = _unpack(self._packed, number * HISTORY_INDEX_ENTRY.size)
        return position

    def find(self, offset: int) -> int | None:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle][0] < offset:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self[low][0] == offset else None


def encode_ending(segment: int, index: bytes, newest_ms: int) -> bytes:
    """Index and footer."""
    count = len(index) // HISTORY_INDEX_ENTRY.size
    checked = HISTORY_FOOTER.packer.pack(
        HISTORY_MAGIC, HISTORY_VERSION, segment, count, newest_ms, crc32c(index), 0
    )[:_CHECKED]
    return index + checked + crc32c(checked).to_bytes(4, "big")


def decode_footer(buffer: bytes, size: int, segment: int) -> HistoryFooter:
    """The last bytes of a file of so many bytes; FormatError when they are not its footer."""
    if len(buffer) < HISTORY_FOOTER.size:
        raise FormatError("no footer", 0)
    at = size - HISTORY_FOOTER.size
    fields = HISTORY_FOOTER.unpack(buffer)
    if fields["magic"] != HISTORY_MAGIC:
        raise FormatError("no footer", at)
    if fields["crc32c"] != crc32c(buffer[:_CHECKED]):
        raise FormatError("the footer does not match its checksum", at)
    if fields["version"] != HISTORY_VERSION:
        raise FormatError(f"a history of version {fields['version']}", at)
    if fields["segment"] != segment:
        raise FormatError(f"this is the history of segment {fields['segment']}", at)
    if fields["count"] * HISTORY_INDEX_ENTRY.size > at:
        raise FormatError("more index entries than there are bytes", at)
    return HistoryFooter(segment, fields["count"], fields["newest_ms"], fields["index_crc32c"])


def decode_history_index(buffer: bytes, footer: HistoryFooter) -> HistoryIndex:
    if crc32c(buffer) != footer.index_crc32c:
        raise FormatError("the index does not match its checksum")
    return HistoryIndex(buffer)


Read = Callable[[int, int], bytes]
"""Bytes from a position on."""


class HistoryFile:
    """Entries are found by their offset."""

    def __init__(self, read: Read, size: int, segment: int) -> None:
        """FormatError when the file is not whole."""
        self._read = read
        end = max(size - HISTORY_FOOTER.size, 0)
        self.footer: HistoryFooter = decode_footer(read(end, HISTORY_FOOTER.size), size, segment)
        length = self.footer.entries * HISTORY_INDEX_ENTRY.size
        self._end = end - length
        self._index = decode_history_index(read(self._end, length), self.footer)

    def entry_at(self, offset: int) -> MachineEntry | None:
        """By its offset in the segment; None when it was not kept. FormatError when damaged."""
        number = self._index.find(offset)
        return None if number is None else self._entry(number)

    def entries(self) -> Iterator[tuple[int, MachineEntry]]:
        """All of them, by offset in the segment. FormatError at the first that is damaged."""
        for number in range(len(self._index)):
            yield self._index[number][0], self._entry(number)

    def _entry(self, number: int) -> MachineEntry:
        begin = self._index[number][1]
        following = number + 1
        end = self._index[following][1] if following < len(self._index) else self._end
        data = self._read(begin, end - begin) if begin < end else b""
        try:
            entry = decode_entry(data, 0, len(data))
        except FormatError as error:
            raise FormatError(error.reason, begin) from error
        if entry.size != end - begin:
            raise FormatError("an entry does not fill its room", begin)
        return entry
