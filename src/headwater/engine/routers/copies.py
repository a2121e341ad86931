"""From records of a source to what a router leaves in its destination. Changes no state.

Routers that ask for the same share one result: only its topic, seqs and checksums are written
anew for each destination.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.limits import META_BYTES_MAX, META_KEYS_MAX
from headwater.engine.partition import FrameRun
from headwater.engine.state.topic import Router
from headwater.format.appends import Appends, encode_appends, readdress
from headwater.format.frame import FRAME, FrameFlag, join_data, split_data
from headwater.format.segment import SEGMENT_FRAME
from headwater.model.match import TagMatcher
from headwater.model.router import Fate, Guarantee, Slot, may_hop, slot_for

HOPS_FIELD: Final = "$hops"
"""How often a record was copied in a circle, in its meta."""
READDRESS_MIN: Final = 12
"""Fewer records than this are encoded faster than their frames are changed."""

_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)
_HAS_META: Final = int(FrameFlag.HAS_META)
_OWN_FLAGS: Final = _HAS_TAG | _HAS_NODE | _HAS_META
_TAIL_FORM: Final = (struct.Struct("<B8xQQHHI"), FRAME.offset_of("flags"), FRAME.size)
_SEGMENT_FORM: Final = (
    struct.Struct("<BQQHHI"),
    SEGMENT_FRAME.offset_of("flags"),
    SEGMENT_FRAME.size,
)


class SourceRecord(NamedTuple):
    seq: int
    ts: int
    flags: int
    node: bytes
    tag: bytes
    data: bytes


class SourceBatch(msgspec.Struct):
    """A stretch of a source, both ends included: what is in it, and what was lost of it."""

    first_seq: int
    last_seq: int
    records: list[SourceRecord] = msgspec.field(default_factory=list)
    lost: list[range] = msgspec.field(default_factory=list)
    last_ts: int = 0

    def fates(self, keep: CopyRule) -> Iterator[tuple[int, Fate, SourceRecord | None]]:
        """What becomes of each seq that is not simply passed over, in order."""
        at = 0
        gaps = [*self.lost, range(self.last_seq + 1, self.last_seq + 1)]
        for gap in gaps:
            while at < len(self.records) and self.records[at].seq < gap.start:
                record = keep.seen(self.records[at])
                at += 1
                if record is not None:
                    yield record.seq, Fate.MATCHES, record
            for seq in gap:
                yield seq, Fate.LOST, None


def decode_source(runs: Sequence[FrameRun]) -> list[SourceRecord]:
    """Frames, checked before, as they are to be copied."""
    records: list[SourceRecord] = []
    for run in runs:
        fields, fields_at, body_at = _SEGMENT_FORM if run.in_segment else _TAIL_FORM
        buffer, unpack = run.buffer, fields.unpack_from
        for offset in run.offsets.tolist():
            flags, seq, ts, node_len, tag_len, data_len = unpack(buffer, offset + fields_at)
            tag_at = offset + body_at + node_len
            data_at = tag_at + tag_len
            records.append(
                SourceRecord(
                    seq,
                    ts,
                    flags & _OWN_FLAGS,
                    bytes(buffer[offset + body_at : tag_at]),
                    bytes(buffer[tag_at:data_at]),
                    bytes(buffer[data_at : data_at + data_len]),
                )
            )
    return records


class CopyRule(NamedTuple):
    """What a router asks of a record and takes of it. Equal ones give equal copies."""

    matcher: TagMatcher | None
    preserve_node: bool
    preserve_tag: bool
    counts_hops: bool
    guarantee: Guarantee

    @classmethod
    def of(cls, router: Router) -> CopyRule:
        settings = router.settings
        return cls(
            router.matcher,
            settings.preserve_node,
            settings.preserve_tag,
            router.in_circle,
            settings.guarantee,
        )

    def seen(self, record: SourceRecord) -> SourceRecord | None:
        """The record as it is copied; None when it is passed over."""
        if self.matcher is not None and not (
            record.flags & _HAS_TAG and self.matcher.matches(record.tag)
        ):
            return None
        if self.counts_hops:
            hopped = _one_more_hop(record)
            if hopped is None:
                return None
            record = hopped
        if not self.preserve_node and record.flags & _HAS_NODE:
            record = record._replace(flags=record.flags & ~_HAS_NODE, node=b"")
        if not self.preserve_tag and record.flags & _HAS_TAG:
            record = record._replace(flags=record.flags & ~_HAS_TAG, tag=b"")
        return record


def _one_more_hop(record: SourceRecord) -> SourceRecord | None:
    data, meta = split_data(record.flags, record.data)
    fields: dict[str, Any] = {}
    if meta is not None:
        fields = msgspec.json.decode(meta, type=dict[str, Any])
    hops = fields.get(HOPS_FIELD, 0)
    hops = hops if isinstance(hops, int) else 0
    if not may_hop(hops):
        return None
    fields[HOPS_FIELD] = hops + 1
    counted = msgspec.json.encode(fields)
    if len(fields) > META_KEYS_MAX or len(counted) > META_BYTES_MAX:
        counted = msgspec.json.encode({HOPS_FIELD: hops + 1})  # its own meta has to go
    return record._replace(flags=record.flags | _HAS_META, data=join_data(data, counted))


class Copies(msgspec.Struct):
    """What a router leaves for a batch: one entry for each slot, in order."""

    upto_seq: int
    """The router has passed the source up to here once these are published."""
    slots: list[Slot] = msgspec.field(default_factory=list)
    source_seqs: list[int] = msgspec.field(default_factory=list)
    times: list[int] = msgspec.field(default_factory=list)
    flags: list[int] = msgspec.field(default_factory=list)
    nodes: list[bytes] = msgspec.field(default_factory=list)
    tags: list[bytes] = msgspec.field(default_factory=list)
    datas: list[bytes] = msgspec.field(default_factory=list)
    _encoded: dict[int, Appends] = msgspec.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, slot: Slot, seq: int, ts: int, record: SourceRecord | None) -> None:
        self.slots.append(slot)
        self.source_seqs.append(seq)
        self.times.append(ts)
        self.flags.append(0 if record is None else record.flags)
        self.nodes.append(b"" if record is None else record.node)
        self.tags.append(b"" if record is None else record.tag)
        self.datas.append(b"" if record is None else record.data)

    @property
    def copies(self) -> int:
        return self.slots.count(Slot.COPY)

    def payloads(self) -> list[int]:
        return [
            len(node) + len(tag) + len(data)
            for node, tag, data in zip(self.nodes, self.tags, self.datas, strict=True)
        ]

    def until(self, count: int) -> Copies:
        """The first slots only: the rest is for later."""
        if count == len(self):
            return self
        return Copies(
            self.source_seqs[count - 1],
            self.slots[:count],
            self.source_seqs[:count],
            self.times[:count],
            self.flags[:count],
            self.nodes[:count],
            self.tags[:count],
            self.datas[:count],
        )

    def runs(self) -> Iterator[tuple[Slot, int, int]]:
        """Neighbours of one kind: kind, begin and end."""
        begin = 0
        for at in range(1, len(self.slots) + 1):
            if at == len(self.slots) or self.slots[at] is not self.slots[begin]:
                yield self.slots[begin], begin, at
                begin = at

    def encode(self, topic_id: int, first_seq: int, ts_min: int, flags_base: int) -> Encoded:
        """The frames of these slots in a topic whose last record is of time `ts_min`."""
        times = self.times
        earlier = bool(times) and times[0] < ts_min
        if earlier:
            times = [max(ts, ts_min) for ts in times]
        flags = self.flags
        if flags_base:
            flags = [
                own | flags_base if slot is Slot.COPY else 0
                for own, slot in zip(flags, self.slots, strict=True)
            ]
        if len(self) < READDRESS_MIN:
            columns = (times, flags, self.nodes, self.tags, self.datas)
            return Encoded(encode_appends(topic_id, first_seq, *columns), times, flags)
        known = self._encoded.get(flags_base)
        if known is None:
            columns = (self.times, flags, self.nodes, self.tags, self.datas)
            known = self._encoded[flags_base] = encode_appends(0, 1, *columns)
        changed = readdress(known, topic_id, first_seq, times if earlier else None)
        return Encoded(changed, times, flags)


class Encoded(NamedTuple):
    frames: Appends
    times: list[int]
    flags: list[int]


def copies_for(keep: CopyRule, batch: SourceBatch) -> Copies:
    """The slots a router takes for a batch."""
    copies = Copies(batch.last_seq)
    passed = slot_for(keep.guarantee, Fate.PASSED)
    ts = batch.records[0].ts if batch.records else batch.last_ts
    next_seq = batch.first_seq
    for seq, fate, record in batch.fates(keep):
        if passed is not Slot.NOTHING:
            for empty in range(next_seq, seq):
                copies.add(passed, empty, ts, None)
        ts = ts if record is None else record.ts
        copies.add(slot_for(keep.guarantee, fate), seq, ts, record)
        next_seq = seq + 1
    if passed is not Slot.NOTHING:
        for empty in range(next_seq, batch.last_seq + 1):
            copies.add(passed, empty, ts, None)
    return copies


def log_frames(copies: Copies, frames: Appends) -> Iterator[tuple[Slot, int, bytes, int]]:
    """What of these slots goes into the log: kind, end of the run, bytes and their frames."""
    for slot, begin, end in copies.runs():
        if slot is not Slot.COPY:
            yield slot, end, b"", 0
            continue
        after = frames.offsets[end] if end < len(frames.offsets) else len(frames.buffer)
        yield slot, end, frames.buffer[frames.offsets[begin] : after], end - begin
