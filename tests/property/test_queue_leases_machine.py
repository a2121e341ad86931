"""The leases of a queue against a dict of jobs, in any order of events, clocks jumping about."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headwater.format.control_frames import LeaseEvent, LeaseKind
from headwater.model.index import SeqIndex
from headwater.model.queue import LeaseHistory, QueueLeases, leases
from headwater.model.queue.history import remember, resume
from headwater.model.slots import as_run
from tests.property.naive_queue import BLOCKED, GONE, HELD, LEAVING, READY, NaiveJob, NaiveQueue

OVERHEAD = 38
NODES = ("one", "two")
KEYS = (None, b"a", b"b")
nodes = st.sampled_from(NODES)
picks = st.lists(st.integers(0, 30), min_size=1, max_size=6)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(leases, "DRAW_SLOTS_MAX", 3)
        self.index = SeqIndex()
        self.queue = QueueLeases()
        self.naive = NaiveQueue()
        self.now_us = 1_000_000
        self.wall_ms = 1_700_000_000_000
        self.history = LeaseHistory()
        self.keys: dict[int, bytes | None] = {}
        self.fences: dict[int, int] = {}

    def teardown(self) -> None:
        self._patch.undo()

    @initialize(by_key=st.booleans(), deliveries_max=st.sampled_from((0, 0, 1, 2)))
    def begin(self, by_key: bool, deliveries_max: int) -> None:
        self.set_rules(by_key, deliveries_max)

    def set_rules(self, by_key: bool, deliveries_max: int) -> None:
        self.queue.keep_order(by_key)
        self.queue.deliveries_max = deliveries_max
        self.naive.by_key, self.naive.deliveries_max = by_key, deliveries_max

    def log(self, kind: LeaseKind, seqs: list[int], **fields: Any) -> None:
        self.history.apply(LeaseEvent(kind, tuple(seqs), **fields), self.wall_ms)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    def write(self, keys: list[bytes | None]) -> None:
        for key in keys:
            seq = self.index.next_seq
            self.index.append_one(OVERHEAD, self.wall_ms, 0)
            self.keys[seq] = key
            self.naive.jobs[seq] = NaiveJob(seq, key)

    @rule(in_ms=st.integers(1, 80))
    def write_for_later(self, in_ms: int) -> None:
        self.write([None])
        seq = self.index.next_seq - 1
        self.queue.schedule(seq, self.wall_ms + in_ms)
        self.naive.jobs[seq].not_before_ms = self.wall_ms + in_ms
        self.log(LeaseKind.APPOINTED, [seq], times=(self.wall_ms + in_ms,))

    @rule(ms=st.integers(0, 60))
    def wait(self, ms: int) -> None:
        self.now_us += ms * 1_000
        self.wall_ms += ms

    # -- claiming

    def _draw(self, wanted: int) -> list[int]:
        """As a pass does it: again and again until there is enough or no more."""
        granted: list[int] = []
        while True:
            drawn = self.queue.draw(self.index, wanted - len(granted))
            granted += [seq for seq in drawn if self.queue.admit(seq, self.keys[seq])]
            if len(granted) == wanted or not (self.queue.reclaim or self._more()):
                return granted

    def _more(self) -> bool:
        return self.queue.has_fresh(self.index)

    @rule(
        node=nodes,
        wanted=st.integers(1, 12),
        ms=st.sampled_from((1, 20, 50)),
        connection=st.sampled_from((None, None, 7, 8)),
    )
    def claim(self, node: str, wanted: int, ms: int, connection: int | None) -> None:
        naive = self.naive
        self.queue.sweep(self.now_us, self.wall_ms)
        naive.sweep(self.now_us, self.wall_ms)
        seqs = self._draw(wanted)
        expected = [job.seq for job in naive.claim(wanted)]
        assert sorted(seqs) == sorted(expected)
        if not seqs:
            return
        deadline = self.now_us + ms * 1_000
        run = as_run(seqs)  # as a draw gives neighbours when there are more of them
        grant = self.queue.grant(seqs if run is None else run, node, deadline, connection)
        naive.lease_id += 1
        assert grant.lease_id == naive.lease_id
        for seq in seqs:
            job = naive.jobs[seq]
            job.place, job.node, job.until_us = HELD, node, deadline
            job.connection, job.lease_id = connection, grant.lease_id
            job.deliveries += 1
            assert self.queue.deliveries(seq) == job.deliveries
            assert grant.lease_id > self.fences.get(seq, 0), "a fence grows with every claim"
            self.fences[seq] = grant.lease_id
        self.log(
            LeaseKind.CLAIMED,
            seqs,
            node=node,
            lease_id=grant.lease_id,
            span_ms=ms,
            connected=connection is not None,
        )

    # -- settling

    def _judged(
        self, node: str, chosen: list[int], fence: int | None
    ) -> tuple[list[int], list[int] | None, list[NaiveJob]]:
        """Some seqs, the fences named with them, and which of the jobs that should touch."""
        seqs = [1 + pick for pick in chosen]
        lease_ids = None
        if fence is not None:
            known = [self.naive.jobs.get(seq) for seq in seqs]
            lease_ids = [(job.lease_id if job else 0) - fence for job in known]
        touched: list[NaiveJob] = []
        for seq in seqs:
            job = self.naive.jobs.get(seq)
            mine = job is not None and job.place == HELD and job.node == node
            if job and mine and not fence and self.now_us <= job.until_us and job not in touched:
                touched.append(job)
        return seqs, lease_ids, touched

    @rule(node=nodes, chosen=picks, fence=st.sampled_from((None, None, 0, 1)))
    def ack(self, node: str, chosen: list[int], fence: int | None) -> None:
        seqs, lease_ids, touched = self._judged(node, chosen, fence)
        verdict = self.queue.ack(node, seqs, lease_ids, self.now_us)
        assert verdict.taken == [job.seq for job in touched]
        assert len(verdict.taken) + len(verdict.skipped) == len(seqs)
        for job in touched:
            job.place = LEAVING

    @rule(
        node=nodes,
        chosen=picks,
        fence=st.sampled_from((None, None, 0, 1)),
        delay_ms=st.sampled_from((0, 0, 5, 40)),
    )
    def nack(self, node: str, chosen: list[int], fence: int | None, delay_ms: int) -> None:
        seqs, lease_ids, touched = self._judged(node, chosen, fence)
        verdict = self.queue.nack(node, seqs, lease_ids, self.now_us, delay_ms * 1_000)
        assert verdict.taken == [job.seq for job in touched]
        for lease_id, some in verdict.claims.items():
            self.log(LeaseKind.RETURNED, some, lease_id=lease_id, span_ms=delay_ms)
        for job in touched:
            self.naive.back(job, self.now_us + delay_ms * 1_000 if delay_ms else 0)

    @rule(node=nodes, chosen=picks, ms=st.sampled_from((1, 30, 90)))
    def extend(self, node: str, chosen: list[int], ms: int) -> None:
        seqs, _, touched = self._judged(node, chosen, None)
        deadline = self.now_us + ms * 1_000
        verdict = self.queue.extend(node, seqs, None, self.now_us, deadline)
        assert verdict.taken == [job.seq for job in touched]
        for lease_id, some in verdict.claims.items():
            self.log(LeaseKind.EXTENDED, some, lease_id=lease_id, span_ms=ms)
        for job in touched:
            job.until_us = deadline

    @rule(connection=st.sampled_from((7, 8)))
    def connection_ends(self, connection: int) -> None:
        released = self.queue.release(connection)
        for lease_id, some in released.items():
            self.log(LeaseKind.RETURNED, some, lease_id=lease_id)
        held = [job for job in self.naive.in_place(HELD) if job.connection == connection]
        assert sorted(seq for some in released.values() for seq in some) == [
            job.seq for job in held
        ]
        for job in held:
            self.naive.back(job, 0)

    # -- leaving

    def _delete(self, job: NaiveJob) -> None:
        self.index.mark_deleted(numpy.array([job.seq]))
        self.history.forget(job.seq)
        job.place, job.has_key = GONE, False
        job.not_before_us = job.not_before_ms = 0

    @precondition(lambda self: self.queue.leaving)
    @rule()
    def the_log_has_the_deletes(self) -> None:
        self.take_exhausted()
        leaving = self.naive.in_place(LEAVING)
        for job in leaving:
            self._delete(job)
        self.queue.gone([job.seq for job in leaving])

    @precondition(lambda self: self.queue.leaving)
    @rule()
    def the_log_refuses_the_deletes(self) -> None:
        self.take_exhausted()
        leaving = self.naive.in_place(LEAVING)
        self.queue.stays([job.seq for job in leaving], self.now_us)
        for job in leaving:
            if job.dying:
                job.place, job.dying = READY, False
            elif self.now_us > job.until_us:
                self.naive.back(job, 0)
            else:
                job.place = HELD

    @rule()
    def take_exhausted(self) -> None:
        expected, self.naive.dying = self.naive.dying, []
        expected = [(seq, n) for seq, n in expected if self.naive.jobs[seq].place == LEAVING]
        assert sorted(job[:2] for job in self.queue.take_exhausted()) == sorted(expected)

    @precondition(lambda self: any(job.dying for job in self.naive.in_place(LEAVING)))
    @rule(retry_ms=st.integers(0, 60))
    def the_dead_letters_are_refused(self, retry_ms: int) -> None:
        self.take_exhausted()
        self.naive.retry_us = self.now_us + retry_ms * 1_000
        for job in self.naive.in_place(LEAVING):
            if job.dying:
                self.queue.block(job.seq, self.naive.retry_us, is_copied=False)
                job.place, job.dying, job.has_key = BLOCKED, False, False

    @rule(pick=st.integers(1, 30))
    def somebody_deletes_a_job(self, pick: int) -> None:
        job = self.naive.jobs.get(pick)
        if job is not None and job.place != GONE:
            self._delete(job)
            self.queue.forget([job.seq])

    @rule(floor=st.integers(1, 12))
    def the_topic_loses_its_oldest(self, floor: int) -> None:
        floor = min(floor, self.index.next_seq)
        for job in self.naive.jobs.values():
            if job.seq < floor and job.place != GONE:
                self._delete(job)
        self.index.drop_before(floor)
        self.queue.forget_below(floor)

    # -- over a restart

    @rule(away_ms=st.integers(0, 100), jump_ms=st.sampled_from((0, 0, -3_600_000, 3_600_000)))
    def restart_with_durable_leases(self, away_ms: int, jump_ms: int) -> None:
        """The log told everything; monotonic time begins anew, the wall clock may have jumped."""
        spans = {seq: terms.span_ms for seq, terms in self.history.leases.items()}
        self._restart(away_ms, jump_ms, spans)

    @rule(away_ms=st.integers(0, 100), jump_ms=st.sampled_from((0, -3_600_000, 3_600_000)))
    def restart_from_a_snapshot(self, away_ms: int, jump_ms: int) -> None:
        meta = remember(self.queue, self.now_us, self.wall_ms, durable=True)
        self.history = LeaseHistory.since(meta)
        for seq, terms in self.history.leases.items():
            assert terms.until_ms == self.wall_ms + terms.span_ms, seq
        self._restart(away_ms, jump_ms, {s: t.span_ms for s, t in self.history.leases.items()})

    def _restart(self, away_ms: int, jump_ms: int, spans: dict[int, int]) -> None:
        meta = self.history.meta()
        self.wall_ms += away_ms + jump_ms
        self.now_us = 77_000
        queue = QueueLeases()
        queue.keep_order(self.naive.by_key)
        queue.deliveries_max = self.naive.deliveries_max
        resume(queue, meta, self.now_us, self.wall_ms)
        if not queue.keys_known:
            queue.learn_keys({seq: self.keys[seq] for seq in queue.unkeyed_seqs()})
        self.queue = queue
        self.naive.dying = []
        for job in self.naive.jobs.values():
            if job.place != GONE:
                self._naive_restart(job, meta.grants, spans)
        self.naive.lease_id = queue.next_lease_id - 1
        # What the log holds from here on begins with what was just read back.
        self.history = LeaseHistory.since(remember(queue, self.now_us, self.wall_ms, durable=True))

    def _naive_restart(self, job: NaiveJob, grants: Any, spans: dict[int, int]) -> None:
        """What the log says is what counts; a connection did not survive, a deadline may not."""
        held = next((grant for grant in grants if job.seq in grant.seqs), None)
        job.passed = job.dying = False
        if held is None:
            assert job.place in (READY, LEAVING, BLOCKED)
            job.place, job.connection = READY, None
        else:
            left_ms = min(held.until_ms - self.wall_ms, spans[job.seq])
            job.place, job.until_us = HELD, self.now_us + left_ms * 1_000
            if left_ms < 0 or held.connected:
                job.place, job.connection, job.until_us = READY, None, 0
        job.not_before_ms = self.history.scheduled.get(job.seq, 0)
        delay = self.history.delays.get(job.seq)
        if delay is not None:
            left_ms = min(delay.until_ms - self.wall_ms, delay.span_ms)
            job.not_before_us = self.now_us + max(left_ms, 0) * 1_000
        else:
            job.not_before_us = 0
        job.has_key = (
            self.naive.by_key and job.key is not None and (job.place == HELD or delay is not None)
        )

    # -- what always holds

    @invariant()
    def counts_are_those_of_the_twin(self) -> None:
        out = self.naive.in_place(HELD) + self.naive.in_place(LEAVING)
        assert self.queue.in_flight == len(out)
        assert sorted(self.queue.leases) == [job.seq for job in self.naive.in_place(HELD)]
        assert sorted(self.queue.blocked) == [job.seq for job in self.naive.in_place(BLOCKED)]
        assert self.queue.ready(self.index) == len(self.naive.ready)

    @invariant()
    def a_key_is_out_once(self) -> None:
        if self.naive.by_key:
            held = [job.key for job in self.naive.in_place(HELD) if job.key is not None]
            assert len(held) == len(set(held))

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        places = [*self.queue.leases, *self.queue.leaving, *self.queue.delays.seqs()]
        places += self.queue.blocked
        places += [seq for seq in self.queue.reclaim if self.index.is_live(seq)]
        assert len(places) == len(set(places))


QueueMachine.TestCase.settings = hypothesis_settings(
    max_examples=200, stateful_step_count=50, deadline=None
)


@pytest.mark.claims(383, 384, 385, 386, 387, 388, 390, 393, 394, 395, 398)
class TestQueueAgainstADict(QueueMachine.TestCase):  # type: ignore[misc, valid-type]
    pass
