"""Where to go on: count the copies behind the last statement, and look that they are copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.client.bridge.ends import read_range, same_record
from headwater.client.bridge.statement import BridgeStoppedError, Place, Watermarks, uncounted

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headwater.client.bridge.bridge import BridgeSettings


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
