"""Records for store tests: their WAL bytes, the same bytes the slow way, a topic on a disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy
from numpy.typing import NDArray

from headwater.config.store import SegmentSettings
from headwater.disk import Disk
from headwater.format.frame import FrameFlag, FrameType, encode_frame, join_data
from headwater.format.segment import (
    INDEX_ENTRY,
    Entries,
    FrameState,
    IndexFlag,
    WalSlice,
    decode_segment_frame,
    encode_run,
    index_flags,
    seal_checks,
)
from headwater.store.maps import SegmentMaps
from headwater.store.pair import RecordDamage, good_positions
from headwater.store.segment import Segment
from headwater.store.segment_stores import SegmentStore
from headwater.store.topic_files import TopicFiles
from tests.rig.segment_frames import encode_segment_frame

TOPICS = PurePosixPath("/data/topics")
DIRECTORY = TOPICS / "00000007"
TS = 1_700_000_000_000
SMALL = SegmentSettings(segment_max_events=4, segment_max_bytes=10_000)


@dataclass(frozen=True)
class Sent:
    """A record as a client sent it."""

    data: bytes
    node: bytes = b""
    tag: bytes = b""
    meta: bytes | None = None
    durable: bool = True

    @property
    def flags(self) -> int:
        return (
            (FrameFlag.HAS_NODE if self.node else 0)
            | (FrameFlag.HAS_TAG if self.tag else 0)
            | (FrameFlag.HAS_META if self.meta is not None else 0)
            | (FrameFlag.DURABLE if self.durable else 0)
        )


def some(first_seq: int, count: int, size: int = 12) -> list[Sent]:
    return [
        Sent(f"payload {seq} ".encode().ljust(size, b"."), tag=b"t" if seq % 2 else b"")
        for seq in range(first_seq, first_seq + count)
    ]


def ts_of(seq: int) -> int:
    return TS + seq


def wal_frame(seq: int, sent: Sent) -> bytes:
    return encode_frame(
        FrameType.APPEND,
        7,
        seq=seq,
        ts=ts_of(seq),
        flags=sent.flags,
        node=sent.node,
        tag=sent.tag,
        data=join_data(sent.data, sent.meta),
    )


def wal_slice(first_seq: int, records: Sequence[Sent], between: bytes = b"") -> WalSlice:
    """The records as WAL bytes, with other bytes between the frames."""
    parts: list[bytes] = []
    offsets = []
    at = 0
    for position, sent in enumerate(records):
        parts += [between, wal_frame(first_seq + position, sent)]
        offsets.append(at + len(between))
        at += len(parts[-2]) + len(parts[-1])
    return WalSlice(b"".join(parts), numpy.array(offsets, numpy.int64))


def encoded(first_seq: int, records: Sequence[Sent]) -> tuple[bytearray, Entries]:
    return encode_run([wal_slice(first_seq, records)], first_seq)


def encode_run_slowly(
    records: Sequence[Sent],
    first_seq: int,
    dead: Sequence[int],
    dead_ts: Sequence[int],
) -> tuple[bytes, Entries]:
    """The obvious twin of `encode_run`: one frame after the other."""
    data = b""
    entries = numpy.zeros(len(records), INDEX_ENTRY.dtype)
    for position, sent in enumerate(records):
        seq = first_seq + position
        if dead[position]:
            ts, flags = dead_ts[position], dead[position]
            frame = encode_segment_frame(seq, ts, state=FrameState.DELETED)
        else:
            ts, flags = ts_of(seq), sent.flags
            frame = encode_segment_frame(
                seq,
                ts,
                flags=flags,
                node=sent.node,
                tag=sent.tag,
                data=join_data(sent.data, sent.meta),
            )
        entries[position] = (len(data), len(frame), ts, flags)
        data += frame
    seal_checks(entries, first_seq)
    return data, entries


def topic_files(
    disk: Disk,
    settings: SegmentSettings = SMALL,
    cold: SegmentStore | None = None,
    findings: list[RecordDamage] | None = None,
    maps: SegmentMaps | None = None,
) -> TopicFiles:
    report = None if findings is None else findings.append
    return TopicFiles(disk, DIRECTORY, settings, cold=cold, report=report, maps=maps)


class Written:
    """A topic whose records are remembered here, so that reading can be compared."""

    def __init__(self, files: TopicFiles, first_seq: int = 1) -> None:
        self.files = files
        self.segments: list[Segment] = []
        self.sent: dict[int, Sent] = {}
        self.next_seq = first_seq
        self.deleted: set[int] = set()

    def append(self, count: int, now_ms: int = TS, size: int = 12) -> list[Segment]:
        records = some(self.next_seq, count, size)
        data, entries = encoded(self.next_seq, records)
        active = self.segments[-1] if self.segments and not self.segments[-1].sealed else None
        changed = self.files.append_run(active, self.next_seq, data, entries, now_ms)
        for segment in changed:
            self.put(segment)
        self.sent.update(enumerate(records, start=self.next_seq))
        self.next_seq += count
        return changed

    def put(self, segment: Segment) -> None:
        self.segments = [each for each in self.segments if each.first_seq != segment.first_seq]
        self.segments.append(segment)
        self.segments.sort(key=lambda each: each.first_seq)

    def delete(self, *seqs: int) -> None:
        for segment in self.segments:
            here = [seq for seq in seqs if segment.first_seq <= seq <= segment.end_seq]
            if here:
                entries = self.files.index(segment)
                low, high = here[0] - segment.first_seq, here[-1] - segment.first_seq + 1
                self.files.flag_deleted(segment, entries[low:high], numpy.array(here))
        self.deleted.update(seqs)

    @property
    def position(self) -> tuple[int, int, int]:
        """What a checkpoint would say: its seq, the active segment and its bytes."""
        last = self.segments[-1] if self.segments else None
        if last is None or last.sealed:
            return self.next_seq - 1, 0, 0
        return self.next_seq - 1, last.first_seq, last.data_bytes


def read_live(
    files: TopicFiles, segments: Sequence[Segment]
) -> tuple[dict[int, bytes], list[RecordDamage]]:
    """Every record that may be served, with what was found damaged on the way."""
    found: dict[int, bytes] = {}
    findings: list[RecordDamage] = []
    for segment in segments:
        entries = files.index(segment)
        stored = files.read(segment, segment.first_seq, segment.end_seq, entries)
        good, damaged = good_positions(stored, entries, segment.first_seq)
        findings += damaged
        for position in numpy.flatnonzero(good).tolist():
            offset = int(entries["offset"][position]) - stored.base
            record = decode_segment_frame(stored.buffer, offset, len(stored.buffer))
            found[record.seq] = record.data
    return found, findings


def seqs_with(entries: Entries, first_seq: int, flag: IndexFlag) -> list[int]:
    rows: NDArray[numpy.int64] = numpy.flatnonzero(index_flags(entries) & flag)
    return [first_seq + row for row in rows.tolist()]
