"""Ids of instances belong to tenants: nobody learns of those of others, or takes one from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import Wire, wire
from tests.server.running_server import RunningServer, eventually, running, settings

MASTER, ANN, ANNS_READER, BOB, SECOND, NESTED = (
    f"{name}-secret" for name in ("master", "ann", "reader", "bob", "second", "nested")
)
KEYS = (
    MASTER,
    f"{ANN}:owner:ann.|shared.",
    f"{ANNS_READER}:read:ann.",
    f"{BOB}:owner:bob.|shared.",
    f"{SECOND}:admin:org=2",
    f"{NESTED}:owner:ann.inner.",
)
MACHINES = ("ann.m", "bob.m", "shared.m", "ann.inner.m", "open")
TOPIC = "machines:transitions"
Ask = Callable[..., tuple[str, Any]]
"""op, params: the code of the error or nothing, and what was answered."""

HTTP: dict[str, tuple[str, str]] = {
    "CREATE_INSTANCE": ("POST", "/v0/instances"),
    "GET_INSTANCE": ("GET", "/v0/instances/{}"),
    "APPLY_EVENT": ("POST", "/v0/instances/{}/events"),
    "DELETE_INSTANCE": ("DELETE", "/v0/instances/{}"),
    "HISTORY": ("GET", "/v0/instances/{}/history"),
    "SNAPSHOT_INSTANCE": ("POST", "/v0/instances/{}/snapshot"),
    "MIGRATE_INSTANCE": ("POST", "/v0/instances/{}/migrate"),
    "BATCH": ("POST", "/v0/instances/batch"),
    "LIST_INSTANCES": ("GET", "/v0/instances?machine={}"),
}


@contextmanager
def serving(directory: Path) -> Iterator[RunningServer]:
    chosen = settings(rcpx_port=0, api_keys=KEYS, deadlines={"drain_s": 1.0})
    with running(directory, chosen) as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving(tmp_path_factory.mktemp("tenants") / "data") as found:
        with found.talk(key=MASTER) as http:
            for machine in MACHINES:
                for version in (1, 2):
                    path = f"/v0/machines/{machine}/versions/{version}"
                    definition = {**ORDER, "meta": {"version": version}}
                    assert http.ask("PUT", path, {"definition": definition}).status == 201
        yield found


def rcpx_of(server: RunningServer, secret: str, stack: ExitStack) -> Wire:
    assert server.app.rcpx is not None
    client: Wire = stack.enter_context(wire(server.app.rcpx.port))
    client.hello()
    client.ok("AUTH", {"token": secret})
    return client


@pytest.fixture(params=["http", "rcpx"])
def asking(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Ask]]:
    """Each test by both ways in."""
    with ExitStack() as stack:

        def over_http(secret: str) -> Ask:
            http = stack.enter_context(server.talk(key=secret))

            def ask(op: str, **params: Any) -> tuple[str, Any]:
                method, path = HTTP[op]
                name = params.pop("machine" if op == "LIST_INSTANCES" else "instance_id", None)
                if "{}" not in path and name is not None:
                    params["instance_id"] = name
                if op == "BATCH":
                    params["operations"] = params.pop("ops")
                body = params if method == "POST" else None
                told = http.ask(method, path.format(name), body)
                return ("", told.json) if told.status < 300 else (told.code, told.json)

            return ask

        def over_rcpx(secret: str) -> Ask:
            client = rcpx_of(server, secret, stack)

            def ask(op: str, **params: Any) -> tuple[str, Any]:
                told = client.ask(op, params)
                if told["status"] == "ok":
                    return "", told["result"]
                return told["error"]["code"], told

            return ask

        yield over_http if request.param == "http" else over_rcpx


def made(ask: Ask, machine: str, name: str, **more: Any) -> tuple[str, Any]:
    context = {"amount": 1}
    return ask("CREATE_INSTANCE", machine=machine, instance_id=name, initial_ctx=context, **more)


def test_two_tenants_give_the_same_id_and_neither_learns_of_it(
    asking: Callable[[str], Ask], name: str
) -> None:
    ann, bob = asking(ANN), asking(BOB)
    name = name[:60]
    assert made(ann, "ann.m", name)[0] == ""
    assert bob("GET_INSTANCE", instance_id=name)[0] == "INSTANCE_NOT_FOUND"
    code, told = made(bob, "bob.m", name)
    assert (code, told["instance_id"], told["machine"]) == ("", name, "bob.m")
    assert made(ann, "ann.m", name)[0] == "INSTANCE_EXISTS", "one's own is told"
    _, told = ann("APPLY_EVENT", instance_id=name, event="PAY")
    assert (told["instance_id"], told["to_state"]) == (name, "paid")
    assert ann("GET_INSTANCE", instance_id=name)[1]["state"] == "paid"
    assert bob("GET_INSTANCE", instance_id=name)[1]["state"] == "created"
    for ask, machine, count in ((ann, "ann.m", 2), (bob, "bob.m", 1)):
        _, told = ask("HISTORY", instance_id=name)
        entries = told.get("entries") or told["history"]
        assert (told["instance_id"], len(entries)) == (name, count)
        assert ask("SNAPSHOT_INSTANCE", instance_id=name)[1]["instance_id"] == name
        _, told = ask("MIGRATE_INSTANCE", instance_id=name, version=3)
        assert ask("LIST_INSTANCES", machine=machine)[1]["instances"]
        listed = [each["id"] for each in ask("LIST_INSTANCES", machine=machine)[1]["instances"]]
        assert name in listed
        assert not any(":" + name in each for each in listed)
    assert bob("DELETE_INSTANCE", instance_id=name)[1]["instance_id"] == name
    assert ann("GET_INSTANCE", instance_id=name)[1]["instance_id"] == name


def test_keys_of_one_tenant_share_their_ids(asking: Callable[[str], Ask], name: str) -> None:
    ann, reader = asking(ANN), asking(ANNS_READER)
    made(ann, "ann.m", name[:60])
    assert reader("GET_INSTANCE", instance_id=name[:60])[1]["instance_id"] == name[:60]


def test_who_speaks_for_nobody_sees_all_by_their_full_names(
    asking: Callable[[str], Ask], name: str
) -> None:
    ann, master, nested = asking(ANN), asking(MASTER), asking(NESTED)
    name = name[:60]
    made(ann, "ann.m", name)
    made(nested, "ann.inner.m", name)
    assert master("GET_INSTANCE", instance_id=name)[0] == "INSTANCE_NOT_FOUND"
    assert master("GET_INSTANCE", instance_id=f"ann.:{name}")[1]["machine"] == "ann.m"
    _, told = master("LIST_INSTANCES", machine="ann.m")
    assert f"ann.:{name}" in [each["id"] for each in told["instances"]]
    # A tenant whose machines are among one's own is seen by its full names too.
    inner = f"ann.inner.:{name}"
    assert ann("GET_INSTANCE", instance_id=inner)[1]["instance_id"] == inner
    assert ann("APPLY_EVENT", instance_id=inner, event="PAY")[0] == ""
    assert nested("GET_INSTANCE", instance_id=name)[1]["state"] == "paid"


def test_plain_ids_go_on_for_those_who_may_name_their_machines(
    asking: Callable[[str], Ask], name: str
) -> None:
    """Data from before ids belonged to tenants, and what an operator makes for one."""
    ann, bob, master = asking(ANN), asking(BOB), asking(MASTER)
    name = name[:60]
    made(master, "ann.m", name, idempotency_key=name)
    assert made(ann, "ann.m", name)[0] == "INSTANCE_EXISTS", "it is told, as it is seen"
    _, again = made(ann, "ann.m", name, idempotency_key=name)
    assert again["applied"] is False
    assert made(bob, "bob.m", name)[0] == ""
    event = {"instance_id": name, "event": "PAY", "idempotency_key": "pay"}
    assert ann("APPLY_EVENT", **event)[1]["applied"] is True
    assert master("GET_INSTANCE", instance_id=name)[1]["state"] == "paid"
    assert bob("GET_INSTANCE", instance_id=name)[1]["state"] == "created"
    repeat = {"instance_id": name, "idempotency_key": "gone"}
    if asking.__name__ == "over_rcpx":
        assert ann("DELETE_INSTANCE", **repeat)[0] == ""
        assert ann("APPLY_EVENT", **event)[1]["applied"] is False
        assert ann("DELETE_INSTANCE", **repeat)[1]["applied"] is False
        assert made(ann, "ann.m", name)[0] == ""
        assert master("GET_INSTANCE", instance_id=f"ann.:{name}")[0] == ""


def test_an_organisation_has_ids_of_its_own(asking: Callable[[str], Ask], name: str) -> None:
    second, master = asking(SECOND), asking(MASTER)
    name = name[:60]
    assert made(master, "open", name)[0] == ""
    code, told = made(second, "open", name)
    assert (code, told["instance_id"]) == ("", name)
    assert second("APPLY_EVENT", instance_id=name, event="PAY")[0] == ""
    assert master("GET_INSTANCE", instance_id=name)[1]["state"] == "created"
    assert master("GET_INSTANCE", instance_id=f"org=2:{name}")[1]["state"] == "paid"


def test_errors_call_an_instance_as_its_tenant_does(
    asking: Callable[[str], Ask], name: str
) -> None:
    ann = asking(ANN)
    name = name[:60]
    made(ann, "ann.m", name)
    for op, more in (
        ("CREATE_INSTANCE", {"machine": "ann.m"}),
        ("APPLY_EVENT", {"event": "SHIP"}),
        ("MIGRATE_INSTANCE", {"version": 1}),
    ):
        code, told = ann(op, instance_id=name, **more)
        assert code
        assert "ann.:" not in json.dumps(told), op
    code, told = ann("GET_INSTANCE", instance_id="nobody")
    assert (code, "'nobody'" in json.dumps(told)) == ("INSTANCE_NOT_FOUND", True)
    for bad in ("", "x" * 300, "a\nb"):
        if asking.__name__ == "over_rcpx":
            assert made(ann, "ann.m", bad)[0] == "BAD_REQUEST"


@pytest.mark.parametrize("mode", ["atomic", "best_effort"])
def test_a_batch_is_about_the_instances_of_its_tenant(
    asking: Callable[[str], Ask], name: str, mode: str
) -> None:
    ann, bob = asking(ANN), asking(BOB)
    name = name[:60]
    made(bob, "bob.m", name)
    context = {"machine": "ann.m", "instance_id": name, "initial_ctx": {"amount": 1}}
    operations = [
        {"op": "CREATE_INSTANCE", "params": context},
        {"op": "APPLY_EVENT", "params": {"instance_id": name, "event": "PAY"}},
    ]
    code, told = ann("BATCH", mode=mode, ops=operations)
    assert code == ""
    assert [each["result"]["instance_id"] for each in told["results"]] == [name, name]
    code, told = ann("BATCH", mode=mode, ops=operations)
    assert "ann.:" not in json.dumps(told)
    told = ann("BATCH", mode=mode, ops=[{"op": "DELETE_INSTANCE", "params": {"instance_id": name}}])
    assert told[1]["success_count"] == 1
    assert bob("GET_INSTANCE", instance_id=name)[1]["state"] == "created"


def test_on_a_machine_that_two_share_ids_are_each_ones_own(
    asking: Callable[[str], Ask], name: str
) -> None:
    ann, bob = asking(ANN), asking(BOB)
    name = name[:60]
    assert made(ann, "shared.m", name)[0] == ""
    assert made(bob, "shared.m", name)[0] == ""
    _, told = bob("LIST_INSTANCES", machine="shared.m")
    listed = [each["id"] for each in told["instances"]]
    assert {name, f"ann.:{name}"} <= set(listed), "both see both: the machine is both's"


def test_who_creates_and_applies_without_waiting_is_understood(
    server: RunningServer, name: str
) -> None:
    with ExitStack() as stack:
        ann, bob = rcpx_of(server, ANN, stack), rcpx_of(server, BOB, stack)
        made_for = {"instance_id": name[:60], "initial_ctx": {"amount": 1}}
        bob.ok("CREATE_INSTANCE", {**made_for, "machine": "bob.m"})
        for number in range(20):
            ann.say("CREATE_INSTANCE", {**made_for, "machine": "ann.m"})
            ann.say("APPLY_EVENT", {"instance_id": name[:60], "event": "PAY"})
            ann.say("DELETE_INSTANCE", {"instance_id": name[:60]})
            told = [ann.hear() for _ in range(3)]
            assert [each["status"] for each in told] == ["ok"] * 3, (number, told)
        assert bob.ok("GET_INSTANCE", {"instance_id": name[:60]})["state"] == "created"


# -- following


@pytest.mark.parametrize("begin", ["live", "history"])
def test_a_watch_tells_each_by_the_name_it_has_for_it(
    server: RunningServer, name: str, begin: str
) -> None:
    name = name[:60]
    with ExitStack() as stack:
        ann, bob, master = (rcpx_of(server, key, stack) for key in (ANN, BOB, MASTER))
        for client, machine in ((ann, "ann.m"), (bob, "bob.m")):
            params = {"machine": machine, "instance_id": name, "initial_ctx": {"amount": 1}}
            client.ok("CREATE_INSTANCE", params)
        offset = ann.ok("WAL_STATS")["current_offset"]
        start: dict[str, Any] = {"from_offset": offset} if begin == "history" else {}

        def pay() -> None:
            ann.ok("APPLY_EVENT", {"instance_id": name, "event": "PAY"})
            bob.ok("APPLY_EVENT", {"instance_id": name, "event": "PAY"})

        if begin == "history":
            pay()
        watching = [rcpx_of(server, key, stack) for key in (ANN, ANNS_READER, MASTER)]
        for client in watching:
            client.ok("WATCH_ALL", {"machines": ["ann.m"], **start})
        one = rcpx_of(server, ANN, stack)
        assert one.ok("WATCH_INSTANCE", {"instance_id": name, **start})["instance_id"] == name
        http = stack.enter_context(server.talk(key=ANN))
        query = f"instance_id={name}" + (f"&from_offset={offset}" if start else "")
        http.send(http.request("GET", f"/v0/instances/watch?{query}"))
        assert http.head()[0] == 200
        if begin == "live":
            pay()
        heard = [client.hear()["instance_id"] for client in (*watching, one)]
        assert heard == [name, name, f"ann.:{name}", name]
        text = b""
        while b'"event":"PAY"' not in text:
            text += http.take(1)
        text += http.take(1)
        assert f'"instance_id":"{name}"'.encode() in text
        assert master.ok("GET_INSTANCE", {"instance_id": f"ann.:{name}"})["state"] == "paid"


# -- lasting


def test_what_a_restart_and_a_compaction_leave_is_the_same(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    for round_ in range(3):
        with serving(directory) as server:
            with server.talk(key=MASTER) as master:
                if not round_:
                    for machine in ("ann.m", "bob.m"):
                        path = f"/v0/machines/{machine}/versions/1"
                        master.ask("PUT", path, {"definition": ORDER})
                elif round_ == 1:
                    assert master.ask("POST", "/v0/machines/compact", {}).status == 200
                for key, machine in ((ANN, "ann.m"), (BOB, "bob.m")):
                    with server.talk(key=key) as http:
                        body = {"machine": machine, "instance_id": "one"}
                        status = http.ask("POST", "/v0/instances", body).status
                        assert status == (409 if round_ else 201), (round_, key)
                        path = "/v0/instances/one/events"
                        assert http.ask("POST", path, {"event": "CANCEL"}).status == 200
                        assert http.get("/v0/instances/one").json["machine"] == machine
                        told = http.get("/v0/instances/one/history").json
                        assert "bob.:" not in json.dumps(told)
                listed = master.get("/v0/instances").json["instances"]
                assert [each["id"] for each in listed] == ["ann.:one", "bob.:one"]
            if round_ == 2:
                with server.talk(key=MASTER) as master:
                    eventually(lambda: len(master.diff(TOPIC).json.get("records", ())) == 6)
                    told = json.dumps(master.diff(TOPIC).json)
                    for full in ("ann.:one", "bob.:one"):
                        assert told.count(full) >= 3, "the topic is everybody's"
