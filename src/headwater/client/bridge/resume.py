"""Where to go on: count the copies behind the last statement, and check that they are copies.

The last one before it is checked too: a topic that was made anew, or one of another cluster, has
the same name and other records, and offsets mean nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import islice
from typing import TYPE_CHECKING

from headwater.client.bridge.records import (
    Fingerprint,
    fingerprint,
    is_copy,
    read_each,
    read_range,
    same_record,
)
from headwater.client.bridge.statement import (
    BridgeStoppedError,
    CopyPosition,
    Watermarks,
    uncounted,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headwater.client.bridge.settings import BridgeSettings


Spot = tuple[str, int]
"""Topic and partition."""
Marks = tuple[Watermarks, Watermarks]
"""Of the source and of the destination."""


def check_last_copies(
    settings: BridgeSettings,
    known: Mapping[Spot, CopyPosition],
    marks: Mapping[Spot, Marks],
    timeless: Set[str] = frozenset(),
) -> None:
    """Stops where the record that was copied last is not what the source has in its place.

    `timeless` are topics whose copies have times of their own. Nothing can be said of records that
    are deleted by now, on either side.
    """
    there = {
        spot: position
        for spot, position in known.items()
        if _has(marks[spot][0], position.source - 1) and _has(marks[spot][1], position.dest - 1)
    }
    originals = read_each(settings.source, {spot: each.source - 1 for spot, each in there.items()})
    copies = read_each(settings.dest, {spot: each.dest - 1 for spot, each in there.items()})
    for spot, position in there.items():
        original, copy = originals.get(spot), copies.get(spot)
        if original is None or copy is None:
            continue
        if not same_record(original, copy, any_time=spot[0] in timeless):
            raise BridgeStoppedError(
                f"{spot[0]}/{spot[1]}: what the destination has at {position.dest - 1} is no copy "
                f"of what the source has at {position.source - 1}; it is another source, or it was "
                "made anew. Under another --name it is copied behind what is there"
            )


def _has(marks: Watermarks, offset: int) -> bool:
    return marks.low <= offset < marks.high


def resume_position(
    settings: BridgeSettings,
    spot: Spot,
    known: CopyPosition,
    marks: Marks,
    *,
    any_time: bool = False,
) -> CopyPosition:
    topic, partition = spot
    where = f"{topic}/{partition}"
    source, dest = marks
    first = max(known.dest, dest.low)
    try:
        copies = uncounted(known, source, dest, where)
    except BridgeStoppedError as error:
        if (error.detail or {}).get("reason") != "source_lost":
            raise
        copies = dest.high - known.dest
        originals = read_range(settings.source, topic, partition, source.low, source.high)
        left = [(each.offset() or 0, fingerprint(each)) for each in islice(originals, copies)]
        there = read_range(settings.dest, topic, partition, first, dest.high)
        found = {each.offset() or 0: fingerprint(each) for each in there}
        source_loss = SourceLoss(known, source, dest, left, found, any_time)
        position = source_loss.position(skip=settings.skip_lost)
        if position is None and settings.skip_lost:
            raise BridgeStoppedError(
                f"{where}: what the destination has from {known.dest} on are no copies of what the "
                f"source has from {source.low} on; another producer writes to it"
            ) from error
        if position is None:
            raise
        return position
    if not copies:
        return known
    originals = read_range(settings.source, topic, partition, known.source, source.high)
    there = read_range(settings.dest, topic, partition, first, dest.high)
    last = compare(originals, there, known.dest, copies, where, any_time=any_time)
    return CopyPosition(last + 1, dest.high)


class SourceLoss:
    """The source has deleted records behind the statement, so they cannot all be counted.

    As many as there are copies were copied, and perhaps all of those that are gone. The last copies
    are searched for among the first records that are left.
    """

    def __init__(
        self,
        known: CopyPosition,
        source: Watermarks,
        dest: Watermarks,
        left: list[tuple[int, Fingerprint]],
        copies: Mapping[int, Fingerprint],
        any_time: bool = False,
    ) -> None:
        self._source = source
        self._dest = dest
        self._left = left
        self._copies = copies
        self._any_time = any_time
        # Each copy is of a record, and records have one offset each at least.
        self._copied_until = known.source + dest.high - known.dest
        self._least = sum(offset < self._copied_until for offset, _ in left)

    def position(self, *, skip: bool) -> CopyPosition | None:
        """Where to go on; None where that is unclear, or where records are lost unskipped."""
        fitting = (count for count in range(self._least, len(self._left) + 1) if self._fits(count))
        found = list(islice(fitting, 2))
        if not found or (not skip and (len(found) > 1 or self._copied_until < self._source.low)):
            return None
        # Nothing in common is always possible; something in common is no accident.
        return self._after(found[0] or found[-1])

    def _fits(self, count: int) -> bool:
        if count > self._least and self._dest.high - 1 not in self._copies:
            return False  # nothing is there that could be compared
        for back in range(1, count + 1):
            copy = self._copies.get(self._dest.high - back)
            original = self._left[count - back][1]
            if copy is not None and not is_copy(original, copy, any_time=self._any_time):
                return False
        return True

    def _after(self, count: int) -> CopyPosition:
        at = self._left[count - 1][0] + 1 if count else self._source.low
        return CopyPosition(at, self._dest.high)


def compare(
    originals: Iterator[Message],
    there: Iterator[Message],
    first: int,
    copies: int,
    where: str,
    *,
    any_time: bool = False,
) -> int:
    """The source's offset of the last copy. Copies that are deleted by now cannot be compared."""
    copy = next(there, None)
    last = -1
    for dest_offset in range(first, first + copies):
        original = next(originals, None)
        if original is None:
            raise BridgeStoppedError(
                f"{where}: the destination has {first + copies - dest_offset} records more than "
                "the source; another producer writes to it"
            )
        while copy is not None and (copy.offset() or 0) < dest_offset:
            copy = next(there, None)
        is_there = copy is not None and copy.offset() == dest_offset
        if copy is not None and is_there and not same_record(original, copy, any_time=any_time):
            raise BridgeStoppedError(
                f"{where}: what the destination has at {dest_offset} is no copy of what the source "
                f"has at {original.offset()}; another producer writes to it"
            )
        last = original.offset() or 0
    return last
