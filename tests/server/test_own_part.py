"""Two tenants on one server: what each is told is its own part, wherever it looks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.wire.kafka.apis import ApiKey
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_server_access import plain, sign_in
from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import wire
from tests.rig.kafka import batch_of
from tests.server.raw_http import Answer, Events
from tests.server.watches import open_watch

MASTER, ANN, BOB, WRITER = "master-secret", "ann-secret", "bob-secret", "writer-secret"
KEYS = (
    MASTER,
    f"{ANN}:admin:ann.|kafka:ann.",
    f"{BOB}:admin:bob.|kafka:bob.",
    f"{WRITER}:write",
)
OTHERS = ("bob", "BOB")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory: Path = tmp_path_factory.mktemp("own") / "data"
    users = ("master:master-password",)
    with running_broker(directory, api_keys=KEYS, kafka_users=users, rcpx_port=0) as found:
        with found.talk(key=MASTER) as http:
            for name, count in (("ann", 2), ("bob", 5)):
                http.write(f"{name}.log", *range(count))
                http.put(f"{name}.jobs", type="queue")
                http.write(f"{name}.jobs", *range(count))
                ends = {"source": f"{name}.log", "dest": f"{name}.copy"}
                http.ask("PUT", f"/v0/routers/{name}.router", ends)
                http.ask("PUT", f"/v0/machines/{name}.m/versions/1", {"definition": ORDER})
                for _ in range(count):
                    http.ask("POST", "/v0/instances", {"machine": f"{name}.m"})
        with RawKafka(found.kafka_port) as speaker:
            assert sign_in(speaker, plain("master", "master-password"))["error_code"] == 0
            for name in ("ann", "bob"):
                speaker.make_topic(f"{name}.events")
                speaker.produce(f"{name}.events", batch_of("a", "b"))
                rows = [{"partition_index": 0, "committed_offset": 1}]
                topics = [{"name": f"{name}.events", "partitions": rows}]
                values = {"group_id": f"{name}-group", "topics": topics}
                told = speaker.ask(ApiKey.OFFSET_COMMIT, values)
                assert told["topics"][0]["partitions"][0]["error_code"] == 0
        yield found


def get(server: Broker, path: str, key: str = ANN, **headers: str) -> Answer:
    with server.talk(key=key) as http:
        return http.get(path, **headers)


@pytest.mark.parametrize(
    "path",
    ["/v0/topics", "/v0/routers", "/v0/machines", "/v0/instances?machine=ann.m", "/v0/status",
     "/v0/metrics", "/metrics", "/v0/kafka/topics", "/v0/kafka/groups", "/v0/machines/wal/stats"],
)  # fmt: skip
@pytest.mark.parametrize("accept", ["text/plain", "application/json"])
def test_a_tenant_reads_the_name_of_no_other_anywhere(
    server: Broker, path: str, accept: str
) -> None:
    told = get(server, path, accept=accept)
    assert told.status == 200
    assert b"bob" not in told.body
    if "status" not in path and "stats" not in path:
        assert b"ann" in told.body, "but its own"
        assert b"bob" in get(server, path.replace("ann", "bob"), MASTER, accept=accept).body


def test_the_totals_of_a_tenant_are_of_its_own_topics(server: Broker) -> None:
    ann, bob, whole = (get(server, "/v0/status", key).json for key in (ANN, BOB, MASTER))
    assert [told["own_part"] for told in (ann, bob, whole)] == [True, True, False]
    assert (ann["totals"]["topics"], ann["totals"]["routers"]) == (3, 1)
    assert (ann["totals"]["jobs_ready"], bob["totals"]["jobs_ready"]) == (2, 5)
    assert whole["totals"]["records"] >= ann["totals"]["records"] + bob["totals"]["records"] > 0
    assert set(ann) == set(whole)
    for name in ("connections", "tail_bytes", "watch_sessions"):
        assert ann[name] == 0
    assert (set(ann["counters"].values()), ann["shards"]) == ({0}, [])
    assert whole["shards"]


def metrics_of(server: Broker, key: str) -> dict[str, float]:
    """Those without a label."""
    told = get(server, "/metrics", key).body.decode()
    rows = [line.split(" ") for line in told.splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, value in rows if "{" not in name}


def test_the_metrics_of_a_tenant_count_what_is_its_own(server: Broker) -> None:
    ann, whole = metrics_of(server, ANN), metrics_of(server, MASTER)
    assert ann["headwater_topics"] == 3
    assert (ann["headwater_machines"], ann["headwater_machine_instances"]) == (1, 2)
    assert (whole["headwater_machines"], whole["headwater_machine_instances"]) == (2, 7)
    assert ann["headwater_ready"] == 1
    for name in ("connections", "kafka_topics", "kafka_connections", "appends_total"):
        assert f"headwater_{name}" in whole, name
        assert f"headwater_{name}" not in ann, name


def test_the_machines_log_tells_a_tenant_where_it_ends_and_no_more(server: Broker) -> None:
    assert server.app.rcpx is not None
    ann, whole = (get(server, "/v0/machines/wal/stats", key).json for key in (ANN, MASTER))
    assert ann["current_offset"] == whole["current_offset"] > 0
    assert (ann["entry_count"], ann["total_size_bytes"], ann["own_part"]) == (0, 0, True)
    assert whole["entry_count"] > 0
    with wire(server.app.rcpx.port) as client:
        client.hello()
        client.ok("AUTH", {"token": ANN})
        assert client.ok("WAL_STATS")["entry_count"] == 0
        stats = client.ok("INFO")["stats"]
        assert (stats["machines"], stats["instances"], stats["wal_size_bytes"]) == (1, 2, 0)


def test_a_tenant_sees_groups_that_read_its_topics(server: Broker) -> None:
    (group,) = get(server, "/v0/kafka/groups").json["groups"]
    assert (group["group"], group["lag"]) == ("ann-group", 1)
    assert len(get(server, "/v0/kafka/groups", MASTER).json["groups"]) == 2


def test_a_router_of_others_that_is_in_the_way_is_not_named(server: Broker) -> None:
    with server.talk(key=MASTER) as http:
        for name, source, dest in (("bob.1", "ann.x", "bob.x"), ("bob.2", "bob.x", "ann.y")):
            http.write(source, 1)
            assert http.ask("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}).status
        circle = {"source": "ann.y", "dest": "ann.x"}
        assert b"bob.x" in http.ask("PUT", "/v0/routers/ann.circle", circle).body
    with server.talk(key=ANN) as ann:
        told = ann.ask("PUT", "/v0/routers/ann.circle", circle)
        assert told.code == "router_cycle"
        assert b"bob" not in told.body
        told = ann.ask("DELETE", "/v0/topics/ann.x")
        assert told.json["routers_removed"] == []
    with server.talk(key=MASTER) as http:
        http.ask("DELETE", "/v0/topics/ann.y")


# -- what a key that only writes can take away


def test_a_key_that_only_writes_takes_no_record_away(server: Broker) -> None:
    with server.talk(key=WRITER) as writer, server.talk(key=MASTER) as master:
        writer.write("precious", *range(10))
        shrink: dict[str, Any] = {"cap_records": 1}
        assert writer.put("precious", **shrink).code == "forbidden"
        assert writer.write("precious", 1, config=shrink).code == "forbidden"
        ends = {"source": "precious", "dest": "taken"}
        assert writer.ask("PUT", "/v0/routers/taken", ends).code == "forbidden"
        assert writer.ask("DELETE", "/v0/topics/precious").code == "forbidden"
        assert writer.write("precious", 11).json["head_seq"] == 11
        seen = master.get("/v0/topics/precious").json
        assert (seen["count"], seen["config"]["cap_records"]) == (11, 0)


def test_the_first_write_makes_a_topic_with_default_settings(server: Broker) -> None:
    with server.talk(key=WRITER) as writer, server.talk(key=MASTER) as master:
        assert writer.write("made.by.writing", 1, config={}).status == 201
        assert writer.write("made.otherwise", 1, config={"type": "queue"}).status == 403
        assert master.get("/v0/topics/made.otherwise").status == 404
        defaults = master.put("made.by.owner").json["config"]
        assert master.get("/v0/topics/made.by.writing").json["config"] == defaults


# -- the key in an address


def test_a_watch_opens_with_its_key_in_the_query(server: Broker) -> None:
    with server.talk(key=ANN) as http:
        wid = open_watch(http, {"ann.log": {}})
    with server.talk() as http:
        assert http.get(f"/v0/watch/{wid}").status == 401
        assert http.get(f"/v0/watch/{wid}?token=wrong-secret").status == 401
        assert http.get(f"/v0/watch/{wid}?token={BOB}").status == 404
        events = Events(http, f"{wid}?token={ANN}")
        assert events.status == 200
        assert len(events.records(2)) == 2


def test_a_key_in_an_address_is_in_no_log(
    server: Broker, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in ours nor in those of libraries, told to write down everything."""
    caplog.set_level(logging.DEBUG)
    upgrade = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13",
               "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
    for token in (ANN, "wrong-secret"):
        for path in ("/v0/watch/none", "/v0/topics/ann.none/work", "/v0/instances/watch", "/v0/ws"):
            with server.talk() as http:
                headers = upgrade if path == "/v0/ws" else {"accept": "text/event-stream"}
                told = f"{path}?node=w&idle_ms=0&machines=ann.m&token={token}"
                http.send(http.request("GET", told, headers=headers))
                assert http.head()[0] in (101, 200, 401, 404)
            with server.talk(key=token) as http:
                http.send(http.request("GET", "/v0/ws", headers=upgrade))
                assert http.head()[0] in (101, 401)
    assert "-secret" not in "".join(capsys.readouterr())
    assert "-secret" not in caplog.text
