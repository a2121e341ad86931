"""Damage or an unfinished write? Events behind a bad batch may know that it was synced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy

from headwater.core.errors import FormatError
from headwater.format.kafka.batch import read_sound
from headwater.format.kafka.entry import ENTRY_BYTES, KEY_AT, PREFIX_BYTES, Entries
from headwater.format.kafka.events import INTERNAL_KEY, Synced, decode_event, encode_event
from headwater.format.kafka.names import index_name

_LONGEST: Final = len(encode_event(Synced(2**63), 0))
_KEY: Final = numpy.frombuffer(INTERNAL_KEY, numpy.uint8)

ReadLog = Callable[[int, int], memoryview]
"""The bytes of a log from here to there; fewer when it ends before."""


def entries_known_synced(number: int, entries: Entries, after: int, read: ReadLog) -> int:
    """How many entries of this index were synced, by the last event behind entry `after`.

    0 when no event tells. Only what is sound is believed, and nobody vouches for what follows him.
    Such an event may have survived a crash that took what was written just before it; what it
    vouches for was on stable storage when it was written, so no crash took that.
    """
    behind = numpy.ascontiguousarray(entries[after:])
    raw = behind.view(numpy.uint8).reshape(len(behind), behind.dtype.itemsize)
    ours = (raw[:, KEY_AT:] == _KEY).all(axis=1)
    ours &= (behind["segment_id"] == number) & (behind["length"] <= _LONGEST)
    for at in numpy.flatnonzero(ours)[::-1].tolist():
        place, length = int(behind["physical_offset"][at]), int(behind["length"][at])
        event = _event_at(read(place, place + PREFIX_BYTES + length), length)
        if event is not None and event.entries <= after + at:
            return event.entries
    return 0


def synced_and_bad(reason: str, number: int, at: int) -> str:
    """What is wrong, and with which entries: either file may be the damaged one."""
    place = f"its entries are at byte {at * ENTRY_BYTES} of {index_name(number)}"
    return f"{reason}; {place}; an event behind it says that it was synced"


def _event_at(found: memoryview, length: int) -> Synced | None:
    if int.from_bytes(found[:PREFIX_BYTES], "little") != length:
        return None
    batch = found[PREFIX_BYTES:]
    try:
        if read_sound(batch).record_count != 1:
            return None
        event = decode_event(batch)
    except FormatError:
        return None
    return event if isinstance(event, Synced) else None
