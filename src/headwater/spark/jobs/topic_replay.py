"""One topic from its history in the log to what its segments must hold.

The rules are the engine's own (`recovery.history`, `model.topic`); what is left out is everything
that only a living owner needs. Two cases:

- with the segments of a data directory: they are read back as far as the last checkpoint reached,
  and the log goes on from there, exactly as a start of the engine does it;
- from the log alone: it begins with the topic's creation, and marks tell floors, no reach.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy
import pyarrow
from numpy.typing import NDArray

from headwater.config.topic import TopicSettings
from headwater.core.durability import Durability
from headwater.core.errors import DamageError
from headwater.format.control_frames import CheckpointEntry, IdempotencyEntry, LeaseEvent
from headwater.format.frame import FRAME, FrameFlag, decode_frame
from headwater.format.segment import (
    SEGMENT_FRAME,
    Entries,
    FrameFault,
    IndexFlag,
    frame_faults,
    index_flags,
)
from headwater.format.segment.run import heads_at
from headwater.model.idempotency import IdempotencyWindow
from headwater.model.loss import Loss
from headwater.model.match import TagMatcher
from headwater.model.queue import LeaseHistory
from headwater.model.topic import TopicLog
from headwater.recovery.history.contents import (
    ContentSink,
    Deletion,
    TopicHistory,
    lose_ephemeral,
    may_lose_ephemeral,
    reserved_seqs,
)
from headwater.recovery.topics.catalog import KnownTopic
from headwater.recovery.topics.replay import entries_in_log
from headwater.recovery.topics.stored_topic import load_log
from headwater.spark.jobs.log_files import LoggedRows, MappedFiles
from headwater.store.pair import RecordDamage
from headwater.store.segment import Segment
from headwater.store.topic_files import TopicFiles

Integers = NDArray[numpy.int64]


class Tagged(NamedTuple):
    """Records of one buffer: their seqs, and where their tags lie in it."""

    seqs: Integers
    buffer: memoryview
    starts: Integers
    lengths: Integers


class TagTable:
    """The tags of many records as one sorted table: which seqs carry a tag, without a loop over
    them. For deletes that chose records by their tag.

    The distinct tags are few; they are kept sorted, so one tag is a place and all that begin alike
    are a range of places.
    """

    def __init__(self, parts: Sequence[Tagged]) -> None:
        arrays = [_texts(part) for part in parts]
        seqs = numpy.concatenate([numpy.empty(0, numpy.int64), *(part.seqs for part in parts)])
        joined = pyarrow.chunked_array(arrays, pyarrow.large_binary()).combine_chunks()
        encoded = joined.dictionary_encode()
        distinct: list[bytes] = encoded.dictionary.to_pylist()
        self._tags = sorted(distinct)
        rank = {tag: rank_of_tag for rank_of_tag, tag in enumerate(self._tags)}
        ranks = numpy.array([rank[tag] for tag in distinct], numpy.int64)
        codes = ranks[encoded.indices.to_numpy()] if len(distinct) else numpy.empty(0, numpy.int64)
        order = numpy.lexsort((seqs, codes))
        self._seqs = seqs[order]
        self._starts = numpy.searchsorted(codes[order], numpy.arange(len(distinct) + 1))

    def find(self, matcher: TagMatcher, end_seq: int) -> Integers:
        """The seqs below `end_seq` whose tag matches, ascending."""
        first = bisect_left(self._tags, matcher.text)
        matching = sum(1 for _ in takewhile(matcher.matches, self._tags[first:]))
        if not matcher.prefix:
            matching = min(matching, 1)
        seqs = self._seqs[self._starts[first] : self._starts[first + matching]]
        return numpy.unique(seqs[seqs < end_seq])


def _texts(part: Tagged) -> Any:
    """The tags as an Arrow array: gathered byte by byte, all at once."""
    ends = numpy.cumsum(part.lengths)
    offsets = numpy.concatenate((numpy.zeros(1, numpy.int64), ends))
    positions = numpy.repeat(part.starts - offsets[:-1], part.lengths)
    positions += numpy.arange(len(positions))
    tag_bytes = numpy.frombuffer(part.buffer, numpy.uint8)[positions]
    return pyarrow.Array.from_buffers(
        pyarrow.large_binary(),
        len(part.lengths),
        [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(tag_bytes)],
    )


_TAGGED = int(FrameFlag.HAS_TAG)
_UNREADABLE = int(IndexFlag.DELETED | IndexFlag.DAMAGED)


@dataclass(frozen=True, slots=True)
class Place:
    """Consecutive seqs, and where their frames lie; no path for seqs that have none."""

    first_seq: int
    path: str | None
    offsets: NDArray[numpy.int64]


@dataclass(slots=True)
class Counts:
    """What became of the records in the log."""

    records: int = 0
    duplicates: int = 0
    """Records whose seq was there already: copies of the same log overlap."""
    absorbed: int = 0
    """Records that segments have already."""
    left_out: int = 0
    """Records that caps, ages or deletes took before a segment needed them."""


@dataclass(slots=True)
class TopicReplay(ContentSink[LoggedRows]):
    known: KnownTopic
    files: TopicFiles | None
    """The topic's segments; None when there is only the log."""
    mapped: MappedFiles
    findings: list[RecordDamage] = field(default_factory=list)
    """Filled by `files`."""
    clean_runs: tuple[int, ...] = ()
    """Runs that ended with a clean stop. It gives reserved seqs back, which a snapshot tells; a
    log alone tells it by the mark that such a run ends with."""
    log: TopicLog = field(init=False)
    segments: list[Segment] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """Everything behind the segments, in seq order without gaps."""
    unflagged: list[NDArray[numpy.int64]] = field(default_factory=list)
    """Seqs the log deleted, of which segments may not know."""
    keys: IdempotencyWindow = field(default_factory=IdempotencyWindow)
    leases: LeaseHistory | None = None
    counts: Counts = field(default_factory=Counts)
    last_ts: int = 0
    ceiling: int = 0
    ceiling_run: int = 0
    """The run in which it was reserved; 0 when the snapshot tells of it."""
    logged_upto: int | None = None
    """For a class that is not logged, at the end: the last seq that was in the log all the same."""
    _history: TopicHistory[LoggedRows] = field(init=False)
    _run: int = 0
    """The run of the log that is replayed."""
    _rows: list[LoggedRows] = field(default_factory=list)
    _tags: TagTable | None = None

    def __post_init__(self) -> None:
        known = self.known
        self._history = TopicHistory(self)
        self.last_ts = known.last_ts
        settings = known.settings
        if self.files is None:
            self.log = TopicLog(settings, known.epoch)
            return
        stored = load_log(
            self.files, settings, known.epoch, known.stored, known.checkpointed_seq, self.last_ts
        )
        self._refuse_damage()
        self.log, self.segments = stored.log, stored.segments
        self.last_ts = max(self.last_ts, self.log.last_write_ts)
        if known.meta is not None:
            self.ceiling = known.meta.ceiling
            if known.meta.queue is not None:
                self.leases = LeaseHistory.since(known.meta.queue)
        for key in known.keys:
            self.keys.remember(key)

    @property
    def active(self) -> Segment | None:
        """The segment that is still appended to."""
        last = self.segments[-1] if self.segments else None
        return None if last is None or last.sealed else last

    def replay(self, history: Iterable[LoggedRows]) -> None:
        """Everything the log has of the topic, by the order of its stretches."""
        self._rows = sorted(history, key=lambda rows: rows.order)
        for rows in self._rows:
            self._run = rows.order.run
            done = 0
            for control in rows.controls:
                self._take(rows, done, control.at)
                done = control.at
                self._apply(control.what)
            self._take(rows, done, len(rows.seqs))
        self._history.finish()

    def finish(self, now_ms: int) -> None:
        """What a start concludes: seqs that will never have a record, then caps and ages."""
        settings = self.log.settings
        self._give_back(None)
        if may_lose_ephemeral(settings, was_ephemeral=self._history.was_ephemeral):
            self.logged_upto = None if settings.durability.is_logged else self.log.visible_seq
            lose_ephemeral(self, self.known.stored.head_seq)
        if reserved_seqs(self.log, self.ceiling):
            self.lose(self.ceiling, logged=True)
        self.log.evict(now_ms)
        if self.leases is not None:
            self.leases.keep(self.log.index.is_live)

    # -- records

    def _take(self, rows: LoggedRows, start: int, end: int) -> None:
        if start == end:
            return
        some = rows.part(start, end)
        known = self._history.append(some)
        absorbed = int(numpy.searchsorted(some.seqs, self._reached, "right"))
        self.counts.records += end - start
        self.counts.absorbed += absorbed
        self.counts.duplicates += known - absorbed

    @property
    def _reached(self) -> int:
        return self.known.checkpointed_seq if self.files is not None else 0

    @property
    def head_seq(self) -> int:
        return self.log.visible_seq

    def append(self, rows: LoggedRows, start: int, end: int) -> None:
        some = rows.part(start, end)
        self.log.load_entries(entries_in_log(some.sizes, some.ts, some.flags))
        self.last_ts = max(self.last_ts, int(some.ts[-1]))
        self.places.append(Place(int(some.seqs[0]), some.path, some.offsets))

    def fill(self, upto_seq: int, ts: int, *, lost: bool) -> None:
        self._fill(upto_seq, ts, lost=lost or self._was_reserved(upto_seq))

    def _was_reserved(self, last_seq: int) -> bool:
        """Was a record up to this seq ever acknowledged? Segments would tell; a log alone tells by
        the seqs that were reserved before the crash."""
        reserved = self.files is None and last_seq <= self.ceiling
        return reserved and self.log.settings.durability is Durability.DISK

    def _fill(self, upto_seq: int, ts: int, *, lost: bool, logged: bool = True) -> None:
        first = self.log.visible_seq + 1
        self.log.load_gap(upto_seq + 1, ts, lost=lost)
        if logged:
            self.places.append(Place(first, None, numpy.zeros(upto_seq + 1 - first, numpy.int64)))

    def lose(self, upto_seq: int, *, logged: bool) -> None:
        self._fill(upto_seq, self.last_ts, lost=True, logged=logged)

    def begin_anew(self, log: TopicLog) -> None:
        self.log = log
        self.places.clear()

    # -- control frames

    def _apply(self, control: bytes | CheckpointEntry) -> None:
        if isinstance(control, CheckpointEntry):
            self._absorbed(control)
        else:
            buffer = memoryview(control)
            self._history.apply(decode_frame(buffer, 0, len(buffer), verify=False))

    def reserve(self, ceiling: int) -> None:
        self._give_back(self._run)
        self.ceiling = max(self.ceiling, ceiling)
        self.ceiling_run = self._run

    def remember(self, entry: IdempotencyEntry) -> None:
        self.keys.remember(entry)

    def lease(self, event: LeaseEvent, ts: int) -> None:
        self.leases = self.leases or LeaseHistory()
        self.leases.apply(event, ts)

    def _give_back(self, before_run: int | None) -> None:
        """Forget what was reserved before a clean stop, if one came since."""
        if self.files is None and any(
            self.ceiling_run <= run and (before_run is None or run < before_run)
            for run in self.clean_runs
        ):
            self.ceiling = 0

    def _absorbed(self, entry: CheckpointEntry) -> None:
        """A checkpoint whose segments are not there: seqs it had and the log has not are lost."""
        if entry.checkpointed_seq > self.log.visible_seq:
            self._fill(entry.checkpointed_seq, self.last_ts, lost=True)
        self.log.restore_floors(entry.evict_floor, entry.earliest_seq, self.log.losses)

    def evict(self, evict_floor: int, earliest_seq: int, losses: Loss) -> None:
        self.log.restore_floors(evict_floor, earliest_seq, losses)

    @property
    def settings(self) -> TopicSettings:
        return self.log.settings

    def reconfigure(self, settings: TopicSettings) -> None:
        self.log.settings = settings

    def delete_before(self, seq: int) -> None:
        self.log.delete(before_seq=seq)

    def delete(self, deletion: Deletion) -> None:
        if deletion.matcher is None:
            self._flag(numpy.array(deletion.seqs, numpy.int64))
            return
        if self._tags is None:
            self._tags = TagTable([*self._tags_in_segments(), *self._tags_in_log()])
        end = min(deletion.last_seq, self.log.visible_seq) + 1
        self._flag(self._tags.find(deletion.matcher, end))

    def _flag(self, seqs: NDArray[numpy.int64]) -> None:
        newly = self.log.delete_seqs(seqs)
        if len(newly):
            self.unflagged.append(newly)

    def _tags_in_log(self) -> Iterable[Tagged]:
        for rows in self._rows:
            chosen = numpy.flatnonzero(rows.flags & _TAGGED)
            if len(chosen):
                buffer = self.mapped.view(rows.path)
                offsets = rows.offsets[chosen]
                heads = heads_at(buffer, FRAME, offsets)
                starts = offsets + FRAME.size + heads["node_len"]
                lengths = heads["tag_len"].astype(numpy.int64)
                yield Tagged(rows.seqs[chosen], buffer, starts, lengths)

    def _tags_in_segments(self) -> Iterable[Tagged]:
        for segment in self.segments:
            first, last = max(segment.first_seq, self.log.index.base_seq), segment.end_seq
            if first > last or self.files is None:
                continue
            entries = self.log.index.entries(first, last)
            flags = index_flags(entries)
            if not ((flags & _TAGGED != 0) & (flags & _UNREADABLE == 0)).any():
                continue
            yield self._tags_of(self.files, segment, first, entries)

    def _tags_of(
        self, files: TopicFiles, segment: Segment, first_seq: int, entries: Entries
    ) -> Tagged:
        part = files.read(segment, first_seq, first_seq + len(entries) - 1, entries)
        faults = frame_faults(part.buffer, entries, first_seq, part.base)
        flags = index_flags(entries)
        sound = (faults == FrameFault.NONE) | (faults == FrameFault.DELETED)
        chosen = numpy.flatnonzero((flags & _TAGGED != 0) & (flags & _UNREADABLE == 0) & sound)
        offsets = entries["offset"][chosen].astype(numpy.int64) - part.base
        heads = heads_at(part.buffer, SEGMENT_FRAME, offsets)
        starts = offsets + SEGMENT_FRAME.size + heads["node_len"]
        lengths = heads["tag_len"].astype(numpy.int64)
        return Tagged(chosen + first_seq, part.buffer, starts, lengths)

    def _refuse_damage(self) -> None:
        """What cannot be read again must not be left out without anybody noticing."""
        for finding in self.findings:
            if not finding.repaired:
                raise DamageError(
                    finding.reason,
                    path=PurePath(finding.path),
                    offset=finding.offset,
                    advice="`headwater pipeline verify` lists everything; restore a backup",
                )
