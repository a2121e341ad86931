"""What a topic holds, in a few numbers that two copies of it must share, as of one moment."""

from __future__ import annotations

from headwater.core.arrays import numpy
from headwater.core.clock import Clock, Doorbell
from headwater.engine.state.topic import Topic
from headwater.format.backup import BackupTopic
from headwater.format.checksum import checksum64
from headwater.format.segment import IndexFlag
from headwater.model.topic import TopicLog

_DEAD = int(IndexFlag.DELETED | IndexFlag.LOST)
_RECORD = int(IndexFlag.HAS_TAG | IndexFlag.HAS_NODE | IndexFlag.HAS_META)


def topic_facts(topic: Topic, log: TopicLog) -> BackupTopic:
    """`log` is the topic's own, or what was just read from its files."""
    return BackupTopic(
        topic.name,
        topic.topic_id,
        log.epoch,
        log.visible_seq,
        log.earliest_seq,
        log.evict_floor,
        log.count,
        log.bytes,
        f"{_index_checksum(log):016x}",
    )


def _index_checksum(log: TopicLog) -> int:
    """Which records are alive, with their lengths, times and flags. What is in them is vouched for
    by the checksum of each record, which covers its seq."""
    base, end = log.index.base_seq, log.visible_seq
    if end < base:
        return checksum64(b"")
    entries = log.index.entries(base, end)
    alive = numpy.flatnonzero(entries["flags_check"] & _DEAD == 0)
    columns = (
        alive.astype("<i8") + base,
        entries["len"][alive].astype("<u4"),
        entries["ts"][alive].astype("<u8"),
        (entries["flags_check"][alive] & _RECORD).astype("<u4"),
    )
    return checksum64(b"".join(column.tobytes() for column in columns))


class StillClock:
    """A wall clock that stands still: a backup is read as of the moment it was made.

    With the machine's own clock, records that have expired since would be gone from a copy before
    a check could compare it, or a restore could go to an earlier time.
    """

    def __init__(self, clock: Clock, wall_ms: int) -> None:
        self._clock = clock
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_us(self) -> int:
        return self._clock.monotonic_us()

    def wait(self, doorbell: Doorbell, until_us: int | None) -> bool:
        return self._clock.wait(doorbell, until_us)
