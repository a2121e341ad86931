"""The leases of a queue as they are in the log: event by event, in wall clock time.

What must be in the log depends on the queue:

| event | written |
|---|---|
| claimed, returned, extended | when `leases_durable` |
| scheduled, dead lettered | always: the client requested them |
| numbered | before a number is used that no frame covers: a fence is never used twice |
| acked, dropped | as the delete of the record, always |

A deadline that passes is no event: replay sees it in the times. Wall clock
times are only used over a restart, and then at most for the span that was promised: a clock that
was set back in between holds no job longer than its lease, one that was set forward only ends a
lease early, which a worker must live with anyway.

A snapshot may know more than the frames it covers: leases take effect before the log has them.
So an event that the snapshot has seen already changes nothing, as the number of its claim shows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from headwater.core.units import US_PER_MS
from headwater.format.control_frames import (
    DelayMeta,
    GrantMeta,
    LeaseEvent,
    LeaseKind,
    QueueMeta,
)
from headwater.model.queue.grant import Grant
from headwater.model.queue.leases import QueueLeases


class _LeaseTerms(NamedTuple):
    lease_id: int
    node: str
    until_ms: int
    span_ms: int
    connected: bool


class _Outlook(NamedTuple):
    """When what is out comes back by itself, in order: ms of real time after a start, except for
    scheduled delivery, which is about the calendar."""

    opened_ms: int
    leases: list[int]
    delays: list[int]
    scheduled: list[int]


class LeaseHistory(msgspec.Struct):
    seen_lease_id: int = 0
    """Claims up to this number are in the snapshot already, with all that became of them."""
    next_lease_id: int = 1
    dead_lettered: int = 0
    leases: dict[int, _LeaseTerms] = msgspec.field(default_factory=dict)
    returned: dict[int, int] = msgspec.field(default_factory=dict)
    delays: dict[int, DelayMeta] = msgspec.field(default_factory=dict)
    scheduled: dict[int, int] = msgspec.field(default_factory=dict)
    ceiling: int = 0
    """Numbers up to here may have been used by claims that are in no log."""
    _outlook: _Outlook | None = None

    @classmethod
    def since(cls, meta: QueueMeta) -> LeaseHistory:
        """Go on from what a snapshot says."""
        history = cls(meta.next_lease_id - 1, meta.next_lease_id, meta.dead_lettered)
        history.ceiling = meta.ceiling
        for grant in meta.grants:
            terms = _LeaseTerms(
                grant.lease_id, grant.node, grant.until_ms, grant.span_ms, grant.connected
            )
            history.leases.update(dict.fromkeys(grant.seqs, terms))
        history.returned.update(meta.returned)
        history.delays.update((delay.seq, delay) for delay in meta.delays)
        history.scheduled.update(meta.scheduled)
        return history

    def apply(self, event: LeaseEvent, ts: int) -> None:
        """The next event of the log, with the time of its frame."""
        self._outlook = None
        match event.kind:
            case LeaseKind.CLAIMED:
                self._claimed(event, ts)
            case LeaseKind.RETURNED:
                self._returned(event, ts)
            case LeaseKind.EXTENDED:
                for seq in event.seqs:
                    terms = self.leases.get(seq)
                    if terms is not None and terms.lease_id == event.lease_id:
                        until_ms = ts + event.span_ms
                        self.leases[seq] = terms._replace(until_ms=until_ms, span_ms=event.span_ms)
            case LeaseKind.APPOINTED:
                self.scheduled.update(zip(event.seqs, event.times, strict=True))
            case LeaseKind.DEAD_LETTERED:
                # A snapshot may count letters whose frames it does not cover, so each event has
                # the count up to it. Events of version 0.1.0 and before do not.
                count = event.lease_id or self.dead_lettered + len(event.seqs)
                self.dead_lettered = max(self.dead_lettered, count)
                for seq in event.seqs:
                    self.forget(seq)
            case LeaseKind.NUMBERED:
                self.ceiling = max(self.ceiling, event.lease_id)

    def _claimed(self, event: LeaseEvent, ts: int) -> None:
        terms = _LeaseTerms(
            event.lease_id, event.node, ts + event.span_ms, event.span_ms, event.connected
        )
        self.next_lease_id = max(self.next_lease_id, event.lease_id + 1)
        if event.lease_id <= self.seen_lease_id:
            return
        for seq in event.seqs:
            if seq in self.leases:  # it ran out, or no worker could have claimed it again
                self.returned[seq] = self.returned.get(seq, 0) + 1
            self.leases[seq] = terms
            self.delays.pop(seq, None)
            self.scheduled.pop(seq, None)

    def _returned(self, event: LeaseEvent, ts: int) -> None:
        for seq in event.seqs:
            terms = self.leases.get(seq)
            if terms is None or terms.lease_id != event.lease_id:
                continue
            del self.leases[seq]
            self.returned[seq] = self.returned.get(seq, 0) + 1
            if event.span_ms:
                self.delays[seq] = DelayMeta(seq, ts + event.span_ms, event.span_ms)

    def forget(self, seq: int) -> None:
        """The job is gone."""
        self._outlook = None
        self.leases.pop(seq, None)
        self.returned.pop(seq, None)
        self.delays.pop(seq, None)
        self.scheduled.pop(seq, None)

    def schedule(self, scheduled: Mapping[int, int]) -> None:
        self._outlook = None
        self.scheduled.update(scheduled)

    def out(
        self, opened_ms: int, passed_ms: int, calendar_ms: int, *, held: bool
    ) -> tuple[int, int]:
        """How many jobs are leased and how many kept back so long after a start, by the rules of
        `resume`; `held` when leases are durable. It is made ready for once, then costs little."""
        outlook = self._outlook
        if outlook is None or outlook.opened_ms != opened_ms:
            leases = [
                min(terms.until_ms - opened_ms, terms.span_ms)
                for terms in self.leases.values()
                if not terms.connected
            ]
            delays = [min(each.until_ms - opened_ms, each.span_ms) for each in self.delays.values()]
            scheduled = sorted(self.scheduled.values())
            self._outlook = outlook = _Outlook(opened_ms, sorted(leases), sorted(delays), scheduled)
        waiting = len(outlook.scheduled) - bisect_right(outlook.scheduled, calendar_ms)
        if not held:
            return 0, waiting
        # A lease holds up to and with its deadline, a delay is over at its time.
        leased = len(outlook.leases) - bisect_left(outlook.leases, passed_ms)
        return leased, waiting + len(outlook.delays) - bisect_right(outlook.delays, passed_ms)

    def seqs(self) -> set[int]:
        """Every job this history knows something of."""
        return {*self.leases, *self.returned, *self.delays, *self.scheduled}

    def keep(self, is_live: Callable[[int], bool], *, held: bool = True) -> None:
        """Forget every job that is not there any more; and, when leases are durable no longer, who
        held them: what became of that was not logged."""
        if not held:
            self.leases.clear()
            self.delays.clear()
        for seq in self.seqs():
            if not is_live(seq):
                self.forget(seq)

    def meta(self) -> QueueMeta:
        together: dict[_LeaseTerms, list[int]] = {}
        for seq, terms in self.leases.items():
            together.setdefault(terms, []).append(seq)
        return QueueMeta(
            self.next_lease_id,
            self.dead_lettered,
            tuple(GrantMeta(*terms, tuple(sorted(seqs))) for terms, seqs in together.items()),
            tuple(sorted(self.returned.items())),
            tuple(self.delays[seq] for seq in sorted(self.delays)),
            tuple(sorted(self.scheduled.items())),
            self.ceiling,
        )


def remember(
    queue: QueueLeases, now_us: int, wall_ms: int, *, durable: bool, ceiling: int = 0
) -> QueueMeta:
    """What a snapshot says of a live queue; without durable leases, only what was promised."""
    if not durable:
        return QueueMeta(
            queue.next_lease_id,
            queue.dead_lettered,
            scheduled=tuple(queue.scheduled.items()),
            ceiling=ceiling,
        )
    held: dict[Grant, list[int]] = {}
    for seq, grant in queue.leases.items():
        held.setdefault(grant, []).append(seq)
    for seq, leaving in queue.leaving.items():
        if leaving is not None:  # still held, as far as the log knows
            held.setdefault(leaving, []).append(seq)
    grants = []
    for grant, seqs in held.items():
        left_ms = max(grant.deadline_us - now_us, 0) // US_PER_MS
        connected = grant.connection is not None
        terms = _LeaseTerms(grant.lease_id, grant.node, wall_ms + left_ms, left_ms, connected)
        grants.append(GrantMeta(*terms, tuple(sorted(seqs))))
    delays = []
    for seq, ready_us in queue.delays.items():
        left_ms = max(ready_us - now_us, 0) // US_PER_MS
        delays.append(DelayMeta(seq, wall_ms + left_ms, left_ms))
    return QueueMeta(
        queue.next_lease_id,
        queue.dead_lettered,
        tuple(sorted(grants, key=lambda grant: (grant.lease_id, grant.seqs))),
        tuple(sorted(queue.returned.items())),
        tuple(delays),
        tuple(queue.scheduled.items()),
        ceiling,
    )


def resume(queue: QueueLeases, meta: QueueMeta, now_us: int, wall_ms: int) -> None:
    """Give a new queue the state from log and snapshot. Only live jobs may be named."""
    queue.next_lease_id = max(queue.next_lease_id, meta.next_lease_id, meta.ceiling + 1)
    queue.dead_lettered = meta.dead_lettered
    queue.returned.update(meta.returned)
    for seq, _ in meta.returned:
        queue.note_out(seq)
    for held in meta.grants:
        left_us = _left_us(held.until_ms, held.span_ms, wall_ms)
        if left_us < 0 or held.connected:
            for seq in held.seqs:  # ran out, or ended with its connection, in between
                queue.returned[seq] = queue.returned.get(seq, 0) + 1
                queue.note_out(seq)
            continue
        queue.hold_again(Grant(held.lease_id, held.node, list(held.seqs), now_us + left_us, None))
    for delay in meta.delays:
        left_us = max(_left_us(delay.until_ms, delay.span_ms, wall_ms), 0)
        queue.delays.add(delay.seq, now_us + left_us)
        queue.note_out(delay.seq)
    for seq, deliver_at_ms in meta.scheduled:
        queue.schedule(seq, deliver_at_ms)
    queue.keys_known = queue.keys is None or not queue.unkeyed_seqs()


def _left_us(until_ms: int, span_ms: int, wall_ms: int) -> int:
    return min(until_ms - wall_ms, span_ms) * US_PER_MS
