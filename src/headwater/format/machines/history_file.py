"""The kept entries of one deleted segment, read from their file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.core.errors import FormatError
from headwater.format.machines.entry import MachineEntry, decode_entry
from headwater.format.machines.history import (
    HISTORY_FOOTER,
    HISTORY_INDEX_ENTRY,
    HistoryFooter,
    decode_footer,
    decode_history_index,
)

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
