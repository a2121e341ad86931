"""docs/access.md is what the server does: every line of it, asked with every kind of key."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from headwater.server.kafka.api_handlers import HANDLED
from headwater.server.rcpx.operations import OPERATIONS
from headwater.server.routes import every_route
from headwater.wire.kafka.apis import SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.messages import MESSAGES
from tests.kafka.broker import Broker, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_server_access import plain, sign_in
from tests.kafka.test_server_tables import sample
from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import Wire, wire

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
KINDS = (
    "no key", "read", "write", "delete", "read+write", "read+delete", "owner:a.", "admin:a.",
    "owner", "admin",
)  # fmt: skip
USERS = tuple(kind for kind in KINDS[1:] if ":" not in kind)
TENANTS = ("owner:a.", "admin:a.")
DENIED = {401, 403}
KAFKA_DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
CONFIG = "with `config`"


class Line(NamedTuple):
    what: str
    names: str
    allowed: frozenset[str]


def lines(table: str) -> list[Line]:
    """The rows of one of the page's tables, by the word at its beginning."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n| {table} | ")[2]
    header, _, *rows = section.partition("\n\n")[0].strip().split("\n")
    kinds = [cell.strip(" `") for cell in header.rstrip(" |").split("|")]
    has_names = kinds[0] == "names"
    kinds = ["no key" if kind == "no user" else kind for kind in kinds[has_names:]]
    assert tuple(kinds) == (KINDS if has_names else ("no key", *USERS))
    found = []
    for row in rows:
        what, *cells = (cell.strip() for cell in row.strip()[1:-1].split("|"))
        names = cells.pop(0) if has_names else ""
        assert len(cells) == len(kinds), row
        assert set(cells) <= {"yes", ""}, row
        marked = zip(kinds, cells, strict=True)
        found.append(Line(what, names, frozenset(kind for kind, cell in marked if cell)))
    return found


HTTP, RCPX, KAFKA = lines("HTTP"), lines("RCPX"), lines("Kafka")


def secret_of(kind: str) -> str:
    return re.sub(r"[+:.]", "-", kind) + "-secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tuple(f"{secret_of(kind)}:{kind}" for kind in KINDS[1:])
    users = tuple(f"{kind}:{secret_of(kind)}:1:{kind}" for kind in USERS)
    directory = tmp_path_factory.mktemp("access") / "data"
    with running_broker(directory, api_keys=keys, kafka_users=users, rcpx_port=0) as found:
        with found.talk(key=secret_of("admin")) as http:
            for prefix in ("a.", "b."):
                http.put(f"{prefix}log")
                http.ask("PUT", f"/v0/machines/{prefix}m/versions/1", {"definition": ORDER})
                made = {"machine": f"{prefix}m", "instance_id": f"{prefix}i"}
                assert http.ask("POST", "/v0/instances", made).status == 201
        yield found


# -- the page has everything


def test_the_page_has_every_route_operation_and_api() -> None:
    extra = {line.what for line in HTTP if line.what.startswith("WS ") or CONFIG in line.what}
    assert {line.what for line in HTTP} - extra == {f"{r.method} `{r.path}`" for r in every_route()}
    assert len(extra) == 4
    parts = {"`BATCH` with `DELETE_INSTANCE`", "`BATCH` with `GET_INSTANCE`"}
    batch = {f"`{op}`" for op in OPERATIONS} | parts
    assert {line.what for line in RCPX} == batch
    apis = {"".join(word.capitalize() for word in api.name.split("_")) for api in HANDLED}
    assert {line.what for line in KAFKA} == apis


def test_every_stream_that_a_browser_can_open_takes_its_key_in_the_query() -> None:
    streams = {"work", "watch", "{wid}", "ws"}
    for route in every_route():
        is_stream = route.method == "GET" and route.path.rpartition("/")[2] in streams
        assert route.takes_token == is_stream, route.path
        assert route.takes_token == ("token" in [each.name for each in route.query]), route.path


# -- HTTP


