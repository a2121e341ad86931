"""Queues over HTTP: producers, and workers that ack, give back, hold longer, or forget jobs.

The ledger has what the server answered workers: who holds which job until when, and what was acked.
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

import http.client
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

from headwater.testing.torture.actor import AWAY_PAUSE_S, Actor, LedgerCheck, Load
from headwater.testing.torture.http_client import (
    HttpClient,
    HttpReply,
    NoReplyError,
    NotSentError,
    topic_path,
)
from headwater.testing.torture.outcome import RunOutcome
from headwater.testing.torture.reading import pages, pushed, read_topic, stored
from headwater.testing.torture.topic_ledger import LedgerWrite, Stored, TopicLedger, shortened
from headwater.testing.torture.topics import body_of, send_write


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


DEAD_LETTERS: Final = "q-dead"
WEEK_MS: Final = 604_800_000
LEASE_MS: Final = 1_500
BATCH_MAX: Final = 10
FIFO_TAGS: Final = ("a", "b", "c", "d", "e", "f")
DRAIN_S: Final = 30.0
PUSHED_SILENCE_S: Final = 20.0
"""Between two signs of life of a stream of jobs."""


@dataclass(frozen=True, slots=True)
class JobKind:
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    workers: int = 2
    is_pushed: bool = False
    """Has a worker, too, whose jobs come as server-sent events."""

    @property
    def is_fifo(self) -> bool:
        return "fifo_key" in self.settings


KINDS: Final = (
    JobKind("q-plain", is_pushed=True),
    JobKind("q-letters", {"max_deliveries": 3, "dead_letter": DEAD_LETTERS}),
    JobKind("q-fifo", {"fifo_key": "tag"}),
    JobKind("q-lasting", {"leases_durable": True}, workers=1),
)


def lease_of(
    job: Mapping[str, Any], node: str, sent_at: float, answered_at: float, lease_ms: int
) -> Lease:
    return Lease(
        int(job["$seq"]), node, int(job["lease_id"]), int(job["deliveries"]), sent_at, answered_at,
        lease_ms / 1_000, job.get("$tag"),
    )  # fmt: skip


class QueueActor(Actor):
    name = "queues"

    def __init__(self, kinds: tuple[JobKind, ...] = KINDS) -> None:
        self._kinds = kinds
        self.ledgers = {
            kind.name: QueueLedger(
                TopicLedger(kind.name), kind.settings.get("max_deliveries", 0), is_fifo=kind.is_fifo
            )
            for kind in kinds
        }
        self._turns = itertools.count(1)
        self._letters_known: dict[str, set[int]] = {}

    def prepare(self, load: Load) -> None:
        topics: dict[str, dict[str, Any]] = {DEAD_LETTERS: {"idempotency_window_ms": WEEK_MS}}
        for kind in self._kinds:
            topics[kind.name] = {"type": "queue", "lease_ms": LEASE_MS, **kind.settings}
        with load.client() as client:
            for name, settings in topics.items():
                client.make(topic_path(name), settings)

    def begin(self, load: Load) -> None:
        for kind in self._kinds:
            self.ledgers[kind.name].restart()
            self.ledgers[kind.name].is_server_leaving = load.server_left.is_set
            producer = f"{kind.name}/{load.round}"
            load.begin_steps(producer, partial(self._produce, load, kind, producer), pause_s=0.02)
            for number in range(kind.workers):
                node = f"{kind.name}/worker-{number}/{load.round}"
                load.begin_steps(node, partial(self._work, load, kind, node))
        for kind in self._kinds:
            if kind.is_pushed:
                load.begin(f"{kind.name}/pushed", partial(self._be_pushed_to, load, kind))

    def lose_power(self, since: float) -> None:
        for ledger in self.ledgers.values():
            ledger.lose_power(since)

    # -- the load

    def _produce(
        self, load: Load, kind: JobKind, producer: str, client: HttpClient, random: Random
    ) -> None:
        ledger = self.ledgers[kind.name].topic
        turn = next(self._turns)
        count = random.choice((1, 1, 3, BATCH_MAX))
        tags = tuple(random.choice(FIFO_TAGS) for _ in range(count))
        write = LedgerWrite(f"{kind.name}.{turn}", tags, producer, turn, time.monotonic())
        send_write(load, ledger, write, client, body_of(write, 20))

    def _work(
        self, load: Load, kind: JobKind, node: str, client: HttpClient, random: Random
    ) -> None:
        lease_ms = random.choice((200, 1_000, 5_000))
        leases = self._claim(load, kind, node, client, random.randint(1, BATCH_MAX), lease_ms)
        for lease in leases:
            fate = random.random()
            if fate < 0.7:
                self._ack(load, kind, lease, client)
            elif fate < 0.85:
                self._give_back(load, kind, lease, client, random.choice((0, 0, 50)))
            elif fate < 0.95:
                self._hold_longer(load, kind, lease, client, 3_000)
                self._ack(load, kind, lease, client)
            # Else the worker forgets it, and its lease runs out.

    def _be_pushed_to(self, load: Load, kind: JobKind) -> None:
        """A worker whose jobs come by themselves, and are free when it hangs up."""
        random = load.random(kind.name, "pushed")
        client = load.client()
        path = topic_path(kind.name, f"/work?max={BATCH_MAX}&lease_ms={LEASE_MS}&node=")
        for number in itertools.count():
            if load.stop.is_set():
                break
            node = f"pushed-{load.round}-{number}"
            try:
                self._work_pushed(load, kind, node, path + node, client, random)
            except (OSError, http.client.HTTPException, NoReplyError, NotSentError):
                load.stop.wait(AWAY_PAUSE_S)
        client.close()

    def _work_pushed(
        self,
        load: Load,
        kind: JobKind,
        node: str,
        path: str,
        client: HttpClient,
        random: Random,
    ) -> None:
        ledger = self.ledgers[kind.name]
        held: list[Lease] = []
        requested_at, left = time.monotonic(), random.randint(5, 100)
        with closing(pushed(load, path, PUSHED_SILENCE_S)) as stream:
            try:
                for name, data in stream:
                    if name != "job":
                        continue
                    job = json.loads(data)
                    # It was given at some time since the stream was asked for, and no earlier.
                    lease = lease_of(job, node, requested_at, time.monotonic(), LEASE_MS)
                    lease.is_pushed = True
                    held.append(lease)
                    ledger.claimed(lease, stored(job))
                    load.tally.add("jobs pushed")
                    if random.random() < 0.9:
                        self._ack(load, kind, lease, client)
                    left -= 1
                    if not left:
                        return
            finally:
                for lease in held:
                    ledger.release(lease)  # before the server sees the end of the stream

    def _claim(
        self, load: Load, kind: JobKind, node: str, client: HttpClient, count: int, lease_ms: int
    ) -> list[Lease]:
        sent_at = time.monotonic()
        body = {"node": node, "max": count, "lease_ms": lease_ms, "wait_ms": 50}
        answer = client.post(topic_path(kind.name, "/claim"), body)
        answered_at = time.monotonic()
        if not answer.is_ok:
            return []
        ledger = self.ledgers[kind.name]
        leases = []
        for job in answer.body["claimed"]:
            lease = lease_of(job, node, sent_at, answered_at, lease_ms)
            ledger.claimed(lease, stored(job))
            leases.append(lease)
        load.tally.add("jobs delivered", len(leases))
        return leases

    def _ack(self, load: Load, kind: JobKind, lease: Lease, client: HttpClient) -> None:
        ledger = self.ledgers[kind.name]
        ledger.release(lease)
        ledger.topic.remove(lease.seq, RunOutcome.PENDING, time.monotonic())
        answer = self._finish_lease(kind, lease, client, "/ack")
        if answer.is_ok:
            is_skipped = lease.seq in answer.body["skipped"]
            ledger.resolve_ack(lease, is_skipped=is_skipped, at=time.monotonic())
            load.tally.add("jobs late" if is_skipped else "jobs acked")
        elif answer.is_refusal:
            ledger.topic.keep(lease.seq)

    def _give_back(
        self, load: Load, kind: JobKind, lease: Lease, client: HttpClient, delay_ms: int
    ) -> None:
        self.ledgers[kind.name].release(lease)
        self._finish_lease(kind, lease, client, "/nack", delay_ms=delay_ms)
        load.tally.add("jobs given back")

    def _hold_longer(
        self, load: Load, kind: JobKind, lease: Lease, client: HttpClient, lease_ms: int
    ) -> None:
        sent_at = time.monotonic()
        answer = self._finish_lease(kind, lease, client, "/extend", lease_ms=lease_ms)
        if answer.is_ok and lease.seq not in answer.body["skipped"]:
            self.ledgers[kind.name].extended(lease, sent_at, lease_ms / 1_000)
            load.tally.add("jobs held longer")

    @staticmethod
    def _finish_lease(
        kind: JobKind, lease: Lease, client: HttpClient, verb: str, **more: int
    ) -> HttpReply:
        body = {"node": lease.node, "seqs": [lease.seq], "lease_ids": [lease.lease_id], **more}
        return client.post(topic_path(kind.name, verb), body)

    # -- the check

    def check(self, check: LedgerCheck) -> None:
        with check.client() as client:
            letters = self._letters(client, check)
            for kind in self._kinds:
                ledger = self.ledgers[kind.name]
                known = self._letters_known.setdefault(kind.name, set())
                for seq in letters.get(kind.name, set()) - known:
                    # A crash between the copy and the delete leaves both, so one that was a letter
                    # before may be delivered again, and acked. One that was acked is done.
                    known.add(seq)
                    removal = ledger.topic.removal(seq)
                    if removal is not None and removal[0] is RunOutcome.ACKED:
                        check.report(kind.name, [f"I8: job {seq} was acked and is a dead letter"])
                    ledger.topic.remove(seq, RunOutcome.UNKNOWN, 0.0)
                reading = read_topic(client, kind.name)
                check.report(kind.name, ledger.topic.check(reading, check.end))
                check.report(kind.name, ledger.findings())
                check.load.tally.add("jobs compared", len(reading.records))
                present = {each.seq: each for each in reading.records}
                changed = [
                    f"I1: job {seq} was delivered as {job} and is {present[seq]}"
                    for seq, job in ledger.delivered.items()
                    if seq in present and present[seq].key != job.key
                ]
                check.report(kind.name, changed)
                if check.is_last and kind.name == "q-plain":
                    self._drain(client, check, kind, set(present))

    def _letters(self, client: HttpClient, check: LedgerCheck) -> dict[str, set[int]]:
        """Seqs of the jobs that are dead letters, by queue. None is there twice."""
        dead_letters: Counter[tuple[str, int]] = Counter()
        for page in pages(client, DEAD_LETTERS):
            for record in page["records"]:
                meta = record["meta"]
                dead_letters[str(meta["$dead_letter_from"]), int(meta["$dead_letter_src_seq"])] += 1
        twice = [
            f"I2: {each} is a dead letter {count} times"
            for each, count in dead_letters.items()
            if count > 1
        ]
        check.report(DEAD_LETTERS, twice[:10])
        letters: dict[str, set[int]] = {}
        for queue, seq in dead_letters:
            letters.setdefault(queue, set()).add(seq)
        check.load.tally.add("dead letters compared", len(dead_letters))
        return letters

    def _drain(
        self, client: HttpClient, check: LedgerCheck, kind: JobKind, waiting: set[int]
    ) -> None:
        """After a start every job that was not acked is handed out."""
        given: set[int] = set()
        until = time.monotonic() + DRAIN_S
        while waiting - given and time.monotonic() < until:
            body = {"node": "drain", "max": 1000, "lease_ms": 86_400_000, "wait_ms": 500}
            answer = client.post(topic_path(kind.name, "/claim"), body)
            if answer.is_ok:
                given.update(int(job["$seq"]) for job in answer.body["claimed"])
        if given != waiting:
            lost, more = sorted(waiting - given), sorted(given - waiting)
            check.report(
                kind.name,
                [f"queue: never handed out: {lost[:20]}; handed out and not there: {more[:20]}"],
            )
