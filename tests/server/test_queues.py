"""Queues over a real socket: claim, ack, nack, extend, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.state.topic import Topic
from headwater.server.access.keys import ANYONE
from tests.rig.claim_windows import end_window
from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, eventually, running, settings

WORKER, PRODUCER, BOTH = "worker-secret", "producer-secret", "both-secret"


def seqs(answer: Any) -> list[int]:
    return [job["$seq"] for job in answer.json["claimed"]]


def test_jobs_are_claimed_acked_and_gone(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue", lease_ms=60_000)
    http.write_records(
        topic, {"data": {"n": 1}, "tag": "a", "meta": {"k": 1}, "node": "p"}, {"data": [2, 3]}
    )
    answer = http.queue("claim", topic, max=5)
    assert answer.status == 200
    found = answer.json
    assert (found["count"], found["ready"]) == (2, 0)
    first, second = found["claimed"]
    assert (first["$seq"], first["data"], first["meta"]) == (1, {"n": 1}, {"k": 1})
    assert (first["$tag"], first["$node"], first["deliveries"]) == ("a", "p", 1)
    assert first["lease_id"] == second["lease_id"] >= 1
    assert 0 < first["deadline"] - first["$ts"] <= 61_000
    assert set(second) == {"$seq", "$ts", "lease_id", "deadline", "deliveries", "data"}
    state = http.get(f"/v0/topics/{topic}").json
    assert state["queue"] == {
        "ready": 0,
        "in_flight": 2,
        "delayed": 0,
        "dead_lettered": 0,
        "blocked": 0,
    }
    acked = http.queue("ack", topic, seqs=[1, 9], lease_ids=[first["lease_id"]] * 2).json
    del acked["performance"]
    assert acked == {"topic": topic, "acked": 1, "skipped": [9], "ready": 0, "in_flight": 1}
    assert http.queue("ack", topic, seqs=[1]).json["skipped"] == [1]
    assert http.queue("ack", topic, seqs=[2]).json["acked"] == 1
    assert [r["$seq"] for r in http.diff(topic).json["records"]] == []
    assert http.get(f"/v0/topics/{topic}").json["count"] == 0


def test_only_the_holder_settles_a_job_and_only_under_its_number(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue")
    http.write(topic, 1)
    (job,) = http.queue("claim", topic, "one").json["claimed"]
    assert http.queue("ack", topic, "two", seqs=[1]).json["skipped"] == [1]
    wrong = [job["lease_id"] + 1]
    for verb in ("ack", "nack", "extend"):
        answer = http.queue(verb, topic, "one", seqs=[1], lease_ids=wrong).json
        assert (answer["skipped"], answer["in_flight"]) == ([1], 1)
    extended = http.queue("extend", topic, "one", seqs=[1], lease_ms=90_000).json
    assert (extended["extended"], extended["skipped"]) == (1, [])
    assert extended["deadlines"]["1"] > job["deadline"]
    given_back = http.queue("nack", topic, "one", seqs=[1]).json
    assert (given_back["nacked"], given_back["ready"]) == (1, 1)
    (again,) = http.queue("claim", topic, "two").json["claimed"]
    assert again["deliveries"] == 2
    assert again["lease_id"] > job["lease_id"]


def test_a_nack_with_a_delay_and_a_time_of_delivery_keep_a_job_back(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    now = server.app.clock.wall_ms()
    assert (
        http.write_records(topic, {"data": 1}, {"data": 2, "deliver_at": now + 60_000}).json[
            "count"
        ]
        == 2
    )
    assert seqs(http.queue("claim", topic, max=9)) == [1]
    http.queue("nack", topic, seqs=[1], delay_ms=60_000)
    assert seqs(http.queue("claim", topic, max=9)) == []
    queue = http.get(f"/v0/topics/{topic}").json["queue"]
    assert queue == {"ready": 0, "in_flight": 0, "delayed": 2, "dead_lettered": 0, "blocked": 0}
    assert http.write_records(topic, {"data": 3, "deliver_at": now - 5}).status == 200
    assert seqs(http.queue("claim", topic, max=9)) == [3]


def test_jobs_of_a_key_go_out_one_at_a_time(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue", fifo_key="tag")
    http.write_records(topic, *({"data": n, "tag": f"k{n % 2}"} for n in range(4)))
    assert seqs(http.queue("claim", topic, max=9)) == [1, 2]
    http.queue("ack", topic, seqs=[2])
    assert seqs(http.queue("claim", topic, max=9)) == [4]


def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue", paused=True)
    http.write(topic, 1)
    assert seqs(http.queue("claim", topic)) == []
    with server.talk() as waiting:
        waiting.send(
            waiting.request("POST", f"/v0/topics/{topic}/claim", {"node": "w", "wait_ms": 20_000})
        )
        eventually(lambda: server.inside(lambda: server.app.backend.engine.topic(topic).waiters))
        assert http.put(topic, paused=False).status == 200
        assert seqs(waiting.answer()) == [1]


def test_a_claim_that_waits_is_answered_by_a_write_and_by_its_time(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    assert http.queue("claim", topic, wait_ms=30).json["count"] == 0
    with server.talk() as waiting:
        waiting.send(
            waiting.request("POST", f"/v0/topics/{topic}/claim", {"node": "w", "wait_ms": 20_000})
        )
        eventually(lambda: server.inside(lambda: server.app.backend.engine.topic(topic).waiters))
        http.write(topic, 1)
        assert seqs(waiting.answer()) == [1]


def test_workers_that_wait_for_a_job_keep_nobody_from_writing(tmp_path: Path) -> None:
    limited = settings(limits={"in_flight_per_key": 3})
    with running(tmp_path / "data", limited) as server, server.talk() as http, ExitStack() as open_:
        http.put("jobs", type="queue")

        def jobs() -> Topic:
            return server.app.backend.engine.topic("jobs")

        waiting = [open_.enter_context(server.talk()) for _ in range(5)]
        for number, worker in enumerate(waiting):
            wish = {"node": f"w{number}", "wait_ms": 20_000}
            worker.send(worker.request("POST", "/v0/topics/jobs/claim", wish))
            eventually(lambda: server.inside(lambda: len(jobs().waiters)) == number + 1)  # noqa: B023
        assert http.write("jobs", *range(5)).status == 200
        assert sorted(seqs(worker.answer())[0] for worker in waiting) == [1, 2, 3, 4, 5]
        assert server.inside(lambda: server.app.access.quotas.of(ANYONE).in_flight) == 0


def test_whoever_leaves_while_it_waits_takes_no_job_along(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    with server.talk() as waiting:
        waiting.send(
            waiting.request("POST", f"/v0/topics/{topic}/claim", {"node": "w", "wait_ms": 20_000})
        )
        eventually(lambda: server.inside(lambda: server.app.backend.engine.topic(topic).waiters))
    eventually(lambda: not server.inside(lambda: server.app.backend.engine.topic(topic).waiters))
    http.write(topic, 1)
    (job,) = http.queue("claim", topic, "other").json["claimed"]
    assert job["deliveries"] == 1


def test_a_job_delivered_too_often_goes_to_the_dead_letter_topic(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue", max_deliveries=2, dead_letter=f"{topic}.dead")
    http.write_records(topic, {"data": "bad", "tag": "t"})
    for _ in range(2):
        http.queue("claim", topic)
        http.queue("nack", topic, seqs=[1])
    assert seqs(http.queue("claim", topic)) == []
    (letter,) = http.diff(f"{topic}.dead", include_tags=True).json["records"]
    assert (letter["data"], letter["$tag"]) == ("bad", "t")
    assert letter["meta"] == {
        "$dead_letter_from": topic,
        "$dead_letter_deliveries": 2,
        "$dead_letter_src_seq": 1,
    }
    assert http.get(f"/v0/topics/{topic}").json["queue"]["dead_lettered"] == 1


def test_claims_of_one_window_share_evenly_by_what_they_want(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue", claim_jitter_ms=5_000)
    http.write(topic, *range(24))
    claimers = [server.talk() for _ in range(8)]
    for number, each in enumerate(claimers):
        body = {"node": f"n{number}", "max": 6}
        each.send(each.request("POST", f"/v0/topics/{topic}/claim", body))
    found = server.inside(lambda: server.app.backend.engine.topic(topic))
    eventually(lambda: len(server.inside(lambda: found.queue.window)) == len(claimers))
    server.inside(lambda: end_window(found))
    shares = [seqs(each.answer()) for each in claimers]
    for each in claimers:
        each.close()
    assert [len(share) for share in shares] == [3] * 8
    assert sorted(seq for share in shares for seq in share) == list(range(1, 25))


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("claim", {}),
        ("claim", {"node": ""}),
        ("claim", {"node": "x" * 129}),
        ("claim", {"node": "w", "max": "2"}),
        ("claim", {"node": "w", "colour": "red"}),
        ("ack", {"node": "w"}),
        ("ack", {"node": "w", "seqs": []}),
        ("ack", {"node": "w", "seqs": list(range(1001))}),
        ("ack", {"node": "w", "seqs": [1], "lease_ids": [1, 2]}),
        ("ack", {"node": "w", "seqs": [-1]}),
        ("nack", {"node": "w", "seqs": [1], "delay_ms": -1}),
        ("nack", {"node": "w", "seqs": [1], "delay_ms": 86_400_001}),
        ("extend", {"node": "w", "seqs": [1], "lease_ms": "long"}),
    ],
)
def test_what_makes_no_sense_is_refused(
    http: RawHttp, topic: str, verb: str, body: dict[str, Any]
) -> None:
    name = topic[:60]
    http.put(name, type="queue")
    answer = http.ask("POST", f"/v0/topics/{name}/{verb}", body)
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_a_log_is_no_queue_and_a_missing_one_is_missing(http: RawHttp, topic: str) -> None:
    http.write(topic, 1)
    verbs: dict[str, dict[str, Any]] = {
        "claim": {},
        **{verb: {"seqs": [1]} for verb in ("ack", "nack", "extend")},
    }
    for verb, more in verbs.items():
        answer = http.queue(verb, topic, **more)
        assert (answer.status, answer.code) == (409, "not_a_queue")
        answer = http.queue(verb, topic + ".nowhere", **more)
        assert (answer.status, answer.code) == (404, "topic_not_found")
    work = http.get(f"/v0/topics/{topic}/work?node=w")
    assert (work.status, work.code) == (409, "not_a_queue")
    refused = http.write_records(topic, {"data": 1, "deliver_at": 5})
    assert (refused.status, refused.code) == (409, "not_a_queue")
    assert "queue" not in http.get(f"/v0/topics/{topic}").json


def test_max_and_lease_are_clamped_not_refused(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    http.write(topic, 1, 2)
    assert http.queue("claim", topic, max=-4).json["count"] == 1
    assert http.queue("claim", topic, "other", max=1_000_000).json["count"] == 1
    http.write(topic, 3)
    asked = server.app.clock.wall_ms()
    (job,) = http.queue("claim", topic, lease_ms=1).json["claimed"]
    # 100 ms, told in whole ones: what had begun of the last and of this one is not told.
    assert job["deadline"] - asked >= 98


def test_the_metrics_tell_of_queues(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue")
    http.write(topic, 1, 2, 3)
    http.queue("claim", topic, max=2)
    found = http.get("/v0/metrics", accept="application/json").json["metrics"]
    assert found[f"headwater_topic_queue_ready{{topic={topic}}}"] == 1
    assert found[f"headwater_topic_queue_in_flight{{topic={topic}}}"] == 2
    assert found["headwater_queue_leases_in_flight"] >= 2
    assert found["headwater_queue_topics"] >= 1
    text = http.get("/metrics").body.decode()
    assert f'headwater_topic_queue_ready{{topic="{topic}"}} 1.0' in text


def test_many_workers_take_every_job_once(server: RunningServer, topic: str) -> None:
    with server.talk() as http:
        http.put(topic, type="queue")
        for _ in range(20):
            http.write(topic, *range(100))
    done: dict[str, list[int]] = {}

    def work(node: str) -> None:
        mine = done.setdefault(node, [])
        with server.talk() as http:
            while found := http.queue("claim", topic, node, max=50).json["claimed"]:
                answer = http.queue(
                    "ack",
                    topic,
                    node,
                    seqs=[job["$seq"] for job in found],
                    lease_ids=[job["lease_id"] for job in found],
                ).json
                assert answer["skipped"] == []
                mine += [job["$seq"] for job in found]

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seq for mine in done.values() for seq in mine) == list(range(1, 2001))


@pytest.mark.parametrize("leaves", [False, True])
def test_a_durable_claim_is_answered_when_the_log_has_it_and_leavers_take_nothing(
    tmp_path: Path, leaves: bool
) -> None:
    disk = GatedDisk()
    with running(tmp_path / "data", disk=disk) as server, server.talk() as http:
        http.put("jobs", type="queue", leases_durable=True)
        http.write("jobs", 1)
        disk.syncs.close()
        try:
            with server.talk() as claiming:
                body = {"node": "w", "max": 1}
                claiming.send(claiming.request("POST", "/v0/topics/jobs/claim", body))
                assert disk.syncs.somebody_waits.wait(20)
                if not leaves:
                    disk.syncs.open()
                    assert seqs(claiming.answer()) == [1]
            if leaves:
                eventually(lambda: server.connections_open == 1)
        finally:
            disk.syncs.open()
        (queue,) = [http.get("/v0/topics/jobs").json["queue"]]
        assert (queue["ready"], queue["in_flight"]) == ((1, 0) if leaves else (0, 1))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    keys = (
        f"{WORKER}:read+delete:acme.", f"{PRODUCER}:write:acme.", f"{BOTH}:read+write:acme.",
        "master-secret",
    )  # fmt: skip
    directory: Path = tmp_path_factory.mktemp("guarded") / "data"
    with running(directory, settings(api_keys=keys)) as found:
        yield found


def test_producers_cannot_consume_and_workers_cannot_produce(guarded: RunningServer) -> None:
    with guarded.talk(key="master-secret") as http:
        http.put("acme.jobs", type="queue")
    with guarded.talk(key=PRODUCER) as producer, guarded.talk(key=WORKER) as worker:
        assert producer.write("acme.jobs", 1, 2).status == 200
        assert producer.queue("claim", "acme.jobs").status == 403
        assert producer.queue("ack", "acme.jobs", seqs=[1]).status == 403
        assert seqs(worker.queue("claim", "acme.jobs")) == [1]
        assert worker.queue("ack", "acme.jobs", seqs=[1]).json["acked"] == 1
        assert worker.write("acme.jobs", 3).status == 403
        assert worker.queue("claim", "other.jobs").status == 403
        assert worker.get("/v0/topics/acme.jobs/work").status == 400


def test_reading_and_writing_is_enough_to_work_off_a_queue(guarded: RunningServer) -> None:
    with guarded.talk(key="master-secret") as http:
        http.put("acme.both", type="queue")
    with guarded.talk(key=BOTH) as both:
        both.write("acme.both", 1, 2)
        assert seqs(both.queue("claim", "acme.both", max=2)) == [1, 2]
        assert both.queue("ack", "acme.both", seqs=[1]).json["acked"] == 1
        assert both.queue("extend", "acme.both", seqs=[2]).json["extended"] == 1
        assert both.queue("nack", "acme.both", seqs=[2]).json["nacked"] == 1
        assert both.ask("HEAD", "/v0/topics/acme.both/work?node=w").status == 200
        assert both.ask("POST", "/v0/topics/acme.both/delete", {"before_seq": 9}).status == 403


def test_a_stream_of_jobs_may_have_its_key_in_the_query(guarded: RunningServer) -> None:
    with guarded.talk(key="master-secret") as http:
        http.put("acme.pushed", type="queue")
    path = "/v0/topics/acme.pushed/work?node=w"
    with guarded.talk() as http:
        assert http.get(path).status == 401
        assert http.get(path + "&token=wrong-secret").status == 401
        assert http.get(path + f"&token={PRODUCER}").status == 403
        assert http.ask("HEAD", path + f"&token={WORKER}").status == 200
        assert http.get(f"/v0/topics/acme.pushed?token={WORKER}").status == 401, "streams only"
