"""What a key with prefixes or few scopes can and cannot do to machines, by every way there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import Wire, wire
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings

ADMIN, WRITER, TENANT = "admin-secret", "writer-secret", "tenant-secret"
KEYS = (ADMIN, f"{WRITER}:read+write", f"{TENANT}:read+write+delete:mine")


class Who(NamedTuple):
    http: RawHttp
    rcpx: Wire


class Everybody(NamedTuple):
    admin: Who
    writer: Who
    tenant: Who
    server: RunningServer


@pytest.fixture(scope="module")
def everybody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everybody]:
    directory: Path = tmp_path_factory.mktemp("keys") / "data"
    chosen = settings(rcpx_port=0, api_keys=KEYS, deadlines={"drain_s": 1.0})
    with running(directory, chosen) as server, ExitStack() as stack:
        listener = server.app.rcpx
        assert listener is not None
        found = []
        for secret in (ADMIN, WRITER, TENANT):
            client = stack.enter_context(wire(listener.port))
            client.hello()
            client.ok("AUTH", {"token": secret})
            found.append(Who(stack.enter_context(server.talk(key=secret)), client))
        admin = found[0].rcpx
        for machine in ("mine", "theirs"):
            admin.ok("PUT_MACHINE", {"machine": machine, "version": 1, "definition": ORDER})
        owner, writer, tenant = found
        yield Everybody(owner, writer, tenant, server)


def make(who: Who, machine: str, instance_id: str, **fields: Any) -> None:
    params = {"machine": machine, "instance_id": instance_id, "initial_ctx": {"amount": 1}}
    who.rcpx.ok("CREATE_INSTANCE", params | fields)


def one(op: str, instance_id: str, **params: Any) -> dict[str, Any]:
    return {"op": op, "params": {"instance_id": instance_id, **params}}


def run_batch(who: Who, mode: str, *operations: dict[str, Any]) -> tuple[Any, Any]:
    """The same over HTTP and over RCPX: what both say."""
    told = who.http.ask(
        "POST", "/v0/instances/batch", {"mode": mode, "operations": list(operations)}
    )
    return told, who.rcpx.ask("BATCH", {"mode": mode, "ops": list(operations)})


@pytest.mark.parametrize("mode", ["atomic", "best_effort"])
def test_a_key_that_may_not_delete_cannot_do_so_in_a_batch(
    everybody: Everybody, name: str, mode: str
) -> None:
    make(everybody.admin, "theirs", name)
    told, answer = run_batch(everybody.writer, mode, one("DELETE_INSTANCE", name))
    assert told.status == 403
    assert answer["error"]["code"] == "UNAUTHORIZED"
    assert everybody.admin.rcpx.ok("GET_INSTANCE", {"instance_id": name})["state"] == "created"
    applied, _ = run_batch(everybody.writer, mode, one("APPLY_EVENT", name, event="PAY"))
    assert applied.status == 200


def test_a_creation_of_the_same_id_opens_no_way_to_the_instance_of_another(
    everybody: Everybody, name: str
) -> None:
    make(everybody.admin, "theirs", name)
    operations = (
        one("CREATE_INSTANCE", name, machine="mine"),
        one("APPLY_EVENT", name, event="PAY"),
        one("DELETE_INSTANCE", name),
    )
    for told in run_batch(everybody.tenant, "best_effort", *operations):
        found = told["result"] if isinstance(told, dict) else told.json
        assert [each["status"] for each in found["results"]] == ["ok", "error", "ok"]
        assert found["results"][1]["error"]["code"] == "GUARD_FAILED", "it is another instance"
    assert everybody.admin.rcpx.ok("GET_INSTANCE", {"instance_id": name})["state"] == "created"


def test_a_creation_done_before_opens_no_way_to_the_instance_of_another(
    everybody: Everybody, name: str
) -> None:
    make(everybody.tenant, "mine", name, idempotency_key="once")
    everybody.tenant.rcpx.ok("DELETE_INSTANCE", {"instance_id": name})
    make(everybody.admin, "theirs", name)
    again = one("CREATE_INSTANCE", name, machine="mine", idempotency_key="once")
    told, answer = run_batch(everybody.tenant, "atomic", again, one("DELETE_INSTANCE", name))
    assert told.code == "INSTANCE_NOT_FOUND"
    results = answer["result"]["results"]
    assert [each["result"]["applied"] for each in results] == [False, False], "its own is gone"
    everybody.admin.rcpx.ok("GET_INSTANCE", {"instance_id": name})


def test_a_repeat_under_a_key_is_answered_to_a_tenant_too(everybody: Everybody, name: str) -> None:
    tenant = everybody.tenant.rcpx
    make(everybody.tenant, "mine", name)
    event = {"instance_id": name, "event": "PAY", "idempotency_key": "pay"}
    delete = {"instance_id": name, "idempotency_key": "delete"}
    first = [tenant.ok("APPLY_EVENT", event), tenant.ok("DELETE_INSTANCE", delete)]
    again = [tenant.ok("APPLY_EVENT", event), tenant.ok("DELETE_INSTANCE", delete)]
    assert [each["applied"] for each in first + again] == [True, True, False, False]
    assert [each["wal_offset"] for each in first] == [each["wal_offset"] for each in again]
    told, answer = run_batch(
        everybody.tenant, "atomic", {"op": "DELETE_INSTANCE", "params": delete}
    )
    assert not told.json["results"][0]["result"]["applied"]
    assert not answer["result"]["results"][0]["result"]["applied"]


def test_the_answer_under_the_key_of_another_is_not_shown(everybody: Everybody, name: str) -> None:
    admin, tenant = everybody.admin.rcpx, everybody.tenant.rcpx
    make(everybody.admin, "theirs", name)
    event = {"instance_id": name, "event": "PAY", "idempotency_key": "pay"}
    delete = {"instance_id": name, "idempotency_key": "delete"}
    admin.ok("APPLY_EVENT", event)
    admin.ok("DELETE_INSTANCE", delete)
    for op, params in (("APPLY_EVENT", event), ("DELETE_INSTANCE", delete)):
        assert tenant.ask(op, params)["error"]["code"] == "INSTANCE_NOT_FOUND"


def test_a_drawing_tells_nothing_of_the_instance_of_another(
    everybody: Everybody, name: str
) -> None:
    make(everybody.admin, "theirs", name)
    drawn = everybody.tenant.http.get(f"/v0/machines/mine/versions/1/drawing?instance={name}")
    assert drawn.code == "INSTANCE_NOT_FOUND"
    assert b"theirs" not in drawn.body


@pytest.mark.parametrize("surface", ["http", "rcpx"])
def test_watching_an_id_shows_nothing_of_its_life_in_the_machine_of_another(
    everybody: Everybody, name: str, surface: str
) -> None:
    admin, tenant = everybody.admin.rcpx, everybody.tenant.rcpx
    make(everybody.admin, "theirs", name)
    admin.ok("APPLY_EVENT", {"instance_id": name, "event": "PAY", "payload": {"theirs": True}})
    admin.ok("DELETE_INSTANCE", {"instance_id": name})
    make(everybody.tenant, "mine", name)
    tenant.ok("APPLY_EVENT", {"instance_id": name, "event": "PAY", "payload": {"mine": True}})
    if surface == "http":
        query = f"instance_id={name}&from_offset=0&idle_ms=1"
        heard = b""
        with everybody.server.talk(key=TENANT) as told:
            told.send(told.request("GET", f"/v0/instances/watch?{query}"))
            assert told.head()[0] == 200
            while b'"mine"' not in heard:
                heard += told.take(1)
        assert b"theirs" not in heard
    else:
        watch = tenant.ok("WATCH_INSTANCE", {"instance_id": name, "from_offset": 0})
        assert tenant.hear()["payload"] == {"mine": True}
        tenant.ok("UNWATCH", {"subscription_id": watch["subscription_id"]})
