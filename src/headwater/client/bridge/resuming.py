"""Where to go on: count the copies behind the last statement, and look that they are copies.

The last one before it is looked at too: a topic that was made anew, or one of another cluster, has
the same name and other records, and offsets mean nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headwater.client.bridge.ends import read_each, read_range, same_record
from headwater.client.bridge.statement import BridgeStoppedError, Place, Watermarks, uncounted

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headwater.client.bridge.bridge import BridgeSettings


Spot = tuple[str, int]
"""Topic and partition."""
Marks = tuple[Watermarks, Watermarks]
"""Of the source and of the destination."""


def check_last_copies(
    settings: BridgeSettings, known: Mapping[Spot, Place], marks: Mapping[Spot, Marks]
) -> None:
    """Stops where the record that was copied last is not what the source has in its place.

    Nothing can be said of records that are deleted by now, on either side.
    """
    there = {
        spot: place
        for spot, place in known.items()
        if _has(marks[spot][0], place.source - 1) and _has(marks[spot][1], place.dest - 1)
    }
    originals = read_each(settings.source, {spot: each.source - 1 for spot, each in there.items()})
    copies = read_each(settings.dest, {spot: each.dest - 1 for spot, each in there.items()})
    for spot, place in there.items():
        original, copy = originals.get(spot), copies.get(spot)
        if original is not None and copy is not None and not same_record(original, copy):
            raise BridgeStoppedError(
                f"{spot[0]}/{spot[1]}: what the destination has at {place.dest - 1} is no copy of "
                f"what the source has at {place.source - 1}; it is another source, or it was made "
                "anew. Copy it under another --name, to another topic"
            )


def _has(marks: Watermarks, offset: int) -> bool:
    return marks.low <= offset < marks.high


def resume_place(
    settings: BridgeSettings,
    topic: str,
    partition: int,
    known: Place,
    source: Watermarks,
    dest: Watermarks,
) -> Place:
    where = f"{topic}/{partition}"
    try:
        copies = uncounted(known, source, dest, where)
    except BridgeStoppedError as error:
        is_loss = (error.detail or {}).get("reason") == "source_lost"
        if not (settings.skip_lost and is_loss and dest.high == known.dest):
            raise
        return Place(source.low, known.dest)
    if not copies:
        return known
    originals = read_range(settings.source, topic, partition, known.source, source.high)
    first = max(known.dest, dest.low)
    there = read_range(settings.dest, topic, partition, first, dest.high)
    last = compare(originals, there, known.dest, copies, where)
    return Place(last + 1, dest.high)


def compare(
    originals: Iterator[Message], there: Iterator[Message], first: int, copies: int, where: str
) -> int:
    """The source's offset of the last copy. Copies that are deleted by now cannot be compared."""
    copy = next(there, None)
    last = -1
    for dest_offset in range(first, first + copies):
        original = next(originals, None)
        if original is None:
            raise BridgeStoppedError(
                f"{where}: the destination has {first + copies - dest_offset} records more than "
                "the source; somebody else writes to it"
            )
        while copy is not None and (copy.offset() or 0) < dest_offset:
            copy = next(there, None)
        if copy is not None and copy.offset() == dest_offset and not same_record(original, copy):
            raise BridgeStoppedError(
                f"{where}: what the destination has at {dest_offset} is no copy of what the source "
                f"has at {original.offset()}; somebody else writes to it"
            )
        last = original.offset() or 0
    return last
