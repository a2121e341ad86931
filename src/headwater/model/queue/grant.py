"""What one claim was given, when each claim runs out, and who may ack, nack or extend a job.

Jobs claimed together share one object. A job in flight costs nothing of its own while it is one of
a run of neighbours, and otherwise an entry in a dict and one in a list. There is no timer for a
job: a heap holds one entry for each claim, and the next claim checks its top. Only a job's holder
may do something about it, in time, under the current number if one is named.

Claims that come close together are served together, so that none of them takes everything.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from headwater.model.queue.held import Held

_SLACK: Final = 64
"""Entries that are not worth a cleaning."""


class Grant:
    """A claim: the jobs it was given and the terms they are all held on.

    Its number is the fence: every later claim has a larger one, restarts included, so a worker
    that slept through its deadline cannot ack a job that another worker holds by now.
    """

    __slots__ = ("connection", "deadline_us", "held", "lease_id", "node", "seqs")

    def __init__(
        self,
        lease_id: int,
        node: str,
        seqs: Sequence[int],
        deadline_us: int,
        connection: int | None,
    ) -> None:
        self.lease_id = lease_id
        self.node = node
        self.seqs = seqs
        """Every job it was given, a range if they are neighbours; some may have left it since."""
        self.held = len(seqs)
        """How many have not."""
        self.deadline_us = deadline_us
        """Monotonic; the claim holds up to and including this moment."""
        self.connection = connection
        """The connection it lives and ends with, if it does."""


class Deadlines:
    """Grants by the time they run out. Entries that say nothing any more are passed over, and
    cleaned out before they are more than the others."""

    __slots__ = ("_heap", "_order", "_stale")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Grant]] = []
        self._order = 0
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, grant: Grant) -> None:
        self._order += 1
        heapq.heappush(self._heap, (grant.deadline_us, self._order, grant))

    def move(self, grant: Grant, deadline_us: int) -> None:
        """Another deadline. A later one needs no new entry: the old one will be put back."""
        earlier = deadline_us < grant.deadline_us
        grant.deadline_us = deadline_us
        if earlier:
            self.add(grant)
            self.note_stale()

    def note_stale(self) -> None:
        """One entry is stale: all jobs of its grant are acked or returned, or it has a twin."""
        self._stale += 1
        if self._stale > len(self._heap) // 2 + _SLACK:
            kept = {id(grant): grant for _, _, grant in self._heap if grant.held}
            self._heap = [(grant.deadline_us, at, grant) for at, grant in enumerate(kept.values())]
            heapq.heapify(self._heap)
            self._order, self._stale = len(self._heap), 0

    def next_us(self) -> int | None:
        """A moment before which nothing runs out."""
        return self._heap[0][0] if self._heap else None

    def expired(self, now_us: int) -> Iterator[Grant]:
        """Take out the grants whose time is over."""
        while self._heap and self._heap[0][0] < now_us:
            _, order, grant = heapq.heappop(self._heap)
            if not grant.held:
                self._stale = max(self._stale - 1, 0)
            elif grant.deadline_us < now_us:
                yield grant
            else:
                heapq.heappush(self._heap, (grant.deadline_us, order, grant))


Claims = dict[int, list[int]]
"""Jobs by the number of their claim."""


class Verdict(NamedTuple):
    """What an ack, nack or extend did: to these jobs, and not to those."""

    taken: list[int]
    skipped: list[int]
    claims: Claims
    """The jobs taken, by the claim they were held under: one event of the log each."""


class ExhaustedJob(NamedTuple):
    """A job that was delivered as often as it may be, and is to be dead-lettered."""

    seq: int
    deliveries: int
    is_copied: bool
    """It is safe in the dead letter topic already."""


def judge(
    leases: Held[Grant],
    node: str,
    seqs: Iterable[int],
    lease_ids: Sequence[int] | None,
    now_us: int,
) -> Verdict:
    """Which of these jobs the node may ack, nack or extend now; each of them once."""
    seqs = list(seqs)
    grant = leases.one_holder(seqs)
    if (
        grant is not None
        and grant.node == node
        and now_us <= grant.deadline_us
        and (lease_ids is None or list(lease_ids).count(grant.lease_id) == len(seqs))
    ):
        return Verdict(seqs, [], {grant.lease_id: seqs})
    taken: list[int] = []
    skipped: list[int] = []
    claims: Claims = {}
    named: set[int] = set()
    for at, seq in enumerate(seqs):
        grant = leases.get(seq)
        if (
            grant is None
            or grant.node != node
            or now_us > grant.deadline_us
            or (lease_ids is not None and lease_ids[at] != grant.lease_id)
            or seq in named
        ):
            skipped.append(seq)
        else:
            named.add(seq)
            taken.append(seq)
            claims.setdefault(grant.lease_id, []).append(seq)
    return Verdict(taken, skipped, claims)


Claimer = TypeVar("Claimer")


def share(available: int, wanted: Sequence[int]) -> list[int]:
    """How many each gets: in proportion to what it wants, never more than that.

    What does not divide goes one by one to those with the largest remainder, and among equals to
    the one who came first. Nothing is left over while a claimer still wants it.
    """
    total = sum(wanted)
    if available >= total:
        return list(wanted)
    shares = [want * available // total for want in wanted]
    left = available - sum(shares)
    by_remainder = sorted(
        range(len(wanted)), key=lambda at: (-(wanted[at] * available % total), at)
    )
    for at in by_remainder[:left]:
        shares[at] += 1
    return shares


class ClaimWindow(Generic[Claimer]):
    """Claimers who wait for one pass. The first one opens the window, the pass closes it."""

    __slots__ = ("_members", "_wanted", "closes_us")

    def __init__(self) -> None:
        self._members: list[Claimer] = []
        self._wanted: list[int] = []
        self.closes_us: int | None = None
        """When the pass is due; None while no claimer waits."""

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, claimer: Claimer) -> bool:
        return claimer in self._members

    def join(self, claimer: Claimer, wanted: int, now_us: int, window_us: int) -> bool:
        """True when this claimer opened the window: the caller sets the timer."""
        self._members.append(claimer)
        self._wanted.append(wanted)
        if self.closes_us is not None:
            return False
        self.closes_us = now_us + window_us
        return True

    def leave(self, claimer: Claimer) -> None:
        """A claimer gave up waiting."""
        if claimer in self._members:
            at = self._members.index(claimer)
            del self._members[at], self._wanted[at]
            if not self._members:
                self.closes_us = None

    @property
    def wanted(self) -> int:
        return sum(self._wanted)

    def close(self) -> list[Claimer]:
        """Everyone who waits, in the order they came; the next claim opens a new window."""
        members = self._members
        self._members, self._wanted, self.closes_us = [], [], None
        return members
