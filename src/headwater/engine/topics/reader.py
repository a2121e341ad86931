"""The read path: decide as the owner what to read, then read it anywhere.

A plan holds everything the bytes need: chunks of the tail, which are immutable, and stretches of
segments with a copy of their index entries. So fetching needs no owner, a slow disk delays only the
reader that waits for it (I14), and a record deleted in between is a race the reader may lose.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, NamedTuple

from headwater.core.arrays import NDArray, numpy
from headwater.core.errors import RequestError
from headwater.core.records import Record
from headwater.engine.partition import FilePlace, FrameRun, ReadPlan
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import TailChunk, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.format.frame import FRAME, FrameFlag, split_data
from headwater.format.segment import SEGMENT_FRAME, Entries
from headwater.model.match import TagMatcher
from headwater.model.selection import Selection, select
from headwater.model.slots import as_run
from headwater.store.pair import RecordDamage, good_positions
from headwater.store.segment import (
    Segment,
    SegmentMissingError,
    SegmentSlice,
    UnreadableSegmentError,
)

_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)
_HAS_META: Final = int(FrameFlag.HAS_META)

IN_PASSING_RECORDS_MAX: Final = 1_000
"""More records than a default page are read by a thread of their own, wherever they lie."""

# The same fields stand in both frames, at other offsets: flags, (topic,) seq, ts, lengths.
_TAIL_FORM: Final = (struct.Struct("<B8xQQHHI"), FRAME.offset_of("flags"), FRAME.size)
_SEGMENT_FORM: Final = (
    struct.Struct("<BQQHHI"),
    SEGMENT_FRAME.offset_of("flags"),
    SEGMENT_FRAME.size,
)


class TailRead(NamedTuple):
    chunk: TailChunk
    seqs: NDArray[numpy.int64]


@dataclass(slots=True, eq=False)
class SegmentRead:
    segment: Segment
    seqs: NDArray[numpy.int64]
    entries: Entries
    """Copies of the index entries from the first to the last of `seqs`."""
    at_hand: SegmentSlice | None = None
    """Their bytes, if they lie in memory."""


@dataclass(slots=True)
class TopicReadPlan:
    topic: Topic
    selection: Selection
    head_seq: int
    earliest_seq: int
    verify: bool
    """Check each frame that was not checked before."""
    reads: list[TailRead | SegmentRead] = field(default_factory=list)

    @property
    def needs_files(self) -> bool:
        return any(isinstance(read, SegmentRead) for read in self.reads)

    @property
    def waits_for_files(self) -> bool:
        """Whether a thread that may wait should read this. Not so for a page that lies in memory:
        handing it to another thread and back takes longer than reading it."""
        reads = [read for read in self.reads if isinstance(read, SegmentRead)]
        if reads and len(self.selection.seqs) > IN_PASSING_RECORDS_MAX:
            return True
        for read in reads:
            read.at_hand = self.topic.files.at_hand(read.segment, read.entries)
            if read.at_hand is None:
                return True
        return False

    @property
    def is_current(self) -> bool:
        """As the owner: the segments it reads from are still the ones the topic has."""
        now = {id(segment) for segment in self.topic.segments}
        return all(id(p.segment) in now for p in self.reads if isinstance(p, SegmentRead))

    @property
    def cold_segments(self) -> int:
        return sum(1 for p in self.reads if isinstance(p, SegmentRead) and p.segment.is_cold)

    def note_damage(self, findings: Sequence[RecordDamage]) -> bool:
        """Always to be planned again: the next plan stops before the damage, or reports it. Also
        when this plan was merely out of date."""
        if self.is_current:
            self.topic.store.note_damage(self.topic, findings)
        return True

    def upto(self, last_seq: int) -> TopicReadPlan:
        """Without what is behind this seq and not in segments yet."""
        reads = [
            TailRead(read.chunk, read.seqs[: read.seqs.searchsorted(last_seq, "right")])
            if isinstance(read, TailRead)
            else read
            for read in self.reads
        ]
        return replace(self, reads=[read for read in reads if len(read.seqs)])

    def runs(self) -> tuple[list[FrameRun], list[RecordDamage]]:
        """Anywhere: where the frames of a plan lie, checked; records that are near lie together."""
        runs: list[FrameRun] = []
        findings: list[RecordDamage] = []
        tails: list[TailRead] = []
        for read in self.reads:
            if isinstance(read, TailRead):
                tails.append(read)
                continue
            try:
                run, bad = self._from_segment(read)
            except SegmentMissingError as error:
                findings.append(_missing(read.segment, error))
                continue
            except UnreadableSegmentError as error:
                findings.append(_unreadable(read.segment, error))
                continue
            runs.append(run)
            findings.extend(bad)
        if tails:
            runs.append(_from_tail(tails))  # the tail is behind every segment
        return runs, findings

    def _from_segment(self, read: SegmentRead) -> tuple[FrameRun, list[RecordDamage]]:
        topic, seqs = self.topic, read.seqs
        first = int(seqs[0])
        data = read.at_hand
        if data is None:
            data = topic.files.read(read.segment, first, int(seqs[-1]), read.entries)
        # None: all of them, as mostly. Nothing is picked then.
        positions = None if len(seqs) == len(read.entries) else seqs - first
        findings: list[RecordDamage] = []
        checked = topic.files.checked(read.segment)
        if checked is not None:
            checked = checked[first - read.segment.first_seq :][: len(read.entries)]
        if self.verify and not _all_true(checked, positions):
            good, findings = good_positions(data, read.entries, first)
            if checked is not None:
                checked |= good
            if not good.all():
                positions = (
                    numpy.flatnonzero(good) if positions is None else positions[good[positions]]
                )
        all_offsets = read.entries["offset"]
        picked = all_offsets if positions is None else all_offsets[positions]
        offsets = picked.astype(numpy.int64)
        offsets -= data.base
        place = None
        if len(offsets) and read.segment.sealed and not read.segment.is_cold:
            first_here = first if positions is None else first + int(positions[0])
            place = FilePlace(data.path, read.segment.data_bytes, data.base, first_here)
        return FrameRun(data.buffer, offsets, True, place), findings


@dataclass(frozen=True, slots=True)
class ReadFilter:
    """What a reader leaves out. Left-out records still move its cursor."""

    nodes: frozenset[bytes] = frozenset()
    matcher: TagMatcher | None = None

    @property
    def keeps_all(self) -> bool:
        return not self.nodes and self.matcher is None


class Reader:
    def __init__(self, core: EngineCore, topics: Topics) -> None:
        self._core = core
        self._topics = topics

    def plan(self, topic: Topic, from_seq: int, limit: int, bytes_max: int) -> TopicReadPlan:
        """As the owner: which records, and where their bytes are."""
        core = self._core
        if from_seq < 0:
            raise RequestError("from_seq must be 0 or more")
        selection = select(topic.log, from_seq, limit, bytes_max, core.retention_ms())
        topic.log.last_read_ts = core.clock.wall_ms()
        if selection.eviction is not None:
            self._topics.evicted(topic, selection.eviction)
        return self._located(topic, selection)

    def plan_copying(
        self, topic: Topic, from_seq: int, limit: int, bytes_max: int, slots_max: int
    ) -> TopicReadPlan:
        """As the owner: the same for a router, whose reads are not counted."""
        now_ms = self._core.retention_ms()
        selection = select(topic.log, from_seq, limit, bytes_max, now_ms, slots_max)
        if selection.eviction is not None:
            self._topics.evicted(topic, selection.eviction)
        return self._located(topic, selection)

    def plan_seqs(self, topic: Topic, seqs: Sequence[int]) -> TopicReadPlan:
        """As the owner: where these records are, as far as they are there and not known damaged."""
        index, damaged = topic.log.index, topic.log.damaged
        run = as_run(seqs)
        if run is not None and not damaged and index.all_live(run.start, run.stop):
            live = numpy.arange(run.start, run.stop)
        else:
            there = [seq for seq in seqs if index.is_live(seq) and seq not in damaged]
            live = numpy.array(sorted(there), numpy.int64)
        upto = int(live[-1]) if len(live) else 0
        selection = Selection(live, upto, False, None, len(live))
        return self._located(topic, selection)

    def _located(self, topic: Topic, selection: Selection) -> TopicReadPlan:
        log, verify, seqs = topic.log, self._core.settings.verify_reads, selection.seqs
        plan = TopicReadPlan(topic, selection, log.visible_seq, log.earliest_seq, verify)
        if not len(seqs):
            return plan
        tail_first = topic.tail.first_seq
        split = len(seqs)
        if tail_first is not None:
            split = 0 if tail_first <= seqs[0] else int(seqs.searchsorted(tail_first))
        if split:
            self._locate_in_segments(plan, seqs[:split])
        if split < len(seqs):
            rest = seqs[split:]
            chunks = list(topic.tail.chunks(int(rest[0]), int(rest[-1])))
            if len(chunks) == 1:
                plan.reads.append(TailRead(chunks[0], rest))
                return plan
            borders = rest.searchsorted([chunk.first_seq for chunk in chunks]).tolist()
            borders.append(len(rest))
            for chunk, low, high in zip(chunks, borders, borders[1:], strict=False):
                if low < high:
                    plan.reads.append(TailRead(chunk, rest[low:high]))
        return plan

    def _locate_in_segments(self, plan: TopicReadPlan, seqs: NDArray[numpy.int64]) -> None:
        topic = plan.topic
        at = topic.segment_position(int(seqs[0]))
        while len(seqs):
            segment = topic.segments[at]
            until = len(seqs)
            if seqs[-1] > segment.end_seq:
                until = int(seqs.searchsorted(segment.end_seq + 1))
            if until:
                here = seqs[:until]
                entries = topic.log.index.entries(int(here[0]), int(here[-1]))
                plan.reads.append(SegmentRead(segment, here, entries))
                seqs = seqs[until:]
            at += 1


def _missing(segment: Segment, error: SegmentMissingError) -> RecordDamage:
    """`note_damage` checks whether the plan is current: a segment that is still the topic's
    and has no file was taken away from outside."""
    reason = "the file is missing"
    return RecordDamage(error.path, 0, segment.first_seq, reason, last_seq=segment.end_seq)


def _unreadable(segment: Segment, error: UnreadableSegmentError) -> RecordDamage:
    path = PurePath(error.path or "")
    return RecordDamage(path, 0, segment.first_seq, error.what, last_seq=segment.end_seq)


def _all_true(checked: NDArray[numpy.bool_] | None, positions: NDArray[numpy.int64] | None) -> bool:
    if checked is None:
        return False
    if positions is None:
        return int(numpy.count_nonzero(checked)) == len(checked)
    return bool(checked[positions].all())


def _from_tail(reads: Sequence[TailRead]) -> FrameRun:
    """Frames of the tail in one buffer; the small ones of single writes are put together."""
    buffers: list[bytes] = []
    offsets: list[int] = []
    at = 0
    for chunk, seqs in reads:
        if isinstance(chunk.offsets, numpy.ndarray):
            within = chunk.offsets[seqs - chunk.first_seq].tolist()
        elif len(seqs) == len(chunk.offsets):
            within = chunk.offsets
        elif seqs[-1] - seqs[0] == len(seqs) - 1:
            first = int(seqs[0]) - chunk.first_seq
            within = chunk.offsets[first : first + len(seqs)]
        else:
            within = [chunk.offsets[seq - chunk.first_seq] for seq in seqs.tolist()]
        offsets.extend([at + offset for offset in within] if at else within)
        buffers.append(chunk.buffer)
        at += len(chunk.buffer)
    buffer = buffers[0] if len(buffers) == 1 else b"".join(buffers)
    return FrameRun(buffer, numpy.array(offsets, numpy.int64), in_segment=False)


def read_records(plan: ReadPlan, keep: ReadFilter) -> tuple[list[Record], list[RecordDamage]]:
    """Anywhere: the records of a plan that the filter keeps, and what was found damaged."""
    records: list[Record] = []
    runs, findings = plan.runs()
    for run in runs:
        decode_run(run, keep, records)
    return records, findings


def decode_run(run: FrameRun, keep: ReadFilter, records: list[Record]) -> None:
    """Frames, checked before, as records."""
    fields, fields_at, body_at = _SEGMENT_FORM if run.in_segment else _TAIL_FORM
    _decode(run.buffer, run.offsets.tolist(), fields, fields_at, body_at, keep, records)


def _decode(
    buffer: bytes | memoryview,
    offsets: Sequence[int],
    fields: struct.Struct,
    fields_at: int,
    body_at: int,
    keep: ReadFilter,
    records: list[Record],
) -> None:
    """Frames at these offsets, checked before, as records."""
    unpack = fields.unpack_from
    keeps_all = keep.keeps_all
    for offset in offsets:
        flags, seq, ts, node_len, tag_len, data_len = unpack(buffer, offset + fields_at)
        at = offset + body_at
        tag_at = at + node_len
        data_at = tag_at + tag_len
        node = bytes(buffer[at:tag_at]) if flags & _HAS_NODE else None
        tag = bytes(buffer[tag_at:data_at]) if flags & _HAS_TAG else None
        if not keeps_all and not _kept(keep, node, tag):
            continue
        data = bytes(buffer[data_at : data_at + data_len])
        meta = None
        if flags & _HAS_META:
            data, meta = split_data(flags, data, offset)
        records.append(
            Record(
                seq,
                ts,
                None if node is None else node.decode("utf-8", "replace"),
                None if tag is None else tag.decode("utf-8", "replace"),
                data,
                meta,
            )
        )


def _kept(keep: ReadFilter, node: bytes | None, tag: bytes | None) -> bool:
    if node is not None and node in keep.nodes:
        return False
    return keep.matcher is None or (tag is not None and keep.matcher.matches(tag))
