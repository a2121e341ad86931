"""Every error of the table, health, readiness, metrics, the document and its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.wal import WalSettings
from headwater.core import errors
from headwater.observe.metrics import METRICS
from headwater.server.routes import every_route
from headwater.wire.http_errors import REASON, STATUS_OF_CODE, HttpError, status_of
from tests.rig.server_process import workers_wanted
from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, eventually, running, settings


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def gated(tmp_path: Path, disk: GatedDisk) -> Iterator[RunningServer]:
    wal = WalSettings(shards=1, file_bytes=1024 * 1024, full_retry_interval_us=50_000)
    engine = EngineSettings(wal=wal, topics_max=5, routers_max=1)
    with running(tmp_path / "data", disk=disk, engine_settings=engine) as server:
        yield server


def every_error(base: type[errors.HeadwaterError]) -> Iterator[type[errors.HeadwaterError]]:
    yield base
    for kind in base.__subclasses__():
        yield from every_error(kind)


def test_every_error_there_is_has_a_status() -> None:
    # What the sink tells its driver never comes from a server.
    of_the_sink = {errors.WriteUncertainError, errors.RowsDifferError, errors.StaleWriterError}
    elsewhere = ("headwater.client", "headwater.spark")
    for kind in every_error(errors.HeadwaterError):
        if kind is HttpError or kind in of_the_sink or kind.__module__.startswith(elsewhere):
            continue
        assert kind.code in STATUS_OF_CODE, kind
    assert set(STATUS_OF_CODE.values()) <= set(REASON)
    assert status_of(HttpError("throttled", "")) == 429


@pytest.mark.claims(381)
def test_wrong_paths_and_methods_say_what_is_allowed(http: RawHttp) -> None:
    for path in (
        "/nothing",
        "/v0",
        "/v0/",
        "/v0/topics/a/b",
        "/v1/topics",
        "/favicon.ico",
        "/v0/watch/a/b",
    ):
        answer = http.get(path)
        assert (answer.status, answer.code) == (404, "not_found")
    for method, path, allow in (
        ("PATCH", "/v0/topics/a", "DELETE, GET, POST, PUT"),
        ("GET", "/v0/topics/a/diff", "POST"),
        ("DELETE", "/v0/topics", "GET"),
        ("OPTIONS", "/v0/watch", "POST"),
        ("TRACE", "/v0/health", "GET"),
    ):
        answer = http.ask(method, path)
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allow


def test_every_answer_has_an_id_of_its_own(http: RawHttp) -> None:
    found = [http.get(path).headers["x-request-id"] for path in ("/v0/health", "/v0/nothing") * 3]
    assert len(set(found)) == 6


def test_a_disk_that_is_full_is_told_and_reading_goes_on(
    gated: RunningServer, disk: GatedDisk
) -> None:
    with gated.talk() as http:
        http.write("t", 1)
        disk.is_full = True
        refused = http.write("t", 2)
        assert (refused.status, refused.code) == (507, "disk_full")
        assert http.put("new").code == "disk_full"
        assert http.get("/v0/ready").json["status"] == "full"
        assert http.diff("t").json["head_seq"] == 1
        disk.is_full = False
        eventually(lambda: http.write("t", 3).status == 200)
        assert http.diff("t").json["records"][0]["data"] == 1


def test_a_disk_that_breaks_stops_the_writing_and_says_so(
    gated: RunningServer, disk: GatedDisk
) -> None:
    with gated.talk() as http:
        http.write("t", 1)
        disk.is_broken = True
        for _ in range(2):
            refused = http.write("t", 2)
            assert (refused.status, refused.code) == (503, "storage_failed")
        assert http.get("/v0/ready").code == "storage_failed"
        assert http.get("/v0/health").status == 200
        assert http.diff("t").json["head_seq"] == 1
        metrics = http.get("/v0/metrics", accept="application/json").json["metrics"]
        assert metrics["headwater_wal_read_only{shard=00}"] == 1


def test_a_topic_too_many_is_refused_with_the_name_of_the_limit(gated: RunningServer) -> None:
    with gated.talk() as http:
        for number in range(5):
            assert http.put(f"t{number}").status == 201
        refused = http.put("t5")
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.json["error"]["detail"]["limit"] == "topics"
        assert int(refused.headers["retry-after"]) >= 1


def test_a_router_too_many_is_refused_with_the_name_of_the_limit(gated: RunningServer) -> None:
    with gated.talk() as http:
        http.put("in")
        definition = {"source": "in", "dest": "out"}
        assert http.ask("PUT", "/v0/routers/one", definition).status == 201
        refused = http.ask("PUT", "/v0/routers/two", definition)
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.json["error"]["detail"] == {"limit": "routers", "allowed": 1}
        assert http.ask("PUT", "/v0/routers/one", definition).status == 200
        assert http.ask("DELETE", "/v0/routers/one").json["deleted"]
        assert http.ask("PUT", "/v0/routers/two", definition).status == 201


def test_a_fault_of_ours_is_told_without_its_insides(
    server: RunningServer, http: RawHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.put("broken")

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret insides")

    with monkeypatch.context() as patch:
        patch.setattr(server.app.backend.engine.topics, "state", fail)
        answer = http.get("/v0/topics/broken")
        assert (answer.status, answer.code) == (500, "internal")
        assert b"insides" not in answer.body
    assert http.get("/v0/topics/broken").status == 200


# -- health


@pytest.mark.parametrize("path", ["/v0/health", "/healthz", "/v0/ready", "/readyz"])
def test_a_healthy_server_says_so(http: RawHttp, path: str) -> None:
    answer = http.get(path)
    assert (answer.status, answer.json["status"]) == (200, "ok")
    assert answer.json["performance"]["server_total_ms"] >= 0
    head = http.ask("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    assert http.get(path).status == 200, "a body after HEAD would be taken for this answer"


def test_a_server_that_recovers_is_not_ready_and_tells_how_far_it_is(
    tmp_path: Path, disk: GatedDisk
) -> None:
    directory = tmp_path / "data"
    with running(directory) as server, server.talk() as http:
        http.write("t", *range(100))
    disk.reads.close()
    server = RunningServer(directory, settings(), disk=disk)
    server.start(recovered=False)
    try:
        assert disk.reads.somebody_waits.wait(20)
        with server.talk() as http:
            assert http.get("/v0/health").status == 200
            for path in ("/v0/ready", "/readyz", "/v0/topics", "/v0/topics/t"):
                answer = http.get(path)
                assert (answer.status, answer.code) == (503, "not_ready")
                assert 0 <= answer.json["error"]["detail"]["replay_progress"] < 1
                assert int(answer.headers["retry-after"]) >= 1
            assert http.write("t", 1).code == "not_ready"
            assert http.ask("POST", "/v0/watch", {"topics": {"t": {}}}).code == "not_ready"
            metrics = http.get("/v0/metrics", accept="application/json").json["metrics"]
            assert metrics["headwater_ready"] == 0
            assert b"headwater_recovery_progress" in http.get("/metrics").body
            disk.reads.open()
            server.wait_until_ready()
            assert http.get("/v0/ready").status == 200
            assert http.diff("t").json["head_seq"] == 100
    finally:
        disk.reads.open()
        server.stop()


# -- metrics


@pytest.mark.claims(380)
def test_metrics_are_prometheus_text_or_json_with_every_declared_name(
    http: RawHttp, topic: str
) -> None:
    http.write(topic, 1, 2)
    http.diff(topic)
    http.put(f"{topic}.jobs", type="queue")
    router = {"source": topic, "dest": f"{topic}.copy"}
    assert http.ask("PUT", f"/v0/routers/{topic}", router).status == 201
    answer = http.get("/v0/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {
        family.name: family for family in text_string_to_metric_families(answer.body.decode())
    }
    # Kafka's are there when its port is, and tests/kafka looks at them; gateways' when there are.
    absent = ("kafka_",) if workers_wanted() else ("kafka_", "gateway_")
    declared = {name for name in METRICS if not name.startswith(absent)}
    assert {f"headwater_{name}" for name in declared} <= set(families)
    heads = {s.labels["topic"]: s.value for s in families["headwater_topic_head_seq"].samples}
    assert heads[topic] == 2
    by_class = families["headwater_topics_by_class"].samples
    assert {s.labels["durability"] for s in by_class} == {"ephemeral", "memory", "disk", "fsync"}
    latency = families["headwater_wal_fsync_latency_seconds"]
    assert latency.type == "histogram"
    as_json = http.get("/metrics", accept="application/json").json
    assert set(as_json) == {"metrics", "performance"}
    assert as_json["metrics"][f"headwater_topic_records_live{{topic={topic}}}"] == 2
    assert as_json["metrics"]["headwater_records_appended"] >= 2


# -- the document


def test_the_document_has_every_route_and_its_errors(http: RawHttp) -> None:
    document = http.get("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for route in every_route():
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["responses"]
        if not route.is_open:
            assert {"401", "403"} <= set(operation["responses"])
    ids = [o["operationId"] for path in document["paths"].values() for o in path.values()]
    assert len(set(ids)) == len(ids)
    for name in references(document):
        assert name in document["components"]["schemas"], name


def references(value: Any) -> set[str]:
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(value)))


def test_the_page_shows_the_document_and_loads_nothing_from_elsewhere(http: RawHttp) -> None:
    answer = http.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = answer.body.decode()
    assert "/openapi.json" in page
    assert not re.search(r"(src|href)=[\"']https?://", page)
    assert "innerHTML" not in page


@pytest.mark.claims(379)
def test_every_json_answer_tells_what_it_cost(http: RawHttp, topic: str) -> None:
    http.write(topic, 1)
    for method, path, body in (
        ("GET", "/v0/topics", None), ("GET", f"/v0/topics/{topic}", None),
        ("PUT", f"/v0/topics/{topic}", {}), ("POST", f"/v0/topics/{topic}", {}),
        ("POST", f"/v0/topics/{topic}/diff", {}), ("GET", "/v0/ready", None),
        ("POST", f"/v0/topics/{topic}/delete", {"before_seq": 1}), ("GET", "/nothing", None),
        ("POST", "/v0/watch", {"topics": {topic: {}}}), ("DELETE", f"/v0/topics/{topic}", None),
    ):  # fmt: skip
        performance = http.ask(method, path, body).json["performance"]
        assert performance["server_total_ms"] >= 0


@pytest.mark.parametrize(
    ("method", "path", "detail"),
    [
        ("GET", "/v0/topics/none", {"topic": "none"}),
        ("POST", "/v0/topics/none/diff", {"topic": "none"}),
        ("GET", "/v0/routers/none", {"router": "none"}),
        ("GET", "/v0/nowhere", {"path": "/v0/nowhere"}),
        ("GET", "/nowhere?token=secret", {"path": "/nowhere"}),
    ],
)
def test_what_is_not_found_says_in_its_detail_what_it_was(
    http: RawHttp, method: str, path: str, detail: dict[str, str]
) -> None:
    answer = http.ask(method, path, {} if method == "POST" else None)
    assert (answer.status, answer.json["error"]["detail"]) == (404, detail)


def test_health_tells_version_and_uptime_and_readiness_that_the_log_is_replayed(
    http: RawHttp,
) -> None:
    health = http.get("/v0/health").json
    assert (health["status"], health["version"]) == ("ok", headwater.__version__)
    assert health["uptime_ms"] >= 0
    assert http.get("/v0/ready").json["wal_replay_complete"] is True


def test_fields_that_begin_with_x_are_ignored_and_others_are_refused(
    http: RawHttp, topic: str
) -> None:
    body = {"x_trace": 1, "records": [{"data": {"x_in": 1.50}, "x_mine": [], "tag": "t"}]}
    assert http.ask("POST", f"/v0/topics/{topic}", body).status == 201
    (record,) = http.diff(topic, include_tags=True, x_from="me").json["records"]
    assert (record["data"], record["$tag"]) == ({"x_in": 1.5}, "t")
    for wrong in ({**body, "y_trace": 1}, {"records": [{"data": 1, "y": 1}], "x_a": 1}):
        refused = http.ask("POST", f"/v0/topics/{topic}", wrong)
        assert (refused.status, refused.code) == (400, "invalid_request")


def test_seqs_are_left_out_when_the_body_says_so(http: RawHttp, topic: str) -> None:
    records = {"records": [{"data": 1}]}
    path = f"/v0/topics/{topic}"
    assert "seqs" not in http.ask("POST", path, {**records, "return_seqs": False}).json
    assert http.ask("POST", path, {**records, "return_seqs": True}).json["seqs"] == [2]
    assert http.ask("POST", path + "?return_seqs=false", records).json.get("seqs") is None
