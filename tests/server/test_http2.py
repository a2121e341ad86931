"""HTTP/2: the same requests and answers, on streams that do not wait for each other."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from h2.errors import ErrorCodes

from headwater.server.http.http2_connection import RESETS_FREE
from tests.server.raw_http import Answer, RawHttp
from tests.server.raw_http2 import RawHttp2
from tests.server.running_server import RunningServer, eventually, running, settings
from tests.server.test_foreign_clients import CURL, certificate, needs_curl

NOTHING = Answer(0, {}, b"")


@pytest.fixture
def http2(server: RunningServer) -> Iterator[RawHttp2]:
    with RawHttp2(server.host, server.port) as connection:
        yield connection


def test_every_kind_of_answer_is_the_same_as_over_http1(
    http: RawHttp, http2: RawHttp2, topic: str
) -> None:
    http.write(topic, "x", {"deep": [1, 2]})
    asked = [
        ("GET", "/v0/health", None),
        ("GET", f"/v0/topics/{topic}", None),
        ("POST", f"/v0/topics/{topic}/diff", {"from_seq": 0}),
        ("GET", "/v0/nothing", None),
        ("POST", f"/v0/topics/{topic}", {"records": "none"}),
        ("HEAD", "/readyz", None),
        ("GET", "/dashboard/", None),
    ]
    changing = {"content-length", "x-request-id", "connection", "date"}
    for method, path, body in asked:
        one, two = http.ask(method, path, body), http2.ask(method, path, body)
        assert one.status == two.status, path
        kept = [{k: v for k, v in each.headers.items() if k not in changing} for each in (one, two)]
        assert kept[0] == kept[1], path
        if "json" in one.headers.get("content-type", "") and method != "HEAD":
            shared = [json.loads(each.body) for each in (one, two)]
            for each in shared:
                each.pop("performance", None)
            assert shared[0].keys() == shared[1].keys(), path
        elif method != "HEAD":
            assert one.body == two.body, path


def test_writes_of_one_turn_are_all_stored_and_answered(http2: RawHttp2, topic: str) -> None:
    http2.ask("PUT", f"/v0/topics/{topic}", {})
    streams = [
        http2.start("POST", f"/v0/topics/{topic}", {"records": [{"data": number}]})
        for number in range(100)
    ]
    seqs = [http2.answer(stream).json["first_seq"] for stream in streams]
    assert seqs == list(range(1, 101))
    records = http2.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": 0}).json["records"]
    assert [record["data"] for record in records] == list(range(100))


def test_a_stream_that_waits_holds_up_no_other(http2: RawHttp2, topic: str) -> None:
    http2.ask("PUT", f"/v0/topics/{topic}", {})
    waiting = http2.start("POST", f"/v0/topics/{topic}/diff", {"from_seq": 0, "wait_ms": 20_000})
    assert http2.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}).status == 200
    assert [each["data"] for each in http2.answer(waiting).json["records"]] == [1]


def test_a_long_answer_and_a_long_request_go_in_pieces(http2: RawHttp2, topic: str) -> None:
    records = [{"data": f"{number}" * 900_000} for number in range(4)]
    assert http2.ask("POST", f"/v0/topics/{topic}", {"records": records}).json["count"] == 4
    for number, record in enumerate(records):
        found = http2.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": number, "limit": 1})
        assert found.json["records"][0]["data"] == record["data"]


def test_events_are_sent_as_they_come_and_the_stream_ends_when_the_client_resets_it(
    server: RunningServer, http2: RawHttp2, topic: str
) -> None:
    http2.ask("PUT", f"/v0/topics/{topic}", {})
    wid = http2.ask("POST", "/v0/watch", {"topics": {topic: {"from_seq": 0}}}).json["wid"]
    stream = http2.start("GET", f"/v0/watch/{wid}")
    http2.until(lambda: b"caught-up" in http2.answers.get(stream, NOTHING).body)
    http2.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": "seen"}]})
    http2.until(lambda: b"seen" in http2.answers[stream].body)
    http2.h2.reset_stream(stream)
    http2.flush()
    streams = server.app.delivery.streams
    eventually(lambda: server.inside(lambda: streams.sse_count) == 0)
    assert http2.ask("GET", "/v0/health").status == 200


def test_a_body_over_the_limit_is_refused_at_its_length_and_the_connection_goes_on(
    http2: RawHttp2,
) -> None:
    stream = http2.begin("POST", "/v0/topics/t", {"content-length": "99999999999"})
    assert http2.answer(stream).status == 413
    http2.until(lambda: stream in http2.resets)
    assert http2.resets[stream] == ErrorCodes.NO_ERROR
    assert http2.ask("GET", "/v0/health").status == 200


def test_a_client_that_opens_streams_only_to_reset_them_is_sent_away(http2: RawHttp2) -> None:
    for _ in range(RESETS_FREE + 1):
        http2.h2.reset_stream(http2.begin("POST", "/v0/topics/t"))
        http2.flush()
    http2.until(lambda: http2.goodbye is not None)
    assert http2.goodbye is not None
    assert http2.goodbye.error_code == ErrorCodes.ENHANCE_YOUR_CALM


def test_who_takes_nothing_of_an_answer_is_disconnected(tmp_path: Path) -> None:
    chosen = settings(deadlines={"idle_s": 1.0, "drain_s": 1.0})
    with (
        running(tmp_path / "data", chosen) as server,
        RawHttp2(server.host, server.port) as client,
    ):
        client.ask("POST", "/v0/topics/t", {"records": [{"data": "x" * 900_000}]})
        client.takes = False
        client.start("POST", "/v0/topics/t/diff", {"from_seq": 0})
        with pytest.raises((ConnectionError, OSError)):
            client.until(lambda: False)


def test_a_request_that_does_not_arrive_is_given_up_and_others_are_not(tmp_path: Path) -> None:
    chosen = settings(deadlines={"body_s": 1.0, "drain_s": 1.0})
    with (
        running(tmp_path / "data", chosen) as server,
        RawHttp2(server.host, server.port) as client,
    ):
        late = client.begin("POST", "/v0/topics/t")
        assert client.answer(late).status == 408
        assert client.ask("GET", "/v0/health").status == 200


def test_a_server_that_stops_says_goodbye_and_finishes_what_is_under_way(tmp_path: Path) -> None:
    chosen = settings(deadlines={"drain_s": 5.0})
    with running(tmp_path / "data", chosen) as server:
        client = RawHttp2(server.host, server.port)
        client.ask("PUT", "/v0/topics/t", {})
        waiting = client.start("POST", "/v0/topics/t/diff", {"from_seq": 0, "wait_ms": 60_000})
        client.ask("GET", "/v0/health")
    with client:
        assert client.answer(waiting).json["records"] == []
        client.until(lambda: client.goodbye is not None)
        assert client.goodbye is not None
        assert client.goodbye.error_code == ErrorCodes.NO_ERROR


@needs_curl
def test_httpx_and_curl_agree_on_it_over_tls(tmp_path: Path) -> None:
    certificate_path, key_path = certificate(tmp_path)
    chosen = settings(tls_certificate=str(certificate_path), tls_key=str(key_path))
    trust = ssl.create_default_context(cafile=str(certificate_path))
    with running(tmp_path / "data", chosen) as server:
        address = f"https://127.0.0.1:{server.port}/v0/health"
        with httpx.Client(verify=trust, http2=True) as client:
            assert client.get(address).http_version == "HTTP/2"
        with httpx.Client(verify=trust) as client:
            assert client.get(address).http_version == "HTTP/1.1"
        curl = [str(CURL), "-s", "--http2", "--cacert", str(certificate_path)]
        said = subprocess.run(
            [*curl, "-o", "/dev/null", "-w", "%{http_version}", address],
            capture_output=True,
            timeout=30,
            check=True,
        )
        assert said.stdout == b"2"


def test_it_is_begun_without_tls_by_who_knows_that_it_is_spoken(server: RunningServer) -> None:
    with httpx.Client(http1=False, http2=True) as client:
        assert client.get(f"http://127.0.0.1:{server.port}/v0/health").http_version == "HTTP/2"
