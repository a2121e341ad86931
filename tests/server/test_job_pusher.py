"""Jobs pushed to workers over server-sent events, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from headwater.config.topic import Discard
from headwater.engine.queues.operations import serve_operation
from headwater.engine.state.topic import Topic
from headwater.server.streams import job_pusher
from headwater.server.streams.job_pusher import JobPusher
from tests.rig.claim_windows import end_window
from tests.server.raw_http import Event, Events, RawHttp
from tests.server.running_server import RunningServer, eventually


@contextmanager
def working(server: RunningServer, topic: str, node: str = "w", **options: Any) -> Iterator[Events]:
    query = "&".join(f"{name}={value}" for name, value in {"node": node, **options}.items())
    with server.talk() as connection:
        events = Events(connection, f"work?{query}", path=f"/v0/topics/{topic}")
        assert events.status == 200
        assert events.frame() == ["retry: 2000"]
        yield events


def jobs(events: Events, count: int) -> list[Event]:
    """The next so many. Nothing else may come: a heartbeat means that nothing did for long."""
    found = [events.next() for _ in range(count)]
    assert {event.kind for event in found} == {"job"}, found
    return found


def held(server: RunningServer, topic: str) -> int:
    """How many jobs of the queue are in flight, as it says itself."""
    with server.talk() as http:
        found: int = http.get(f"/v0/topics/{topic}").json["queue"]["in_flight"]
        return found


def test_jobs_are_pushed_as_they_come_up_to_what_a_worker_may_hold(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    http.write_records(topic, {"data": {"n": 1}, "tag": "a"})
    with working(server, topic, max=2) as events:
        assert events.headers["content-type"] == "text/event-stream"
        assert events.headers["x-accel-buffering"] == "no"
        (first,) = jobs(events, 1)
        assert first.id == "1"
        assert (first.data["data"], first.data["$tag"], first.data["deliveries"]) == (
            {"n": 1},
            "a",
            1,
        )
        http.write(topic, 2, 3, 4)
        (second,) = jobs(events, 1)
        assert second.data["$seq"] == 2
        assert held(server, topic) == 2, "two are in hand, and that is all it may have"
        acked = http.queue("ack", topic, seqs=[1], lease_ids=[first.data["lease_id"]]).json
        assert acked["acked"] == 1
        (third,) = jobs(events, 1)
        assert third.data["$seq"] == 3
        http.queue("nack", topic, seqs=[2, 3], delay_ms=60_000)
        assert jobs(events, 1)[0].data["$seq"] == 4


@pytest.mark.claims(390)
def test_the_jobs_of_a_connection_that_ends_are_free_at_once(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue", lease_ms=86_400_000)
    http.write(topic, *range(5))
    with working(server, topic, "gone", max=3) as events:
        assert [job.data["$seq"] for job in jobs(events, 3)] == [1, 2, 3]
        with server.talk() as other:
            other.send(
                other.request(
                    "POST", f"/v0/topics/{topic}/claim", {"node": "o", "max": 9, "wait_ms": 20_000}
                )
            )
            assert [job["$seq"] for job in other.answer().json["claimed"]] == [4, 5]
            other.send(
                other.request(
                    "POST", f"/v0/topics/{topic}/claim", {"node": "o", "max": 9, "wait_ms": 20_000}
                )
            )
            queue = server.app.backend.engine.topic(topic)
            eventually(lambda: len(server.inside(lambda: queue.waiters)))
            events.connection.close()
            found = other.answer().json["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(1, 2), (2, 2), (3, 2)]
    assert http.queue("ack", topic, "gone", seqs=[1]).json["skipped"] == [1]


def test_eight_workers_share_what_comes_evenly(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    with ExitStack() as all_of_them:
        workers = [
            all_of_them.enter_context(working(server, topic, f"n{number}", max=10))
            for number in range(8)
        ]
        http.write(topic, *range(40))
        shares = [[job.data["$seq"] for job in jobs(worker, 5)] for worker in workers]
    assert sorted(seq for share in shares for seq in share) == list(range(1, 41))


@pytest.mark.claims(396)
def test_polled_and_pushed_claims_of_one_window_are_served_together(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue", claim_jitter_ms=5_000)
    with (
        working(server, topic, "pushed", max=6) as events,
        server.talk() as polling,
        server.talk() as leaver,
    ):
        polling.send(polling.request("POST", f"/v0/topics/{topic}/claim", {"node": "p", "max": 6}))
        leaver.send(leaver.request("POST", f"/v0/topics/{topic}/claim", {"node": "l", "max": 6}))
        found = server.inside(lambda: server.app.backend.engine.topic(topic))
        eventually(lambda: len(server.inside(lambda: found.queue.window)) == 3)
        leaver.close()
        eventually(lambda: len(server.inside(lambda: found.queue.window)) == 2)
        http.write(topic, *range(8))
        server.inside(lambda: end_window(found))
        assert len(polling.answer().json["claimed"]) == 4
        assert len(jobs(events, 4)) == 4
    eventually(lambda: held(server, topic) == 4)


def test_a_lease_that_runs_out_is_pushed_to_whoever_has_room(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    http.write(topic, 1)
    assert http.queue("claim", topic, "slow", lease_ms=100).json["count"] == 1
    with working(server, topic) as events:
        (job,) = jobs(events, 1)
    assert job.data["deliveries"] == 2


def test_a_lone_worker_is_given_a_job_again_whose_lease_ran_out(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    http.write(topic, 1)
    with working(server, topic, max=1, lease_ms=100) as events:
        found = [job.data for job in jobs(events, 3)]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(1, 1), (1, 2), (1, 3)]
    assert len({job["lease_id"] for job in found}) == 3


def test_a_delayed_job_is_pushed_when_its_time_comes(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    with working(server, topic) as events:
        at = server.app.clock.wall_ms() + 150
        http.write_records(topic, {"data": 1, "deliver_at": at})
        jobs(events, 1)
        assert server.app.clock.wall_ms() >= at


def test_workers_of_a_paused_queue_go_on_when_it_is_resumed(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue", paused=True)
    http.write(topic, 1)
    with working(server, topic) as events:
        assert held(server, topic) == 0
        http.put(topic, paused=False)
        assert jobs(events, 1)[0].data["$seq"] == 1


def test_pushed_jobs_of_a_key_come_one_at_a_time(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue", fifo_key="tag")
    http.write_records(topic, *({"data": n, "tag": "k"} for n in range(3)))
    with working(server, topic, max=9) as events:
        for seq in (1, 2, 3):
            assert jobs(events, 1)[0].data["$seq"] == seq
            assert held(server, topic) == 1
            http.queue("ack", topic, seqs=[seq])


def test_a_queue_that_is_dropped_ends_its_streams(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    with working(server, topic) as events:
        http.ask("DELETE", f"/v0/topics/{topic}")
        assert events.until("topic-deleted")[-1].data == {"topic": topic}
        assert events.connection.is_closed()
    eventually(lambda: server.app.delivery.streams.sse_count == 0)
    pusher = server.app.services[JobPusher]
    assert isinstance(pusher, JobPusher)
    assert not server.inside(lambda: dict(pusher._lines))


def test_a_worker_that_does_not_read_is_not_given_more(
    server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic, type="queue")
    with working(server, topic, "deaf", max=1000):
        for _ in range(40):
            http.write(topic, "x" * 900_000)
        eventually(lambda: held(server, topic) >= 1)
        for _ in range(50):  # time enough to push everything, if that were done
            http.get(f"/v0/topics/{topic}")
        rest = 0
        while count := http.queue("claim", topic, "other", max=1000).json["count"]:
            assert count < 10, "large jobs are given a few at a time"
            rest += count
        assert rest >= 10
    eventually(lambda: held(server, topic) == rest)


def test_a_wrong_worker_is_refused_before_the_stream_begins(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue")
    for query in ("", "?node=", "?node=" + "x" * 129, "?node=w&max=two", "?node=w&lease_ms=x"):
        answer = http.get(f"/v0/topics/{topic}/work{query}")
        assert (answer.status, answer.code) == (400, "invalid_request"), query
    assert http.get(f"/v0/topics/{topic}/work?node=w", accept="application/json").status == 406
    assert http.get(f"/v0/topics/{topic}.no/work?node=w").status == 404


def refuse_more(topic: Topic) -> None:
    """As an earlier version let a dead letter topic be set; this one refuses the settings."""
    settings = topic.log.settings
    topic.log.settings = replace(settings, cap_records=1, discard=Discard.REJECT)


def test_a_dead_letter_that_cannot_be_put_away_keeps_nobody_busy(
    server: RunningServer, http: RawHttp, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[None] = []

    def counted(*given: Any) -> Any:
        passes.append(None)
        return serve_operation(*given)

    monkeypatch.setattr(job_pusher, "serve_operation", counted)
    http.put(topic, type="queue", max_deliveries=1, dead_letter=topic + "-lost")
    http.write(topic + "-lost", "full")
    server.inside(lambda: refuse_more(server.app.backend.engine.topic(topic + "-lost")))
    http.write(topic, "often")
    http.queue("claim", topic)
    http.queue("nack", topic, seqs=[1])
    with working(server, topic) as events:
        for _ in range(300):
            http.get("/v0/health")
        assert len(passes) <= 10, "it tries again and again, and nothing has changed"
        http.ask("POST", f"/v0/topics/{topic}-lost/delete", {"before_seq": 2})
        found = http.ask(
            "POST", f"/v0/topics/{topic}-lost/diff", {"from_seq": 1, "wait_ms": 20_000}
        ).json["records"]
        assert [letter["data"] for letter in found] == ["often"]
        http.write(topic, "fresh")
        while (event := events.next()).kind == "":  # a heartbeat
            continue  # 300 requests may take longer than a quiet stream goes without one
        assert (event.kind, event.data["data"]) == ("job", "fresh")
