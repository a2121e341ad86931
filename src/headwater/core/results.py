"""What calls return, in the embedded library and over HTTP: the same types.

Names of `TopicState`, `Deleted` and `RouterState` are field names of the HTTP answers too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.records import Record

# -- topics


class Appended(NamedTuple):
    """The answer to a write."""

    first_seq: int
    last_seq: int
    head_seq: int
    created: bool
    deduped: bool

    @property
    def records(self) -> int:
        """How many records it wrote."""
        return self.last_seq - self.first_seq + 1

    @property
    def seqs(self) -> range:
        return range(self.first_seq, self.last_seq + 1)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Names what a reader can no longer get. The gap includes both ends."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True)
class Diff:
    """What a read gives. `caught_up` is the only sign of the end; the cursor is the only ack."""

    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    records_scanned: int = 0
    cold_segments_read: int = 0

    @property
    def lag(self) -> int:
        return max(self.head_seq - self.next_from_seq, 0)


@dataclass(frozen=True, slots=True)
class ArrowPage:
    """Records as an Arrow IPC stream. `tombstone` is about what was lost before them."""

    stream: bytes
    next_from_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    epoch: int


class Deleted(msgspec.Struct, frozen=True):
    """The answer to a delete."""

    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class TopicState(msgspec.Struct, frozen=True):
    """A topic from outside."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    evict_floor: int
    epoch: int
    last_write_ts: int | None
    last_read_ts: int | None
    config: dict[str, Any]


# -- watching


@dataclass(frozen=True, slots=True)
class TopicGone:
    """The topic was dropped; nothing more will come from it."""


Item = Record | Tombstone | TopicGone


@dataclass(frozen=True, slots=True)
class Watched:
    """Something that happened to a topic."""

    topic: str
    item: Item


# -- queues


DEAD_LETTER_ORIGIN: Final = "$dead_letter_from"
"""In the meta of a dead letter: the queue it came from."""


DEAD_LETTER_CAUSE: Final = "$dead_letter_cause"
"""In the same place, of a job that was damaged: why it is one. Others were delivered too often."""


class ClaimedJob(NamedTuple):
    """A job and the terms on which a worker has it."""

    record: Record
    lease_id: int
    deadline: int
    """Wall clock ms, for people; what counts is the time that really passes."""
    deliveries: int


class Claimed(NamedTuple):
    """The answer to a claim."""

    jobs: list[ClaimedJob]
    ready: int

    @property
    def seqs(self) -> list[int]:
        return [job.record.seq for job in self.jobs]


class LeaseResult(NamedTuple):
    """The answer to an ack, nack or extend: these jobs, and not those."""

    seqs: list[int]
    skipped: list[int]
    ready: int
    in_flight: int
    deadlines: dict[int, int]
    """After an extend: the new deadline of each job, wall clock ms."""


class QueueStats(NamedTuple):
    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int
    blocked: int
    """Jobs that no worker gets and that stay: the dead letter topic refuses them, or they are
    damaged and there is none."""


class Requeued(NamedTuple):
    """Which letters went back, and which stayed where they are: not letters, or not allowed."""

    seqs: list[int]
    skipped: list[int]


# -- routers


class RouterState(msgspec.Struct, frozen=True):
    """A router from outside."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: str | None
    allow_cycle: bool
    guarantee: str
    source_seq: int
    """The last record of the source it has come to."""
    lag: int
    """Records of the source it has not come to."""
    held: bool
    """It waits for room in a destination that refuses when full."""
    forwarded_total: int


# -- the whole


class LongWait(msgspec.Struct, frozen=True):
    """Something that writes waited for, and that took long."""

    number: int
    """Counts up over all causes."""
    cause: str
    at_ms: int
    """When it began."""
    duration_us: int
    detail: str
    beside: list[str]
    """The background work that ran during it."""


class WaitCount(msgspec.Struct, frozen=True):
    """The long waits of one cause since the start."""

    cause: str
    meaning: str
    count: int
    total_us: int


class Trace(msgspec.Struct, frozen=True):
    """Long waits: all of them counted, the newest of each cause one by one."""

    now_ms: int
    wait_us_min: int
    """Shorter ones are not in here. 0: none are."""
    causes: list[WaitCount]
    waits: list[LongWait]