def body_of(method: str, path: str, prefix: str) -> Any:
    topic = f"{prefix}log"
    bodies: dict[tuple[str, str], Any] = {
        ("POST", "/v0/topics/{topic}"): {"records": [{"data": 1}]},
        ("POST", f"/v0/topics/{{topic}} {CONFIG}"): {
            "records": [{"data": 1}], "config": {"cap_records": 1000},
        },
        ("POST", "/v0/watch"): {"topics": {topic: {}}},
        ("PUT", "/v0/routers/{router}"): {"source": topic, "dest": f"{prefix}copy"},
        ("PUT", "/v0/machines/{machine}/versions/{version}"): {"definition": ORDER},
        ("POST", "/v0/instances"): {"machine": f"{prefix}m", "instance_id": f"{prefix}new"},
        ("POST", "/v0/instances/{instance_id}/events"): {"event": "CANCEL"},
        ("POST", "/v0/instances/{instance_id}/migrate"): {"version": 2},
        ("POST", "/v0/instances/batch"): {
            "mode": "atomic",
            "operations": [{"op": "CREATE_INSTANCE", "params": {"machine": f"{prefix}m"}}],
        },
    }  # fmt: skip
    return bodies.get((method, path), {}) if method in ("POST", "PUT") else None


def ask_http(server: Broker, kind: str, what: str, prefix: str) -> tuple[int, str]:
    """The status, and the code when it is an error."""
    method, _, rest = what.replace("`", "", 2).partition(" ")
    path = rest.partition(" ")[0]
    filled = re.sub(r"{topic}", f"{prefix}log", path).replace("{router}", f"{prefix}router")
    filled = filled.replace("{machine}", f"{prefix}m").replace("{version}", "1")
    filled = filled.replace("{instance_id}", f"{prefix}i").replace("{wid}", "w")
    filled = filled.replace("{file}", "main.js")
    if path in ("/v0/instances", "/v0/instances/watch") and method == "GET":
        filled += f"?machine={prefix}m&machines={prefix}m&idle_ms=0"
    # A stream has no end; who does not take one is told so when it would be let in.
    is_stream = path == "/v0/instances/watch" and prefix == "a."
    headers = {"accept": "application/json"} if is_stream else {}
    key = None if kind == "no key" else secret_of(kind)
    with server.talk(key=key) as http:
        told = http.ask(method, filled, body_of(method, rest, prefix), headers)
    problem = told.json.get("error", {}) if told.body[:9] == b'{"error":' else {}
    return told.status, problem.get("code", "")


def say(server: Broker, kind: str, what: str, prefix: str) -> str:
    """The code that a message over a WebSocket is answered with, or its operation."""
    headers = {} if kind == "no key" else {"Authorization": f"Bearer {secret_of(kind)}"}
    message: dict[str, Any] = {"op": what.split("`")[1], "topic": f"{prefix}log"}
    if message["op"] == "publish":
        message["records"] = [{"data": 1}]
    if CONFIG in what:
        message["config"] = {"cap_records": 1000}
    try:
        with connect(f"ws://127.0.0.1:{server.port}/v0/ws", additional_headers=headers) as socket:
            socket.send(json.dumps(message))
            told = json.loads(socket.recv(timeout=20))
    except InvalidStatus as refused:
        return "forbidden" if refused.response.status_code in DENIED else "?"
    code: str = told.get("code", told["op"])
    return code


@pytest.mark.parametrize("line", HTTP, ids=lambda line: line.what)
def test_a_route_lets_in_whom_the_page_says(server: Broker, line: Line) -> None:
    for kind in KINDS:
        if line.what.startswith("WS "):
            let_in = say(server, kind, line.what, "a.") != "forbidden"
        else:
            status, code = ask_http(server, kind, line.what, "a.")
            let_in = status not in DENIED
            assert status < 500 or code == "not_ready", (kind, code)
        assert let_in == (kind in line.allowed), kind


@pytest.mark.parametrize("kind", TENANTS)
@pytest.mark.parametrize("line", [each for each in HTTP if each.names], ids=lambda each: each.what)
def test_a_route_is_closed_to_a_tenant_for_the_names_of_others(
    server: Broker, line: Line, kind: str
) -> None:
    if line.what.startswith("WS "):
        assert say(server, kind, line.what, "b.") == "forbidden"
        return
    status, code = ask_http(server, kind, line.what, "b.")
    wanted = (404, "INSTANCE_NOT_FOUND") if line.names == "its machine" else (403, "forbidden")
    assert (status, code) == wanted


# -- RCPX


