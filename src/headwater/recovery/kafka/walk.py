"""The batches of Kafka's shared log one after the other, and the topics that a reader of them sees.

A start, `verify` and a reader beside an owner walk the same way, and compare each batch with its
index entries. An unfinished write and damage look the same to a walk; events behind a bad batch may
know that it was synced.

`SeenTopics` begins with what a checkpoint says and takes in the log batch by batch, for all of them
and a repair alike: what a batch of the tail is, and whether it can be anyone's, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from headwater.core.arrays import numpy
from headwater.core.errors import FormatError
from headwater.core.units import MIB
from headwater.disk import File
from headwater.format.kafka import events
from headwater.format.kafka.batch import BatchHeader, read_sound
from headwater.format.kafka.checkpoint import KafkaCheckpoint
from headwater.format.kafka.entry import (
    ENTRY_BYTES,
    HOLE_SEGMENT,
    KEY_AT,
    PREFIX_BYTES,
    Entries,
    find_runs,
    keys_of,
    split_key,
    topic_hash,
)
from headwater.format.kafka.events import (
    INTERNAL_KEY,
    PREDECESSOR_MISSING,
    AnyEvent,
    Synced,
    decode_event,
    encode_event,
)
from headwater.format.kafka.names import index_name
from headwater.recovery.history.kafka import KafkaFold, KafkaSink, KafkaTable

_LONGEST: Final = len(encode_event(Synced(2**63), 0))
_NOTHING: Final = memoryview(b"")


class ReadableLog(Protocol):
    """The bytes of a `.log` file: mapped, or read on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> memoryview: ...


class Window:
    """A log that is read in large steps, not mapped: its owner may cut the zeros at its end at
    any time."""

    def __init__(self, file: File, step: int = MIB) -> None:
        self._file = file
        self._size = file.size()
        self._step = step
        self._at = 0
        self._bytes = _NOTHING

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop, _ = part.indices(self._size)
        if start < self._at or stop > self._at + len(self._bytes):
            wanted = max(stop - start, self._step)
            self._at, self._bytes = start, memoryview(self._file.read(start, wanted))
        return self._bytes[start - self._at : stop - self._at]


class WalkedBatch(NamedTuple):
    at: int
    """Position of its first entry."""
    records: int
    key: bytes
    offset: int
    end: int
    header: BatchHeader | None
    bytes: memoryview
    misplaced: str
    """What is wrong with where its entries lead."""
    broken: str
    """What is wrong with it where it stands."""

    @property
    def problem(self) -> str:
        return self.misplaced or self.broken

    @property
    def is_dead(self) -> bool:
        """Left out of a rewrite, or given up by a repair."""
        return self.header is None and not self.problem


def walk_batches(
    number: int,
    entries: Entries,
    log: ReadableLog,
    offset: int,
    *,
    rewritten: bool = False,
    behind_hole: bool = False,
) -> Iterator[WalkedBatch]:
    """The batches these entries point at, each with what is wrong with it.

    Behind one that is misplaced it goes on where its entries lead, if that is in this log; behind
    a hole, the bytes of the batch that was given up may come first.
    """
    runs = find_runs(entries)
    keys = keys_of(runs.entries)
    starts, counts = runs.starts.tolist(), runs.counts.tolist()
    for run, (at, count) in enumerate(zip(starts, counts, strict=True)):
        entry, key = runs.entries[run], keys[run].tobytes()
        length, start = int(entry["length"]), int(entry["physical_offset"])
        is_hole = not length and int(entry["segment_id"]) == HOLE_SEGMENT
        if is_hole or (not length and rewritten):
            behind_hole = behind_hole or is_hole
            yield WalkedBatch(at, count, key, offset, offset, None, _NOTHING, "", "")
            continue
        misplaced, is_here = "", int(entry["segment_id"]) == number
        if not is_here or start < offset or (start > offset and not behind_hole):
            misplaced = f"the entries do not follow those before them, which end at {offset}"
        if not is_here:
            yield WalkedBatch(at, count, key, offset, offset, None, _NOTHING, misplaced, "")
            continue
        header, batch, broken = _sound_at(log, start, length, count)
        end = start + PREFIX_BYTES + length
        yield WalkedBatch(at, count, key, start, end, header, batch, misplaced, broken)
        offset, behind_hole = end, False


def _sound_at(
    log: ReadableLog, offset: int, length: int, count: int
) -> tuple[BatchHeader | None, memoryview, str]:
    """The batch behind its length, and what is wrong with it."""
    begin = offset + PREFIX_BYTES
    stored = log[offset : begin + length]
    if len(stored) < PREFIX_BYTES + length or _length_of(stored) != length:
        return None, _NOTHING, "the length before the batch is not that of its entries"
    batch = stored[PREFIX_BYTES:]
    try:
        header = read_sound(batch)
    except FormatError as error:
        return None, batch, error.reason
    if header.record_count != count:
        return header, batch, f"{count} entries for {header.record_count} records"
    return header, batch, ""


def _length_of(stored: memoryview) -> int:
    return int.from_bytes(stored[:PREFIX_BYTES], "little")


def entries_known_synced(number: int, entries: Entries, after: int, log: ReadableLog) -> int:
    """How many entries of this index were synced, by the last event behind entry `after`.

    0 when no event says. Only sound events are believed, and none says anything of what follows it.
    Such an event may have survived a crash that took what was written just before it; what it
    names was on stable storage when it was written, so no crash took that.
    """
    behind = numpy.ascontiguousarray(entries[after:])
    raw = behind.view(numpy.uint8).reshape(len(behind), behind.dtype.itemsize)
    ours = (raw[:, KEY_AT:] == numpy.frombuffer(INTERNAL_KEY, numpy.uint8)).all(axis=1)
    ours &= (behind["segment_id"] == number) & (behind["length"] <= _LONGEST)
    for at in numpy.flatnonzero(ours)[::-1].tolist():
        offset, length = int(behind["physical_offset"][at]), int(behind["length"][at])
        event = _synced_at(log, offset, length)
        if event is not None and event.entries <= after + at:
            return event.entries
    return 0


