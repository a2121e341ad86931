"""Results of queues: the jobs of a claim, what became of others, how many there are."""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.core.records import Record

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
