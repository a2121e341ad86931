"""Many workers on one queue, in threads: windows, order by key, every job once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.engine.database import Database
from tests.unit.engine.queues.queue_rig import Place


@pytest.mark.claims(396)
def test_claims_of_one_window_share_what_is_there(opened: Any) -> None:
    db: Database = opened()
    db.create("jobs", type="queue", claim_jitter_ms=60)
    db.append("jobs", [{"data": n} for n in range(12)])
    got: dict[str, int] = {}

    def work(node: str, limit: int) -> None:
        got[node] = len(db.claim("jobs", node, limit).seqs)

    threads = [
        threading.Thread(target=work, args=(node, limit))
        for node, limit in (("a", 30), ("b", 20), ("c", 10))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sum(got.values()) == 12
    assert got == {"a": 6, "b": 4, "c": 2}


@pytest.mark.claims(397)
def test_without_a_window_each_claim_is_served_at_once() -> None:
    place = Place(claim_jitter_ms=0)
    place.write(3)
    assert place.db.claim("jobs", "a", 2).seqs == [1, 2]
    assert place.db.claim("jobs", "b", 2).seqs == [3]


@pytest.mark.parametrize("keyed", [None, "tag"])
def test_many_threads_take_every_job_exactly_once(opened: Any, keyed: str | None) -> None:
    db: Database = opened()
    db.create("jobs", type="queue", fifo_key=keyed, claim_jitter_ms=1)
    jobs = 300
    db.append("jobs", [{"data": n, "tag": f"k{n % 7}"} for n in range(jobs)])
    done: list[int] = []
    out: set[str] = set()
    lock = threading.Lock()

    def work(node: str) -> None:
        while len(done) < jobs:
            claimed = db.claim("jobs", node, 5)
            tags = [str(job.record.tag) for job in claimed.jobs]
            with lock:
                if keyed:
                    assert out.isdisjoint(tags), "a key is out twice"
                    assert len(set(tags)) == len(tags)
                    out.update(tags)
            if claimed.jobs:
                with lock:
                    out.difference_update(tags)
                    done.extend(claimed.seqs)
                assert db.ack("jobs", node, claimed.seqs).seqs == claimed.seqs

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(done) == list(range(1, jobs + 1))
    if keyed:
        by_key = [[seq for seq in done if seq % 7 == key] for key in range(7)]
        assert all(seqs == sorted(seqs) for seqs in by_key)
    assert db.state("jobs").count == 0