def says_it_was_synced(log: ReadableLog) -> bool:
    """Whether a sound event in a log whose index has no entries says that some were synced."""
    offset = 0
    while offset + PREFIX_BYTES <= len(log):
        length = _length_of(log[offset : offset + PREFIX_BYTES])
        if not length:
            return False
        if length <= _LONGEST:
            event = _synced_at(log, offset, length)
            if event is not None and event.entries:
                return True
        offset += PREFIX_BYTES + length
    return False


def synced_and_bad(reason: str, number: int, at: int) -> str:
    """What is wrong, and with which entries: either file may be the damaged one."""
    where = f"its entries are at byte {at * ENTRY_BYTES} of {index_name(number)}"
    return f"{reason}; {where}; an event behind it says that it was synced"


def _synced_at(log: ReadableLog, offset: int, length: int) -> Synced | None:
    header, batch, problem = _sound_at(log, offset, length, 1)
    if header is None or problem:
        return None
    try:
        event = decode_event(batch)
    except FormatError:
        return None
    return event if isinstance(event, Synced) else None


STRANGER: Final = "the entries are of a topic that does not exist"


@dataclass(slots=True)
class SeenPartition:
    dropped: int = 0
    """Records that went with deleted segments."""
    log_start: int = 0


@dataclass(slots=True)
class SeenTopic:
    org: int
    name: str
    topic_id: bytes
    made_id: int
    """Entries with its hash and an earlier id are of another topic that had the name."""
    partitions: list[SeenPartition]


class BatchVerdict(Enum):
    """What a sound batch of the tail is."""

    OURS = "a batch of a topic, or an event"
    STRANGER = STRANGER
    NEWER = "an event of a newer version"
    UNFOLLOWED = PREDECESSOR_MISSING


class TakenBatch(NamedTuple):
    verdict: BatchVerdict
    event: AnyEvent | None = None
    problem: str = ""
    """Why it does not count; empty when it does."""


class SeenTopics(KafkaTable[SeenTopic], KafkaSink[SeenTopic]):
    """Which topics there are, and where their logs start."""

    def __init__(self, checkpoint: KafkaCheckpoint) -> None:
        super().__init__()
        self._fold = KafkaFold(self, self)
        self._by_hash: dict[tuple[int, bytes], list[SeenTopic]] = {}
        self._not_hashed: list[SeenTopic] = []
        self._owned: set[bytes] = set()
        for meta in checkpoint.topics:
            partitions = [SeenPartition(each.dropped, each.log_start) for each in meta.partitions]
            self.add(SeenTopic(meta.org, meta.name, meta.topic_id, meta.made_id, partitions))

    def add(self, topic: SeenTopic) -> None:
        super().add(topic)
        self._not_hashed.append(topic)

    def take_in(self, event: AnyEvent, event_id: int) -> None:
        self._fold.take(event, event_id)

    def take_batch(self, first_id: int, key: bytes, batch: memoryview) -> TakenBatch:
        """The next sound batch of the log. One that does not count changes nothing."""
        if key == INTERNAL_KEY:
            return self.take_event(first_id, batch)
        if self.owns(key):
            return _OURS
        # Counted to no topic, its records would give those behind them the seqs before theirs.
        return _STRANGER

    def take_event(self, event_id: int, batch: memoryview) -> TakenBatch:
        try:
            event = decode_event(batch)
        except FormatError as error:
            return TakenBatch(BatchVerdict.NEWER, None, error.reason)
        if isinstance(event, events.SegmentBegun) and event.base_id != event_id:
            return TakenBatch(BatchVerdict.UNFOLLOWED, event, PREDECESSOR_MISSING)
        self._fold.take(event, event_id)
        return TakenBatch(BatchVerdict.OURS, event)

    def owns(self, key: bytes) -> bool:
        """Whether entries of this key can be anybody's: of a topic there is, or was until now."""
        if key in self._owned:
            return True
        for topic in self._not_hashed:
            hashed = topic.org, topic_hash(topic.org, topic.name)
            self._by_hash.setdefault(hashed, []).append(topic)
        self._not_hashed.clear()
        org, hashed_name, partition = split_key(key)
        same_hash = self._by_hash.get((org, hashed_name), ())
        owned = any(partition < len(topic.partitions) for topic in same_hash)
        if owned:
            self._owned.add(key)
        return owned

    # -- the fold's sink

    def make(self, event: events.TopicMadeEvent, event_id: int) -> SeenTopic:
        partitions = [SeenPartition() for _ in range(event.partitions)]
        return SeenTopic(event.org, event.name, event.topic_id, event_id, partitions)

    def add_partitions(self, topic: SeenTopic, total: int) -> None:
        topic.partitions += [SeenPartition() for _ in range(total - len(topic.partitions))]

    def move_log_start(self, topic: SeenTopic, partition: int, offset: int) -> None:
        seen = topic.partitions[partition]
        seen.log_start = max(seen.log_start, offset)


_OURS: Final = TakenBatch(BatchVerdict.OURS)
_STRANGER: Final = TakenBatch(BatchVerdict.STRANGER, None, STRANGER)
