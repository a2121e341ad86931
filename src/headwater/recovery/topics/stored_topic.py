"""What the disk was last known to hold of a topic, and reading it back as a topic's log.

Snapshot and log say how far segments reach and where the floors are; the index files say the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from headwater.config.topic import TopicSettings
from headwater.core.arrays import numpy
from headwater.format.control_frames import CheckpointEntry
from headwater.format.frame import FrameFlag
from headwater.format.segment import (
    INDEX_ENTRY,
    SEGMENT_FRAME_BYTES_MIN,
    Entries,
    IndexFlag,
    index_flags,
)
from headwater.format.snapshot import TopicMeta
from headwater.model.loss import Loss
from headwater.model.topic import TopicLog
from headwater.recovery.history.contents import Floors
from headwater.store.segment import Segment
from headwater.store.topic_files import TopicFiles

_TAGGED = int(FrameFlag.HAS_TAG)


@dataclass(slots=True)
class StoredTopic(Floors):
    """How far the files of a topic are good, and the floors that were written down."""

    head_seq: int = 0
    active_first_seq: int = 0
    active_data_bytes: int = 0
    flagged: dict[int, int] = field(default_factory=dict)
    """First seq of a segment -> a seq whose delete its files are known to have."""

    @classmethod
    def from_meta(cls, meta: TopicMeta) -> StoredTopic:
        return cls(
            meta.evict_floor,
            meta.earliest_seq,
            meta.delete_below,
            meta.eviction_reason,
            meta.head_seq,
            meta.active_first_seq,
            meta.active_data_bytes,
            dict(meta.flagged),
        )

    def move_to(self, entry: CheckpointEntry) -> bool:
        """A checkpoint that is not older than what was known. False when it tells nothing new."""
        before = self._reach
        self.head_seq = max(self.head_seq, entry.checkpointed_seq)
        self.active_first_seq = entry.active_first_seq
        self.active_data_bytes = entry.active_data_bytes
        self.evict(entry.evict_floor, entry.earliest_seq)
        return self._reach != before

    @property
    def _reach(self) -> tuple[int, ...]:
        """All that a checkpoint can move."""
        return (
            self.head_seq,
            self.active_first_seq,
            self.active_data_bytes,
            self.evict_floor,
            self.earliest_seq,
        )


class StoredLog(msgspec.Struct, frozen=True):
    log: TopicLog
    segments: list[Segment]
    has_tags: bool


def load_log(
    files: TopicFiles,
    settings: TopicSettings,
    epoch: int,
    stored: StoredTopic,
    checkpointed_seq: int,
    last_ts: int,
    lost_as: Loss = Loss.LOST_TAIL,
) -> StoredLog:
    """Read the index files. What is below the earliest live seq is not even read."""
    earliest = stored.first_needed
    segments = files.load(
        checkpointed_seq, stored.active_first_seq, stored.active_data_bytes, earliest
    )
    live = [segment for segment in segments if segment.end_seq >= earliest]
    first = min(live[0].first_seq if live else checkpointed_seq + 1, earliest)
    log = TopicLog(settings, epoch, first)
    log.lost_as = lost_as
    has_tags = False
    for segment in live:
        entries = files.index(segment)
        files.refuse_older(segment, entries, stored.flagged.get(segment.first_seq))
        _load_gap(files, log, segment.first_seq, earliest, last_ts)
        log.load_entries(entries)
        has_tags = has_tags or bool((index_flags(entries) & _TAGGED).any())
    _load_gap(files, log, checkpointed_seq + 1, earliest, last_ts)
    log.restore_floors(
        stored.evict_floor, stored.earliest_seq, Loss(stored.losses), stored.delete_below
    )
    return StoredLog(log, segments, has_tags)


def _load_gap(
    files: TopicFiles, log: TopicLog, end_seq: int, earliest_seq: int, last_ts: int
) -> None:
    """Seqs that are in no segment: fine below the earliest live one, damage above."""
    log.load_gap(min(end_seq, max(earliest_seq, log.index.next_seq)), last_ts, lost=False)
    if log.index.next_seq < end_seq:
        files.report_missing(log.index.next_seq, end_seq - 1)
        log.load_entries(_unreadable(end_seq - log.index.next_seq, last_ts))


def _unreadable(count: int, ts: int) -> Entries:
    """Records that were not deleted and cannot be read, as the index of a damaged file has them."""
    entries = numpy.zeros(count, INDEX_ENTRY.dtype)
    entries["len"] = SEGMENT_FRAME_BYTES_MIN
    entries["ts"] = ts
    entries["flags_check"] = IndexFlag.DAMAGED
    return entries
