"""Claims and acks that need no steps give what those with steps give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.engine.queues import claims
from headwater.engine.state.topic import CHUNK_BYTES_MIN
from headwater.server.access.keys import ANYONE
from headwater.server.http import queue_handlers
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings


def claimed(answer: Any) -> list[dict[str, Any]]:
    """Without what differs from one claim to the next."""
    jobs: list[dict[str, Any]] = answer.json["claimed"]
    return [{key: job[key] for key in job if key not in ("deadline", "lease_id")} for job in jobs]


def in_flight(server: RunningServer) -> int:
    found: int = server.inside(lambda: server.app.access.quotas.of(ANYONE).in_flight)
    return found


@pytest.mark.parametrize("wanted", [1, 3, 40, 200])
def test_jobs_of_several_writes_read_the_same_from_memory_and_from_files(
    server: RunningServer, http: RawHttp, topic: str, wanted: int
) -> None:
    http.put(topic, type="queue")
    for at in range(0, 60, 20):
        records = [{"data": {"n": n}, "tag": f"t{n}"} for n in range(at, at + 20)]
        http.write_records(topic, *records)
    from_memory = http.queue("claim", topic, max=wanted)
    taken = [job["$seq"] for job in claimed(from_memory)]
    assert taken == [*range(1, min(wanted, 60) + 1)]
    assert from_memory.json["count"] == len(taken)
    assert from_memory.json["ready"] == 60 - len(taken)

    def forget() -> None:
        found = server.app.backend.engine.topic(topic)
        assert found.queue is not None
        found.queue.leases.take_back(found.queue.leases.leases[1])
        found.tail.clear()

    server.app.backend.engine.checkpoint()
    server.inside(forget)
    assert claimed(http.queue("claim", topic, max=wanted)) == claimed(from_memory)
    assert in_flight(server) == 0


def test_a_hole_between_jobs_is_left_out_of_a_claim(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue")
    http.write_records(topic, *[{"data": n, "tag": "x" if n == 5 else "y"} for n in range(20)])
    http.ask("POST", f"/v0/topics/{topic}/delete", {"match": "x"})
    found = http.queue("claim", topic, max=20)
    assert [job["data"] for job in claimed(found)] == [n for n in range(20) if n != 5]
    seqs = [job["$seq"] for job in found.json["claimed"]]
    assert http.queue("ack", topic, seqs=seqs).json["acked"] == 19


def test_a_part_of_a_claim_can_be_acked_and_the_rest_be_given_back(
    http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    http.write(topic, *range(30))
    lease = http.queue("claim", topic, max=30).json["claimed"][0]["lease_id"]
    middle = [*range(10, 20)]
    acked = http.queue("ack", topic, seqs=middle, lease_ids=[lease] * 10).json
    assert (acked["acked"], acked["in_flight"]) == (10, 20)
    again = http.queue("ack", topic, seqs=[9, 10, 19, 20], lease_ids=[lease] * 4).json
    assert (again["acked"], again["skipped"]) == (2, [10, 19])
    rest = [seq for seq in range(1, 31) if not 9 <= seq <= 20]
    assert http.queue("nack", topic, seqs=rest).json["nacked"] == 18
    found = http.queue("claim", topic, max=30).json["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(seq, 2) for seq in rest]


def test_jobs_that_cannot_be_printed_are_free_again(
    server: RunningServer, http: RawHttp, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no room")

    http.put(topic, type="queue")
    http.write(topic, *range(10))
    http.queue("claim", topic, max=1)
    with monkeypatch.context() as patched:
        patched.setattr(queue_handlers, "jobs_text_at_hand", broken)
        assert http.queue("claim", topic, max=5).status == 500
    assert in_flight(server) == 0
    found = http.queue("claim", topic, max=9).json["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(n, 1) for n in range(2, 11)]


def test_more_requests_than_a_key_may_have_under_way_are_given_no_job(tmp_path: Path) -> None:
    limited = settings(limits={"in_flight_per_key": 1})
    with running(tmp_path / "data", limited) as server, server.talk() as http:
        http.put("jobs", type="queue")
        http.write("jobs", 1)
        usage = server.app.access.quotas.of(ANYONE)
        server.inside(usage.begin)
        assert http.queue("claim", "jobs").status == 429
        assert http.queue("ack", "jobs", seqs=[1]).status == 429
        server.inside(usage.end)
        assert len(http.queue("claim", "jobs").json["claimed"]) == 1
        assert http.queue("ack", "jobs", seqs=[1]).json["acked"] == 1
        assert in_flight(server) == 0


def test_an_ack_puts_away_what_was_delivered_too_often(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue", max_deliveries=1, dead_letter=f"{topic}.dead")
    http.write(topic, 1, 2)
    http.queue("claim", topic, max=2)

    def run_out() -> None:
        queue = server.app.backend.engine.topic(topic).queue
        assert queue is not None
        queue.leases.nack("w", [1], None, 0)  # as a look at the clock does: nobody has put it away

    server.inside(run_out)
    assert http.queue("ack", topic, seqs=[2]).json["acked"] == 1
    assert [letter["data"] for letter in http.diff(f"{topic}.dead").json["records"]] == [1]


def test_many_chunks_are_left_to_a_plan(server: RunningServer, http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue")
    jobs = [f"{n} {'x' * CHUNK_BYTES_MIN}" for n in range(claims.AT_HAND_CHUNKS_MAX + 1)]
    for job in jobs:
        http.write(topic, job)  # long enough for a chunk of its own

    def at_hand(count: int) -> list[int] | None:
        queue = server.app.backend.engine.topic(topic)
        found = claims.runs_at_hand(queue, range(1, count + 1))
        return None if found is None else [len(run.offsets) for run in found]

    most = claims.AT_HAND_CHUNKS_MAX
    assert server.inside(lambda: at_hand(most)) == [1] * most
    assert server.inside(lambda: at_hand(most + 1)) is None
    assert server.inside(lambda: at_hand(most + 2)) is None
    handed = claimed(http.queue("claim", topic, max=20))
    assert [job["data"] for job in handed] == jobs
