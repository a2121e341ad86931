"""Queues through the client: the same as embedded, and workers that survive what happens."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

import pytest

import headwater
from headwater.api.call_list import ApiCall, ClaimCall
from headwater.client import GiveBackError, Outcome, Stop
from headwater.core import errors
from headwater.core.results import ClaimedJob
from tests.e2e.client.conftest import QUICK
from tests.rig.server_process import ServerProcess

T = TypeVar("T")
pytestmark = pytest.mark.e2e


def use(database: Any) -> list[Any]:
    """A session of every queue call; what it gave, without times."""
    out: list[Any] = []
    database.create("q.a", type="queue", max_deliveries=3, dead_letter="q.dead")
    database.append("q.a", [{"data": n, "tag": f"t{n}", "meta": {"n": n}} for n in range(4)])
    claimed = database.claim("q.a", "one", 3)
    out += [
        (job.record.seq, job.record.tag, job.record.data, job.record.meta, job.deliveries)
        for job in claimed.jobs
    ]
    out += [claimed.ready, claimed.seqs, len({job.lease_id for job in claimed.jobs})]
    out.append(database.ack("q.a", "two", [1, 1, 9]))
    out.append(database.ack("q.a", "one", [1, 1, 9], lease_ids=[claimed.jobs[0].lease_id] * 3))
    out.append(database.nack("q.a", "one", [2]))
    out.append(database.nack("q.a", "one", [3], delay_ms=86_400_000))
    out.append(database.claim("q.a", "two", 9, lease_ms=60_000, wait_ms=10).seqs)
    extended = database.extend("q.a", "two", [2, 4, 5], lease_ms=90_000)
    out.append(extended._replace(deadlines=sorted(extended.deadlines)))
    out.append(database.queue_stats("q.a"))
    out.append(database.claim("q.a", "three", 9, wait_ms=10))
    database.append("q.a", {"data": 5, "deliver_at": 2**52})
    out.append(database.queue_stats("q.a"))
    out.append(database.drop("q.a"))
    return out


def test_a_session_of_a_queue_gives_the_same_embedded_and_over_http(
    tmp_path: Path, client: headwater.Client
) -> None:
    with headwater.open(tmp_path / "embedded") as database:
        assert use(client) == use(database)


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (errors.TopicNotFoundError, lambda db: db.claim("nowhere", "n")),
        (errors.NotAQueueError, lambda db: db.claim("mistakes.log", "n")),
        (errors.NotAQueueError, lambda db: db.queue_stats("mistakes.log")),
        (errors.NotAQueueError, lambda db: db.append("mistakes.log", {"data": 1, "deliver_at": 1})),
        (errors.InvalidRequestError, lambda db: db.claim("mistakes.q", "")),
        (errors.InvalidRequestError, lambda db: db.ack("mistakes.q", "n", [])),
        (errors.InvalidRequestError, lambda db: db.ack("mistakes.q", "n", [1], lease_ids=[1, 2])),
        (errors.InvalidRequestError, lambda db: db.nack("mistakes.q", "n", [1], delay_ms=-1)),
    ],
)
def test_mistakes_are_the_same_errors_embedded_and_over_http(
    tmp_path: Path, client: headwater.Client, kind: type[Exception], call: Any
) -> None:
    with headwater.open(tmp_path / "embedded") as database:
        for side in (client, database):
            side.create("mistakes.log")
            side.create("mistakes.q", type="queue")
            with pytest.raises(kind):
                call(side)


def test_a_worker_does_every_job_and_retries_those_that_fail(client: headwater.Client) -> None:
    client.create("work.a", type="queue")
    client.append("work.a", [{"data": n} for n in range(30)])
    seen: Counter[int] = Counter()
    told: list[Outcome] = []

    def handler(job: ClaimedJob) -> None:
        seen[job.record.data] += 1
        if job.record.data == 7 and job.deliveries == 1:
            raise ValueError("not today")
        if job.record.data == 8 and job.deliveries == 1:
            raise GiveBackError(1)

    done = client.work(
        "work.a", handler, threads=3, limit=8, retry_ms=1, idle_ms=300, on_done=told.append
    )
    assert done == (30, 2, 0)
    assert seen == {n: 2 if n in (7, 8) else 1 for n in range(30)}
    assert client.state("work.a").count == 0
    (failed,) = [outcome for outcome in told if isinstance(outcome.error, ValueError)]
    assert (failed.job.record.data, failed.delay_ms) == (7, 1)


def test_a_worker_holds_a_job_for_as_long_as_its_handler_runs(client: headwater.Client) -> None:
    client.create("work.b", type="queue")
    client.append("work.b", {"data": 1})
    claims: list[list[int]] = []

    def handler(_job: ClaimedJob) -> None:
        tries = (client.claim("work.b", "thief", wait_ms=400).seqs for _ in range(6))
        claims.extend(tries)  # for three times the lease

    assert client.work("work.b", handler, lease_ms=800, idle_ms=0) == (1, 0, 0)
    assert claims == [[]] * 6


def test_a_worker_told_to_stop_finishes_what_it_began_and_gives_back_the_rest(
    client: headwater.Client,
) -> None:
    client.create("work.c", type="queue", lease_ms=600_000)
    client.append("work.c", [{"data": n} for n in range(5)])
    stop = Stop()

    def handler(_job: ClaimedJob) -> None:
        stop.set()

    assert client.work("work.c", handler, limit=5, stop=stop) == (1, 0, 0)
    stats = client.queue_stats("work.c")
    assert (stats.ready, stats.in_flight) == (4, 0)


def test_an_interrupted_worker_leaves_nothing_in_its_hands(client: headwater.Client) -> None:
    client.create("work.d", type="queue", lease_ms=600_000)
    client.append("work.d", [{"data": n} for n in range(5)])

    class Interrupted(headwater.Client):
        claims = 0

        def _call(self, call: ApiCall[T]) -> T:
            self.claims += isinstance(call, ClaimCall)
            if self.claims > 1 and isinstance(call, ClaimCall):
                raise KeyboardInterrupt
            return super()._call(call)

    with (
        Interrupted(str(client._address), retry=QUICK) as interrupted,
        pytest.raises(KeyboardInterrupt),
    ):
        interrupted.work("work.d", lambda _job: None, limit=4)
    assert client.queue_stats("work.d").in_flight == 0


def test_an_awaiting_worker_does_the_same(shared: ServerProcess) -> None:
    seen: Counter[int] = Counter()

    async def handler(job: ClaimedJob) -> None:
        seen[job.record.data] += 1
        await asyncio.sleep(0)
        if job.record.data == 3 and job.deliveries == 1:
            raise ValueError("not today")

    async def run() -> None:
        async with headwater.AsyncClient(shared.url, retry=QUICK) as client:
            await client.create("work.e", type="queue", lease_ms=600_000)
            await client.append("work.e", [{"data": n} for n in range(20)])
            done = await client.work("work.e", handler, threads=4, retry_ms=1, idle_ms=300)
            assert done == (20, 1, 0)
            assert seen == {n: 2 if n == 3 else 1 for n in range(20)}
            await client.append("work.e", [{"data": n} for n in range(9)])
            began = asyncio.Event()

            async def stuck(_job: ClaimedJob) -> None:
                began.set()
                await asyncio.Event().wait()

            working = asyncio.create_task(client.work("work.e", stuck, limit=5))
            await began.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            stats = await client.queue_stats("work.e")
            assert (stats.ready, stats.in_flight) == (9, 0)

    asyncio.run(run())


@pytest.mark.claims(392)
@pytest.mark.parametrize("durable", [False, True])
def test_workers_outlive_a_killed_server_and_no_job_is_lost_or_done_after_its_ack(
    server: ServerProcess, durable: bool
) -> None:
    """Kill -9 twice under work. A job may be done twice, never after its ack was answered."""
    jobs, lease_ms = 300, 1_000
    with headwater.Client(server.url, retry=QUICK, rng=random.Random(1)) as client:
        client.create("jobs", type="queue", leases_durable=durable, lease_ms=lease_ms)
        client.append("jobs", [{"data": n} for n in range(jobs)])
        begun: Counter[int] = Counter()
        acked: set[int] = set()
        wrong: list[int] = []
        lock = threading.Lock()
        stop = Stop()

        def handler(job: ClaimedJob) -> None:
            with lock:
                begun[job.record.seq] += 1
                if job.record.seq in acked:
                    wrong.append(job.record.seq)

        def on_done(outcome: Outcome) -> None:
            with lock:
                if not outcome.lost and outcome.error is None and outcome.begun:
                    acked.add(outcome.job.record.seq)
                if len(acked) == jobs:
                    stop.set()

        def work(number: int) -> None:
            with headwater.Client(server.url, retry=QUICK, rng=random.Random(number)) as mine:
                mine.work(
                    "jobs",
                    handler,
                    node=f"w{number}",
                    limit=5,
                    lease_ms=lease_ms,
                    idle_ms=2 * lease_ms,
                    stop=stop,
                    on_done=on_done,
                )

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for share in (0.1, 0.5):
            while len(acked) < jobs * share:
                client.ready()
            server.restart(kill=True)
        for thread in threads:
            thread.join(timeout=60)
        assert not wrong, "an acked job came back"
        assert set(begun) == set(range(1, jobs + 1)), "a job was lost"
        assert client.queue_stats("jobs") == (0, 0, 0, 0, 0)


@pytest.mark.claims(391, 392)
def test_after_a_crash_durable_leases_hold_and_others_are_free_at_once(
    server: ServerProcess,
) -> None:
    with headwater.Client(server.url, retry=QUICK) as client:
        for name, durable in (("kept", True), ("free", False)):
            client.create(name, type="queue", leases_durable=durable, lease_ms=600_000)
            client.append(name, [{"data": n} for n in range(3)])
            claimed = client.claim(name, "one", 2)
            server.restart(kill=True)
            again = client.claim(name, "two", 9)
            if durable:
                assert again.seqs == [3]
                ids = [job.lease_id for job in claimed.jobs]
                assert client.ack(name, "one", [1, 2], lease_ids=ids).seqs == [1, 2]
            else:
                assert again.seqs == [1, 2, 3]
                assert min(job.lease_id for job in again.jobs) > claimed.jobs[0].lease_id
                assert client.ack(name, "one", [1, 2]).skipped == [1, 2]
