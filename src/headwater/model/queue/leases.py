"""The leases of one queue: who holds which job, what comes back, and what is next.

A job is in exactly one state:

| state | which jobs | what ends it |
|---|---|---|
| fresh | live, at or behind `claim_cursor`, in no other state | a claim |
| held | in `leases`, with the claim that holds it | ack, nack, its deadline |
| leaving | being deleted for good: acked, or delivered too often | the log has it |
| delayed | given back with a delay, or not to be claimed before its time | the time |
| reclaimed | below `claim_cursor`, ready again; served first | a claim |
| parked | its key is held by another job (`fifo_key`) | that job leaves |
| blocked | delivered too often, and could not be put away | the next try |
| unreadable | damaged, and there is no dead letter topic to put it in | the topic gets one |

Ready jobs cost nothing: the fresh ones are what a scan of the topic's own index finds behind a
cursor. Nothing here reads a clock. Deadlines and delays are monotonic microseconds, so a wall clock
that jumps moves none of them. Only scheduled delivery (`deliver_at`) is about the calendar, which
the caller passes in as a time that follows the wall clock without leaps.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headwater.core.arrays import numpy
from headwater.core.units import US_PER_MS
from headwater.model.index import SeqIndex
from headwater.model.queue.grant import Claims, Deadlines, ExhaustedJob, Grant, Verdict, judge
from headwater.model.queue.held import Held
from headwater.model.queue.waiting import Delays, FifoKeys
from headwater.model.slots import DEAD

_FEW: Final = 8
"""Up to here one check each is quicker than numpy."""


def next_live(jobs: SeqIndex, from_seq: int, wanted: int) -> tuple[Sequence[int], int]:
    """At most `wanted` live seqs from here on, and how far the scan went.

    It scans one stretch, so there may be more live seqs; the next call goes on. Where all of it is
    alive, the result is a range: nothing is made for each of them.
    """
    first = jobs.first_live(from_seq)
    if first >= jobs.next_seq:
        return [], jobs.next_seq
    if wanted <= _FEW:
        seqs = [first]
        while len(seqs) < wanted and (seq := jobs.first_live(seqs[-1] + 1)) < jobs.next_seq:
            seqs.append(seq)
        return seqs, seqs[-1] + 1
    end = min(first + wanted, jobs.next_seq)
    if jobs.all_live(first, end):
        return range(first, end), end
    live = numpy.flatnonzero(jobs.flags(first, end) & DEAD == 0)
    return (live + first).tolist(), end


def fitting(jobs: SeqIndex, seqs: Sequence[int], bytes_max: int) -> int:
    """How many of these, from the first, have no more payload than that together."""
    if jobs.live_bytes <= bytes_max:
        return len(seqs)  # all jobs together are no more than that
    first, end = seqs[0], seqs[-1] + 1
    if end - first == len(seqs) and int(jobs.peek(first, end)["len"].sum()) <= bytes_max:
        return len(seqs)  # mostly they are neighbours, and small
    for count, seq in enumerate(seqs):
        bytes_max -= jobs.payload_at(seq)
        if bytes_max < 0:
            return count
    return len(seqs)


DRAW_SLOTS_MAX: Final = 16_384
"""Seqs one draw passes at most; for more the caller draws again."""


class QueueLeases:
    __slots__ = (
        "_connections",
        "_deadlines",
        "_exhausted",
        "_out_upto",
        "_retry_us",
        "blocked",
        "claim_cursor",
        "dead_lettered",
        "delays",
        "deliveries_max",
        "keys",
        "keys_known",
        "leases",
        "leaving",
        "next_lease_id",
        "reclaim",
        "returned",
        "scheduled",
        "unreadable",
    )

    def __init__(self, next_lease_id: int = 1) -> None:
        self.leases: Held[Grant] = Held()
        self.leaving: Held[Grant | None] = Held()
        """With the claim it was acked under, to go back to should the log refuse."""
        self.returned: dict[int, int] = {}
        """Deliveries that came to nothing, for jobs that had any."""
        self.reclaim: list[int] = []
        self.delays = Delays()
        """Given back with a delay: monotonic microseconds."""
        self.scheduled = Delays()
        """Not to be delivered before: calendar milliseconds."""
        self.blocked: dict[int, bool] = {}
        """Delivered too often, and not put away because the dead letter topic or the log refused.
        True when the letter is safe and only the delete is missing."""
        self.claim_cursor = 0
        self.next_lease_id = next_lease_id
        self.unreadable: dict[int, None] = {}
        """Damaged jobs: no worker gets them, and they hold up no other job."""
        self.dead_lettered = 0
        self.deliveries_max = 0
        """0 means no limit; without a dead letter topic there is none."""
        self.keys: FifoKeys | None = None
        self.keys_known = True
        """False when jobs are out whose keys are not known: see `unkeyed_seqs`."""
        self._out_upto = 0
        """No job behind this one is out of line before the cursor has met it."""
        self._deadlines = Deadlines()
        self._connections: dict[int, set[Grant]] = {}
        self._exhausted: list[ExhaustedJob] = []
        self._retry_us = 0
        """When what is blocked is tried again."""

    # -- counting

    @property
    def in_flight(self) -> int:
        return len(self.leases) + len(self.leaving)

    def ready(self, jobs: SeqIndex) -> int:
        """Live jobs that no worker holds and nothing keeps back."""
        out = self.in_flight + len(self.delays) + len(self.scheduled)
        return max(jobs.live_count - out - self.kept_back, 0)

    @property
    def kept_back(self) -> int:
        """Jobs that no worker gets until an operator acts or a retry succeeds."""
        return len(self.blocked) + len(self.unreadable)

    def has_fresh(self, jobs: SeqIndex) -> bool:
        """The cursor has not seen everything yet."""
        return self.claim_cursor < jobs.next_seq

    def held_on(self, connection: int) -> int:
        """How many jobs a connection has in hand."""
        return sum(grant.held for grant in self._connections.get(connection, ()))

    def deliveries(self, seq: int) -> int:
        """How often the job was handed out, this time included."""
        return self.returned.get(seq, 0) + (seq in self.leases)

    def next_change_us(self, now_us: int, calendar_ms: int) -> int | None:
        """A moment before which nothing becomes ready by itself."""
        times = [self._deadlines.next_us(), self.delays.next()]
        if self.blocked:
            times.append(self._retry_us)
        next_scheduled = self.scheduled.next()
        if next_scheduled is not None:
            times.append(now_us + (next_scheduled - calendar_ms) * US_PER_MS)
        return min((time for time in times if time is not None), default=None)

    # -- claiming

    def sweep(self, now_us: int, calendar_ms: int) -> None:
        """What ran out or came due since the last sweep is ready again."""
        for grant in self._deadlines.expired(now_us):
            for seq in self._held_by(grant):
                self._let_go(seq, grant)
                self._return(seq)
        for seq in self.delays.due(now_us):
            self._ready_again(seq)
        for seq in self.scheduled.due(calendar_ms):
            self._ready_again(seq)
        if self.blocked and now_us >= self._retry_us:
            self._try_blocked_again()

    def _try_blocked_again(self) -> None:
        """Also for claims, should the rules have changed."""
        blocked, self.blocked = self.blocked, {}
        for seq, is_copied in blocked.items():
            if is_copied:
                self._leave(seq, is_copied=True)
            elif not self._put_away(seq):
                self._ready_again(seq)

    def draw(self, jobs: SeqIndex, wanted: int) -> Sequence[int]:
        """Take the next jobs out of line, reclaimed ones first; no other claim gets them.

        They must be granted or put back. Takes about as long as there are jobs wanted. Fewer may
        come while `has_fresh` says that there are more.
        """
        drawn: Sequence[int] = self._draw_reclaimed(jobs, wanted) if self.reclaim else []
        self.claim_cursor = jobs.first_live(self.claim_cursor)
        passed_max = self.claim_cursor + DRAW_SLOTS_MAX
        while len(drawn) < wanted and self.has_fresh(jobs) and self.claim_cursor < passed_max:
            fresh, self.claim_cursor = next_live(jobs, self.claim_cursor, wanted - len(drawn))
            if fresh and fresh[0] <= self._out_upto:
                fresh = [seq for seq in fresh if self._is_fresh(seq)]
            drawn = [*drawn, *fresh] if drawn else fresh
        return drawn

    def _draw_reclaimed(self, jobs: SeqIndex, wanted: int) -> list[int]:
        drawn: list[int] = []
        reclaim = self.reclaim
        while reclaim and len(drawn) < wanted:
            seq = heapq.heappop(reclaim)
            if not jobs.is_live(seq):
                self.forget((seq,))
            elif not self._put_away(seq):
                drawn.append(seq)
        return drawn

    def _is_fresh(self, seq: int) -> bool:
        """Not out of line already, as after a restart, or because its time has not come."""
        return (
            seq not in self.leases
            and seq not in self.leaving
            and seq not in self.delays
            and seq not in self.scheduled
            and seq not in self.blocked
            and seq not in self.unreadable
            and not self._put_away(seq)
        )

    def set_aside(self, seqs: Iterable[int], *, put_away: bool) -> None:
        """Jobs that turned out to be damaged, drawn or held: out of line for good. They leave, to
        be put away, or stay for an operator to see. Their keys are free for the jobs behind."""
        for seq in seqs:
            if seq in self.leaving or (seq in self.unreadable and not put_away):
                continue
            deliveries = self.returned.get(seq)
            self.forget((seq,))
            self.note_out(seq)
            if deliveries is not None:
                self.returned[seq] = deliveries
            if put_away:
                self._leave(seq)
            else:
                self.unreadable[seq] = None

    def put_back(self, seqs: Iterable[int]) -> None:
        """Drawn and not granted after all."""
        for seq in seqs:
            heapq.heappush(self.reclaim, seq)

    def admit(self, seq: int, key: bytes | None) -> bool:
        """May this drawn job go out, as far as its key is concerned? If not, it is parked."""
        return key is None or self.keys is None or self.keys.hold(key, seq)

    def grant(
        self, seqs: Sequence[int], node: str, deadline_us: int, connection: int | None = None
    ) -> Grant:
        """Give drawn jobs to a worker, under a number larger than any before."""
        grant = Grant(self.next_lease_id, node, seqs, deadline_us, connection)
        self.next_lease_id += 1
        self._install(grant)
        return grant

    def take_back(self, grant: Grant) -> None:
        """A claim that no worker got, because the log refused it: no delivery counts."""
        seqs = self._held_by(grant)
        for seq in seqs:
            self._let_go(seq, grant)
            self._ready_again(seq)

    def _install(self, grant: Grant) -> None:
        if not grant.seqs:
            return
        self.leases.hold(grant.seqs, grant)
        self._deadlines.add(grant)
        if grant.connection is not None:
            self._connections.setdefault(grant.connection, set()).add(grant)

    # -- settling

    def ack(
        self, node: str, seqs: Iterable[int], lease_ids: Sequence[int] | None, now_us: int
    ) -> Verdict:
        """Jobs that are done. They leave; `gone` or `stays` says what became of it."""
        verdict = judge(self.leases, node, seqs, lease_ids, now_us)
        self.leases.move(self.leaving, verdict.taken)
        return verdict

    def nack(
        self,
        node: str,
        seqs: Iterable[int],
        lease_ids: Sequence[int] | None,
        now_us: int,
        delay_us: int = 0,
    ) -> Verdict:
        """Jobs given back, to be delivered again at once or after a delay."""
        verdict = judge(self.leases, node, seqs, lease_ids, now_us)
        for seq in verdict.taken:
            self._let_go(seq, self.leases[seq])
            self._return(seq, now_us + delay_us if delay_us else None)
        return verdict

    def extend(
        self,
        node: str,
        seqs: Iterable[int],
        lease_ids: Sequence[int] | None,
        now_us: int,
        deadline_us: int,
    ) -> Verdict:
        """Hold these jobs until another deadline, under the number they have."""
        verdict = judge(self.leases, node, seqs, lease_ids, now_us)
        moved: dict[Grant, list[int]] = {}
        for seq in verdict.taken:
            moved.setdefault(self.leases[seq], []).append(seq)
        for grant, some in moved.items():
            if len(some) == grant.held:
                self._deadlines.move(grant, deadline_us)
                continue
            for seq in some:
                self._let_go(seq, grant)
            self._install(Grant(grant.lease_id, node, some, deadline_us, grant.connection))
        return verdict

    def release(self, connection: int) -> Claims:
        """The connection ended: its jobs are ready again at once. Gives which they were."""
        released: Claims = {}
        for grant in sorted(self._connections.pop(connection, ()), key=lambda g: g.lease_id):
            for seq in self._held_by(grant):
                self._let_go(seq, grant)
                self._return(seq)
                released.setdefault(grant.lease_id, []).append(seq)
        return released

    def _held_by(self, grant: Grant) -> list[int]:
        return [seq for seq in grant.seqs if self.leases.get(seq) is grant]

    def _let_go(self, seq: int, grant: Grant) -> None:
        del self.leases[seq]
        self._lighten(grant)

    def _lighten(self, grant: Grant, count: int = 1) -> None:
        """So many jobs fewer; the last one takes the grant with it."""
        grant.held -= count
        if not grant.held:
            self._deadlines.note_stale()
            if grant.connection is not None:
                owned = self._connections.get(grant.connection)
                if owned is not None:
                    owned.discard(grant)
                    if not owned:
                        del self._connections[grant.connection]

    def _return(self, seq: int, ready_us: int | None = None) -> None:
        """A delivery came to nothing."""
        self.returned[seq] = self.returned.get(seq, 0) + 1
        if self._put_away(seq):
            return
        if ready_us is None:
            self._ready_again(seq)
        else:
            self.delays.add(seq, ready_us)

    def _ready_again(self, seq: int) -> None:
        if seq < self.claim_cursor:  # otherwise the cursor will come to it
            heapq.heappush(self.reclaim, seq)

    def _put_away(self, seq: int) -> bool:
        """True when it was delivered often enough: it leaves instead of being ready."""
        if not self.deliveries_max or self.returned.get(seq, 0) < self.deliveries_max:
            return False
        self._leave(seq)
        return True

    def _leave(self, seq: int, *, is_copied: bool = False) -> None:
        self.leaving[seq] = None
        self._exhausted.append(ExhaustedJob(seq, self.returned.get(seq, 0), is_copied))

    # -- leaving

    @property
    def has_exhausted(self) -> bool:
        """There may be jobs to dead-letter."""
        return bool(self._exhausted)

    def take_exhausted(self) -> list[ExhaustedJob]:
        """Jobs to dead-letter since the last time; each must be `gone` or `stays` later."""
        dying, self._exhausted = self._exhausted, []
        return [job for job in dying if job.seq in self.leaving]

    def block(self, seq: int, retry_us: int, *, is_copied: bool) -> None:
        """A job that could not be dead-lettered: no worker gets it until that is tried again. The
        next job of its key need not wait for it."""
        if seq in self.leaving and self.leaving.pop(seq) is None:
            self.blocked[seq] = is_copied
            self._retry_us = retry_us
            self._free_key(seq)

    def retry_blocked(self) -> None:
        """The rules have changed: try at the next sweep."""
        self._retry_us = 0

    def gone(self, seqs: list[int]) -> None:
        """These jobs are deleted for good."""
        known = self.returned or self.unreadable or len(self.delays) or len(self.scheduled)
        if known or self.keys is not None:
            self.forget(seqs)
            return
        # Nothing else is known of them: most jobs are delivered once and acked.
        one = self.leaving.let_go_together(seqs)  # a claim is mostly acked as one
        if one is not None:
            self._lighten(one, len(seqs))
            return
        for grant, count in Counter([self.leaving.pop(seq) for seq in seqs]).items():
            if grant is not None:
                self._lighten(grant, count)

    def stays(self, seqs: Iterable[int], now_us: int) -> None:
        """The log refused the delete: held as before, if the time is not over."""
        for seq in seqs:
            if seq not in self.leaving:
                continue
            grant = self.leaving.pop(seq)
            if grant is None:
                self._ready_again(seq)
            elif now_us > grant.deadline_us:
                self._lighten(grant)
                self._return(seq)
            else:
                self.leases[seq] = grant

    def forget(self, seqs: Iterable[int]) -> None:
        """Jobs that are not there any more, whatever deleted them."""
        for seq in seqs:
            grant = self.leases.pop(seq) or self.leaving.pop(seq)
            if grant is not None:
                self._lighten(grant)
            self.returned.pop(seq, None)
            self.blocked.pop(seq, None)
            self.unreadable.pop(seq, None)
            self.delays.discard(seq)
            self.scheduled.discard(seq)
            self._free_key(seq)

    def _free_key(self, seq: int) -> None:
        heir = None if self.keys is None else self.keys.free(seq)
        if heir is not None:
            heapq.heappush(self.reclaim, heir)

    def forget_below(self, floor: int) -> None:
        """Everything below this seq is gone: costs what is out of line, not what was dropped."""
        kept = (*self.blocked, *self.unreadable)
        out = (self.leases, self.leaving, self.returned, kept, self.delays.seqs())
        seqs = {seq for group in out for seq in group if seq < floor}
        self.forget(sorted(seqs.union(s for s in self.scheduled.seqs() if s < floor)))

    # -- rules

    def schedule(self, seq: int, deliver_at_ms: int) -> None:
        """A new job that may not be delivered before this time."""
        self.scheduled.add(seq, deliver_at_ms)
        self.note_out(seq)

    def note_out(self, seq: int) -> None:
        """This job is out of line, and the cursor may not have met it yet."""
        self._out_upto = max(self._out_upto, seq)

    def hold_again(self, grant: Grant) -> None:
        """A claim of an earlier life that still holds."""
        self._install(grant)
        self.note_out(max(grant.seqs))
        self.next_lease_id = max(self.next_lease_id, grant.lease_id + 1)

    def keep_order(self, by_key: bool) -> None:
        """Deliver the jobs of a key one at a time, or not."""
        if by_key and self.keys is None:
            self.keys = FifoKeys()
            self.keys_known = not self.unkeyed_seqs()
        elif not by_key and self.keys is not None:
            self.put_back(self.keys.let_go())
            self.keys = None
            self.keys_known = True

    def unkeyed_seqs(self) -> list[int]:
        """Jobs that have been out before and may hold a key that is not known: after a restart,
        or after a change of rules."""
        out = {*self.leases, *self.leaving, *self.delays.seqs()}
        return sorted(out)

    def learn_keys(self, keys: Mapping[int, bytes | None]) -> None:
        """The keys of the jobs that `unkeyed_seqs` named, as far as they are still there."""
        if self.keys is not None:
            for seq in self.unkeyed_seqs():
                key = keys.get(seq)
                if key is not None:
                    self.keys.adopt(key, seq)
        self.keys_known = True