def params_of(op: str, prefix: str) -> dict[str, Any]:
    machine, instance = f"{prefix}m", f"{prefix}i"
    params: dict[str, dict[str, Any]] = {
        "HELLO": {"protocol_version": 1},
        "AUTH": {"method": "bearer", "token": secret_of("admin")},
        "PUT_MACHINE": {"machine": machine, "version": 1, "definition": ORDER},
        "GET_MACHINE": {"machine": machine, "version": 1},
        "CREATE_INSTANCE": {"machine": machine},
        "LIST_INSTANCES": {"machine": machine},
        "APPLY_EVENT": {"instance_id": instance, "event": "CANCEL"},
        "MIGRATE_INSTANCE": {"instance_id": instance, "version": 2},
        "WATCH_ALL": {"machines": [machine]},
        "UNWATCH": {"subscription_id": "sub-0"},
        "WAL_READ": {"from_offset": 0},
        "BATCH": {
            "mode": "best_effort",
            "ops": [{"op": "CREATE_INSTANCE", "params": {"machine": machine}}],
        },
    }
    for part in ("DELETE_INSTANCE", "GET_INSTANCE"):
        of_one = {"op": part, "params": {"instance_id": f"{prefix}none"}}
        params[f"BATCH {part}"] = {"mode": "best_effort", "ops": [of_one]}
    nothing = ("PING", "BYE", "INFO", "LIST_MACHINES", "WAL_STATS", "COMPACT", "FLUSH_ALL")
    return {} if op in nothing else params.get(op, {"instance_id": instance})


@contextlib.contextmanager
def admitted(server: Broker, kind: str) -> Iterator[Wire]:
    assert server.app.rcpx is not None
    with wire(server.app.rcpx.port) as client:
        client.hello()
        if kind != "no key":
            client.ok("AUTH", {"token": secret_of(kind)})
        yield client


def ask_rcpx(server: Broker, kind: str, what: str, prefix: str) -> str:
    """The code of the error, or nothing."""
    op, *part = re.findall(r"`(\w+)`", what)
    with admitted(server, kind) as client:
        told = client.ask(op, params_of(" ".join([op, *part]), prefix))
        if told["status"] == "ok":
            return ""
        code: str = told["error"]["code"]
        return code


@pytest.mark.parametrize("line", RCPX, ids=lambda line: line.what)
def test_an_operation_lets_in_whom_the_page_says(server: Broker, line: Line) -> None:
    for kind in KINDS:
        code = ask_rcpx(server, kind, line.what, "a.")
        assert code != "INTERNAL_ERROR", kind
        assert (code != "UNAUTHORIZED") == (kind in line.allowed), (kind, code)


@pytest.mark.parametrize("kind", TENANTS)
@pytest.mark.parametrize("line", [each for each in RCPX if each.names], ids=lambda each: each.what)
def test_an_operation_is_closed_to_a_tenant_for_the_names_of_others(
    server: Broker, line: Line, kind: str
) -> None:
    if " with " in line.what:
        return  # of an instance that is not there for it, which is told part by part
    wanted = "INSTANCE_NOT_FOUND" if line.names == "its machine" else "UNAUTHORIZED"
    assert ask_rcpx(server, kind, line.what, "b.") == wanted


# -- Kafka


def codes_in(told: Any) -> set[int]:
    """Every error code in an answer, wherever it stands."""
    if isinstance(told, list):
        return set().union(*map(codes_in, told))
    if not isinstance(told, dict):
        return set()
    own = {value for name, value in told.items() if name == "error_code"}
    return own.union(*map(codes_in, told.values()))


def is_let_in(server: Broker, kind: str, api: ApiKey) -> bool:
    values = sample(MESSAGES[api].request, SUPPORTED[api].newest)
    if api is ApiKey.PRODUCE:
        values["acks"] = -1  # or there is no answer
    with RawKafka(server.kafka_port) as speaker:
        if kind != "no key":
            assert sign_in(speaker, plain(kind, secret_of(kind)))["error_code"] == 0
        try:
            told = speaker.ask(api, values)
        except ConnectionResetError:
            return False
    return not codes_in(told) & KAFKA_DENIED


@pytest.mark.parametrize("line", KAFKA, ids=lambda line: line.what)
def test_an_api_lets_in_whom_the_page_says(server: Broker, line: Line) -> None:
    (api,) = (api for api in ApiKey if api.name.replace("_", "").lower() == line.what.lower())
    for kind in ("no key", *USERS):
        assert is_let_in(server, kind, api) == (kind in line.allowed), kind
