"""The dashboard's files, and the routes it brought: status, jobs, requeue, filters of the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath

import msgspec
import pytest

from headwater.disk import PosixDisk
from headwater.engine.maintenance.reports import keep_report
from headwater.server.dashboard import POLICY, web_files
from headwater.server.health.overview import TOPICS_PER_SAMPLE, TopicTotals
from headwater.server.health.status import percentile_us
from headwater.wal.counters import SYNC_LATENCY_BOUNDS_US
from headwater.wire.status_answers import JobsAnswer, RequeueAnswer, StatusAnswer
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings

# -- files


def test_every_file_is_served_with_the_policy_and_known_again(http: RawHttp) -> None:
    assert len(web_files()) > 20
    for name in ["", *(f"ui/{name}" for name in web_files())]:
        answer = http.get(f"/{name}")
        assert answer.status == 200, name
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        tag = answer.headers["etag"]
        known = {"if-none-match": f'"other", W/{tag}'}
        http.send(http.request("GET", f"/{name}", headers=known))
        status, headers = http.head()
        assert (status, headers["etag"]) == (304, tag)
        assert "content-length" not in headers
        assert http.get(f"/{name}").body == answer.body, "the connection goes on after a 304"
    assert "unsafe" not in POLICY
    assert "http:" not in POLICY


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2f__init__.py", "__init__.py", "%2e%2e", "index.html%00", "a/b.js"]
)
def test_what_is_not_a_file_of_the_dashboard_is_not_found(http: RawHttp, name: str) -> None:
    assert http.get(f"/ui/{name}").code == "not_found"


# -- status


def test_the_status_tells_what_was_written(http: RawHttp, topic: str) -> None:
    before = msgspec.json.decode(http.get("/v0/status").body, type=StatusAnswer)
    http.write(topic, *range(10))
    http.put(f"{topic}-q", type="queue")
    http.write(f"{topic}-q", 1, 2, 3)
    http.queue("claim", f"{topic}-q")
    after = msgspec.json.decode(http.get("/v0/status").body, type=StatusAnswer)
    assert after.state == "ok"
    assert after.totals.topics == before.totals.topics + 2
    assert after.totals.records == before.totals.records + 13
    assert after.totals.bytes > before.totals.bytes
    assert after.totals.queues == before.totals.queues + 1
    assert after.totals.jobs_in_flight == before.totals.jobs_in_flight + 1
    assert after.totals.jobs_ready == before.totals.jobs_ready + 2
    appended = after.counters["records_appended"] - before.counters["records_appended"]
    assert appended == 13
    assert sum(shard.fsync.count for shard in after.shards) > 0
    for shard in after.shards:
        assert shard.state == "writable"
        assert sum(bucket.count for bucket in shard.fsync_buckets) == shard.fsync.count
        assert shard.fsync.p50_ms <= shard.fsync.p90_ms <= shard.fsync.p99_ms
    assert [rung.rung for rung in after.pressure.rungs] == ["coalesce", "widen", "defer", "refuse"]


def test_sums_over_very_many_topics_are_gathered_in_pieces(
    server: RunningServer, http: RawHttp, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        http.write(f"{topic}-{number}", number)
    engine = server.app.backend.engine
    exact = server.inside(lambda: TopicTotals().sample(engine))
    monkeypatch.setattr("headwater.server.health.overview.TOPICS_PER_SAMPLE", 2)
    summing = TopicTotals()
    looks = [server.inside(lambda: summing.sample(engine)).records for _ in range(exact.topics)]
    assert looks[0] < exact.records, "the first look has not seen all"
    assert looks[-1] == exact.records
    assert TOPICS_PER_SAMPLE >= 1_000


def test_a_percentile_lies_within_the_step_of_the_histogram_it_falls_into() -> None:
    empty = [0] * (len(SYNC_LATENCY_BOUNDS_US) + 1)
    assert percentile_us(empty, 0.99) == 0
    ten = [*empty]
    ten[2] = 10
    assert percentile_us(ten, 0.5) == 150
    assert percentile_us(ten, 1.0) == 200
    ten[-1] = 90
    assert percentile_us(ten, 0.99) == SYNC_LATENCY_BOUNDS_US[-1]


# -- jobs


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path / "data", settings()) as found:
        yield found


def test_reports_are_kept_beside_the_data_and_the_newest_comes_first(own: RunningServer) -> None:
    disk, directory = PosixDisk(), PurePath(own.directory)
    assert keep_report(disk, directory, "verify", 1_000, {"ok": True, "findings": []})
    assert keep_report(disk, directory, "pipeline-lake", 3_000, {"ok": False, "rows": 7})
    assert keep_report(disk, directory, "verify", 2_000, {"ok": True, "topics": 4})
    (own.directory / "reports" / "doctor.json").write_bytes(b'{"job": "do')
    with own.talk() as http:
        found = msgspec.json.decode(http.get("/v0/jobs").body, type=JobsAnswer)
    assert [(run.job, run.at_ms, run.ok) for run in found.runs] == [
        ("pipeline-lake", 3_000, False),
        ("verify", 2_000, True),
    ]
    assert found.runs[1].report == {"ok": True, "topics": 4}
    assert found.unreadable == ["doctor.json"]


def test_a_report_too_long_to_keep_is_kept_without_its_findings(own: RunningServer) -> None:
    findings = [{"what": "x" * 1_000} for _ in range(2_000)]
    report = {"ok": False, "topics": 3, "findings": findings}
    assert keep_report(PosixDisk(), PurePath(own.directory), "verify", 1, report)
    with own.talk() as http:
        (run,) = http.get("/v0/jobs").json["runs"]
    assert run["report"] == {"ok": False, "topics": 3}


def test_no_report_is_kept_where_no_server_has_been(tmp_path: Path) -> None:
    assert not keep_report(PosixDisk(), tmp_path, "verify", 1, {"ok": True})
    assert not list(tmp_path.iterdir())


# -- dead letters back, and the list


def test_dead_letters_go_back_over_http(http: RawHttp, topic: str) -> None:
    http.put(topic, type="queue", max_deliveries=1, dead_letter=f"{topic}-dead")
    http.write(topic, "one", "two")
    http.queue("claim", topic, max=2)
    http.queue("nack", topic, seqs=[1, 2])
    http.queue("claim", topic)
    answer = http.ask("POST", f"/v0/topics/{topic}-dead/requeue", {"seqs": [1, 9]})
    found = msgspec.json.decode(answer.body, type=RequeueAnswer)
    assert (answer.status, found.requeued, found.skipped) == (200, 1, [9])
    assert http.get(f"/v0/topics/{topic}").json["queue"]["ready"] == 1
    assert http.ask("POST", f"/v0/topics/{topic}-dead/requeue", {"seqs": []}).status == 400
    assert http.ask("POST", "/v0/topics/none/requeue", {"seqs": [1]}).code == "topic_not_found"


def test_a_key_gives_letters_back_only_to_queues_it_may_name(tmp_path: Path) -> None:
    keys = ("all-secret", "some-secret:read+write+delete:dead")
    with running(tmp_path / "data", settings(api_keys=keys)) as server:
        with server.talk(key="all-secret") as http:
            http.put("jobs", type="queue", max_deliveries=1, dead_letter="dead")
            http.write("jobs", 1)
            http.queue("claim", "jobs")
            http.queue("nack", "jobs", seqs=[1])
            http.queue("claim", "jobs")
        with server.talk(key="some-secret") as http:
            answer = http.ask("POST", "/v0/topics/dead/requeue", {"seqs": [1]})
            assert (answer.json["requeued"], answer.json["skipped"]) == (0, [1])


def test_the_list_is_narrowed_by_part_of_a_name_and_by_type(http: RawHttp, topic: str) -> None:
    for number in range(4):
        http.put(f"{topic}-{number}-end", type="queue" if number % 2 else "log")
    found = http.get(f"/v0/topics?prefix={topic}&contains=2-e").json["topics"]
    assert [each["topic"] for each in found] == [f"{topic}-2-end"]
    page = http.get(f"/v0/topics?prefix={topic}&type=queue&page_size=1").json
    assert [each["topic"] for each in page["topics"]] == [f"{topic}-1-end"]
    after = http.get(f"/v0/topics?prefix={topic}&type=queue&cursor={page['next_cursor']}").json
    assert [each["topic"] for each in after["topics"]] == [f"{topic}-3-end"]
    assert "next_cursor" not in after
    assert http.get("/v0/topics?type=stack").code == "invalid_request"


def test_a_search_that_finds_little_goes_on_with_the_next_page(
    http: RawHttp, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        http.put(f"{topic}-{number}")
    monkeypatch.setattr("headwater.server.http.topic_handlers.NAMES_SCANNED_MAX", 2)
    found, asked, cursor = [], 0, ""
    while True:
        page = http.get(f"/v0/topics?prefix={topic}&contains=-4&cursor={cursor}").json
        found += [each["topic"] for each in page["topics"]]
        asked += 1
        if "next_cursor" not in page:
            break
        cursor = page["next_cursor"]
    assert (found, asked) == ([f"{topic}-4"], 3)
