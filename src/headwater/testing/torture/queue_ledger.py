"""What the server answered workers of a queue: who holds which job until when, and what was acked.

The jobs themselves are a topic (`TopicLedger`): an ack takes a record away. What is added here:

- a job whose ack was answered is never delivered again
- a job is with one worker at a time: two leases that were certainly valid at one moment are wrong
- the number of a lease grows with every claim of a job, restarts included
- an ack by the holder, answered in time, is not skipped
- of a fifo queue, the jobs of a tag come one at a time and in order

Every lease has two bounds: it is valid at least from the answer to its claim until `lease_ms` after
the claim was sent. What lies outside is not judged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from headwater.testing.torture.outcome import RunOutcome
from headwater.testing.torture.topic_ledger import Stored, TopicLedger, shortened


@dataclass(slots=True)
class Lease:
    seq: int
    node: str
    lease_id: int
    deliveries: int
    sent_at: float
    answered_at: float
    lease_s: float
    tag: str | None = None
    is_pushed: bool = False
    """It lives with a connection, which a server that stops may end at any time."""
    is_released: bool = False
    """Its holder has asked to give it back, or to ack it: from then on nothing is certain."""

    @property
    def valid_until(self) -> float:
        return self.sent_at + self.lease_s


class QueueLedger:
    def __init__(self, topic: TopicLedger, max_deliveries: int = 0, *, is_fifo: bool) -> None:
        self.topic = topic
        self._max_deliveries = max_deliveries
        self._is_fifo = is_fifo
        self._leases: dict[int, Lease] = {}
        """The newest of each job, of this run of the server."""
        self._of_tag: dict[str | None, Lease] = {}
        self._numbers: dict[int, tuple[int, float]] = {}
        """The number of a job's newest lease, and when it was claimed."""
        self.delivered: dict[int, Stored] = {}
        self.is_server_leaving: Callable[[], bool] = lambda: False
        self._wrong: list[str] = []
        self._lock = threading.Lock()

    def restart(self) -> None:
        """The server was started again: leases of before say nothing about now."""
        with self._lock:
            self._leases.clear()
            self._of_tag.clear()

    def lose_power(self, since: float) -> None:
        with self._lock:
            self._numbers.clear()
            self.delivered.clear()
        self.topic.lose_power(since, since)

    def claimed(self, lease: Lease, job: Stored) -> None:
        """A worker was given a job."""
        with self._lock:
            self._wrong += self._claim_findings(lease, job)
            self._leases[lease.seq] = lease
            self._of_tag[lease.tag] = lease
            self._numbers[lease.seq] = lease.lease_id, lease.answered_at
            self.delivered[lease.seq] = job

    def _claim_findings(self, lease: Lease, job: Stored) -> list[str]:
        wrong = []
        removal = self.topic.removal(lease.seq)
        if removal is not None and removal[0] is RunOutcome.ACKED and removal[1] < lease.sent_at:
            wrong.append(f"I8: job {lease.seq} was acked, and delivered again to {lease.node}")
        known = self.delivered.get(lease.seq)
        if known is not None and known != job:
            wrong.append(f"I1: job {lease.seq} was {known} and is {job}")
        number, claimed_at = self._numbers.get(lease.seq, (0, 0.0))
        # Answers to two claims may be read in another order than they were given.
        if lease.lease_id <= number and claimed_at < lease.sent_at:
            wrong.append(f"lease: job {lease.seq} has number {lease.lease_id}, it had {number}")
        if 0 < self._max_deliveries < lease.deliveries:
            wrong.append(f"lease: job {lease.seq} was delivered {lease.deliveries} times")
        other = self._leases.get(lease.seq)
        if other is not None and self._overlap(other, lease):
            wrong.append(f"lease: job {lease.seq} is with two workers: {other} and {lease}")
        if self._is_fifo and lease.tag is not None:
            wrong += self._order_findings(lease)
        return wrong

    def _order_findings(self, lease: Lease) -> list[str]:
        other = self._of_tag.get(lease.tag)
        if other is not None and other.seq != lease.seq and self._overlap(other, lease):
            return [f"fifo: two jobs of tag {lease.tag} are out: {other} and {lease}"]
        before = self.topic.first_of_tag(lease.tag)
        if before is not None and before < lease.seq:
            return [f"fifo: job {lease.seq} of tag {lease.tag} came before {before}"]
        return []

    def _overlap(self, first: Lease, second: Lease) -> bool:
        return (
            not first.is_released
            and not (first.is_pushed and self.is_server_leaving())
            and second.sent_at > first.answered_at
            and second.answered_at < first.valid_until
        )

    def release(self, lease: Lease) -> None:
        """Before its holder asks for anything that may end it."""
        with self._lock:
            lease.is_released = True

    def extended(self, lease: Lease, sent_at: float, lease_s: float) -> None:
        with self._lock:
            lease.sent_at, lease.lease_s = sent_at, lease_s

    def resolve_ack(self, lease: Lease, *, is_skipped: bool, at: float) -> None:
        if not is_skipped:
            self.topic.remove(lease.seq, RunOutcome.ACKED, at)
            return
        self.topic.keep(lease.seq)
        if at < lease.valid_until:
            with self._lock:
                self._wrong.append(f"lease: the holder's ack in time was skipped: {lease}")

    def findings(self) -> list[str]:
        """What was wrong with answers since the last time."""
        with self._lock:
            wrong, self._wrong = self._wrong, []
        return shortened(wrong)
