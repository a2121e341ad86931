"""Who may do what: every route of the OpenAPI document, with every kind of wrong key."""

from __future__ import annotations

import hmac
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from headwater.config.server import ServerSettings
from headwater.core.errors import RequestError
from headwater.server.access.keys import KeyRing, parse_key
from headwater.server.http.openapi import openapi_document
from headwater.server.routes import every_route
from headwater.server.server import Server
from tests.server.raw_http import Answer, RawHttp
from tests.server.running_server import RunningServer, running, settings
from tests.server.watches import open_watch

ADMIN, READER, WRITER, DELETER, TENANT, OTHER = (
    f"{name}-secret" for name in ("admin", "reader", "writer", "deleter", "tenant", "other")
)
KEYS = (
    ADMIN,
    f"{READER}:read",
    f"{WRITER}:write",
    f"{DELETER}:delete",
    f"{TENANT}:read+write+delete+admin:acme.|shared.",
    f"{OTHER}:read+write:other.",
)
OPEN = {
    "/v0/health", "/healthz", "/v0/ready", "/readyz", "/openapi.json", "/docs", "/", "/ui/{file}",
}  # fmt: skip
SCOPES: dict[tuple[str, str], set[str]] = {
    ("POST", "/v0/topics/{topic}"): {WRITER},
    ("PUT", "/v0/topics/{topic}"): set(),
    ("POST", "/v0/topics/{topic}/delete"): {DELETER},
    ("DELETE", "/v0/topics/{topic}"): set(),
    **{
        ("POST", "/v0/topics/{topic}/" + verb): set() for verb in ("claim", "ack", "nack", "extend")
    },
    ("POST", "/v0/topics/{topic}/requeue"): set(),
    **{(method, path): set() for method in ("GET", "HEAD") for path in ("/v0/jobs", "/v0/trace")},
    **{(method, "/v0/topics/{topic}/work"): set() for method in ("GET", "HEAD")},
    **{(method, "/v0/routers/{router}"): set() for method in ("PUT", "DELETE")},
    ("PUT", "/v0/machines/{machine}/versions/{version}"): {WRITER},
    **{
        ("POST", "/v0/instances" + rest): {WRITER}
        for rest in (
            "",
            "/batch",
            "/{instance_id}/events",
            "/{instance_id}/migrate",
            "/{instance_id}/snapshot",
        )
    },
    ("DELETE", "/v0/instances/{instance_id}"): {DELETER},
    ("POST", "/v0/machines/wal/read"): set(),
    ("POST", "/v0/machines/compact"): set(),
}
"""Which of the keys with a single scope may use a route; reading is for the reader."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("keys") / "data", settings(api_keys=KEYS)) as found:
        yield found


def walk() -> list[tuple[str, str]]:
    """Every method and path of the document, and HEAD where there is GET."""
    document = openapi_document(every_route())
    found = []
    for path, operations in document["paths"].items():
        for method in operations:
            found.append((method.upper(), path))
            if method == "get":
                found.append(("HEAD", path))
    return found


def ask(server: RunningServer, method: str, path: str, key: str | None, topic: str) -> Answer:
    body: dict[str, Any] | None = None
    if method == "POST":
        body = {"records": [{"data": 1}]} if path.endswith("{topic}") else {}
        if path.endswith("/delete"):
            body = {"before_seq": 1}
        if path == "/v0/watch":
            body = {"topics": {topic: {}}}
    filled = re.sub(r"{topic}|{q}|{router}", topic, path).replace("{wid}", "w")
    filled = filled.replace("{file}", "main.js")
    # A stream has no end; who does not take one is told so.
    headers = {"accept": "application/json"} if path == "/v0/instances/watch" else {}
    with server.talk(key=key) as http:
        return http.ask(method, filled, body, headers=headers)


def test_the_walk_sees_every_route_there_is() -> None:
    seen = walk()
    assert {(route.method, route.path) for route in every_route()} <= set(seen)
    assert {path for _, path in seen} >= OPEN
    assert {route.path for route in every_route() if route.is_open} == OPEN


@pytest.mark.parametrize(("method", "path"), walk())
def test_without_a_good_key_only_open_routes_answer(
    server: RunningServer, method: str, path: str
) -> None:
    for key in (None, "wrong-secret", "", ADMIN + "x", ADMIN[:-1], "admin-secret:read", "*"):
        answer = ask(server, method, path, key, "acme.a")
        if path in OPEN:
            assert answer.status == 200
        else:
            assert answer.status == 401, (key, answer)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert method == "HEAD" or answer.code == "unauthorized"


@pytest.mark.parametrize(("method", "path"), walk())
def test_a_key_without_the_scope_is_refused(server: RunningServer, method: str, path: str) -> None:
    if path in OPEN or path == "/v0/ws":
        return
    allowed = SCOPES.get((method, path), {READER})
    for key in (READER, WRITER, DELETER):
        answer = ask(server, method, path, key, "acme.scope")
        if key in allowed:
            assert answer.status not in (401, 403), (key, answer)
        else:
            assert answer.status == 403, (key, answer)
    assert ask(server, method, path, ADMIN, "acme.scope").status not in (401, 403)


@pytest.mark.parametrize(("method", "path"), walk())
def test_a_key_cannot_name_what_is_not_under_its_prefixes(
    server: RunningServer, method: str, path: str
) -> None:
    if "{topic}" not in path and path != "/v0/watch":
        return
    for name in ("other.a", "acme", "Acme.a", "%61cm.a", "..acme.a", "shared"):
        wanted = 400 if path == "/v0/watch" and not name[0].isalnum() else 403
        assert ask(server, method, path, TENANT, name).status == wanted, name
    for name in ("acme.a", "shared.b", "%61cme.a"):
        assert ask(server, method, path, TENANT, name).status != 403 or name.startswith("%")


@pytest.mark.parametrize(
    "header",
    [
        "", "Bearer", "Bearer ", "Basic YWRtaW46YWRtaW4=", ADMIN, f"Token {ADMIN}",
        f"Bearer {ADMIN}, Bearer {ADMIN}", f"Bearer {ADMIN} x", "Bearer \xff\xfe",
    ],
)  # fmt: skip
def test_only_one_bearer_key_is_a_key(server: RunningServer, header: str) -> None:
    with server.talk() as http:
        assert http.get("/v0/topics", authorization=header).status == 401
    with server.talk() as http:
        assert http.get("/v0/topics", authorization=f"bearer  {ADMIN} ").status == 200
        twice = http.request("GET", "/v0/topics", headers={"authorization": f"Bearer {ADMIN}"})
        http.send(twice.replace(b"host: test", b"host: test\r\nauthorization: Bearer wrong"))
        assert http.answer().status == 401


def test_methods_cannot_be_overridden(server: RunningServer) -> None:
    with server.talk(key=READER) as http:
        for header in ("x-http-method-override", "x-method-override", "x-http-method"):
            answer = http.ask("GET", "/v0/topics/acme.scope", headers={header: "DELETE"})
            assert answer.status in (200, 404)


def test_lists_and_metrics_show_only_what_a_key_may_name(server: RunningServer) -> None:
    with server.talk(key=ADMIN) as admin, server.talk(key=TENANT) as tenant:
        for name in ("acme.x", "other.hidden", "zebra.hidden"):
            admin.put(name)
        listed = [each["topic"] for each in tenant.get("/v0/topics?page_size=1000").json["topics"]]
        assert "acme.x" in listed
        assert all(name.startswith(("acme.", "shared.")) for name in listed)
        assert tenant.get("/v0/topics?prefix=other.").json["topics"] == []
        for accept in ("text/plain", "application/json"):
            shown = tenant.get("/v0/metrics", accept=accept).body.decode()
            assert "acme.x" in shown
            assert "hidden" not in shown
            assert "other.hidden" in admin.get("/v0/metrics", accept=accept).body.decode()


def test_names_in_bodies_are_held_to_the_prefixes_too(server: RunningServer) -> None:
    with server.talk(key=ADMIN) as admin:
        admin.write("other.secret", "secret")
        admin.write("acme.mine", "mine")
    with server.talk(key=TENANT) as http:
        for name in ("other.secret", "*", "o*", "acm*", "other.*"):
            answer = http.ask("POST", "/v0/watch?lenient=true", {"topics": {name: {}}})
            assert (answer.status, answer.code) == (403, "forbidden"), name
        assert http.put("acme.q", dead_letter="other.secret").code == "forbidden"
        config = {"dead_letter": "other.secret"}
        assert http.write("acme.q2", 1, config=config).code == "forbidden"
        found = http.ask("POST", "/v0/watch", {"topics": {"acme.*": {}}}).json
        assert all(name.startswith("acme.") for name in found["topics"])


def test_a_watch_opens_only_with_the_key_that_made_it(server: RunningServer) -> None:
    with server.talk(key=TENANT) as http:
        http.write("shared.w", 1)
        wid = open_watch(http, {"shared.w": {}})
    for key in (ADMIN, READER, OTHER):
        with server.talk(key=key) as http:
            assert http.get(f"/v0/watch/{wid}").code == "not_found"
    with server.talk(key=TENANT) as http:
        http.send(http.request("GET", f"/v0/watch/{wid}"))
        assert http.head()[0] == 200


def test_a_websocket_is_held_to_scopes_and_prefixes(server: RunningServer) -> None:
    url = f"ws://127.0.0.1:{server.port}/v0/ws"
    with pytest.raises(InvalidStatus) as refused:
        connect(url)
    assert refused.value.response.status_code == 401

    def say(key: str, **message: Any) -> Any:
        headers = {"Authorization": f"Bearer {key}"}
        with connect(url, additional_headers=headers) as socket:
            socket.send(json.dumps(message))
            return json.loads(socket.recv(timeout=20))

    publish = {"op": "publish", "topic": "acme.ws", "records": [{"data": 1}]}
    assert say(READER, **publish)["code"] == "forbidden"
    assert say(WRITER, **publish)["op"] == "ack"
    assert say(OTHER, **publish)["code"] == "forbidden"
    assert say(TENANT, **publish)["op"] == "ack"
    config = {**publish, "topic": "acme.ws2", "config": {"dead_letter": "other.x"}}
    assert say(TENANT, **config)["code"] == "forbidden"
    assert say(WRITER, op="subscribe", topic="acme.ws")["code"] == "forbidden"
    assert say(OTHER, op="subscribe", topic="acme.ws")["code"] == "forbidden"
    assert say(READER, op="subscribe", topic="acme.ws")["op"] == "subscribed"


def test_pages_of_other_sites_may_speak_when_keys_are_asked_for(server: RunningServer) -> None:
    with server.talk(key=ADMIN) as http:
        assert http.get("/v0/topics", origin="http://elsewhere.example").status == 200


def test_no_secret_shows_in_answers_or_logs(
    server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = b""
    for key in (None, "wrong-secret", *(text.partition(":")[0] for text in KEYS)):
        for method, path in walk():
            answers += ask(server, method, path, key, "acme.log").body
    with server.talk() as http:
        http.send(
            f"GET /v0/topics HTTP/1.1\r\nHost: x\r\nAuthorization: {ADMIN}\x00\r\n\r\n".encode()
        )
        answers += http.rest()
    printed = "".join(capsys.readouterr())
    for text in (answers.decode(errors="replace"), printed):
        assert not re.search(r"\w+-secret", text)


# -- starting


@pytest.mark.parametrize(
    "text",
    ["short", "", "long-enough:everything", "long-enough:read,write", "long-enough:read+nothing",
     "long-enough:+", "long-enough:Read"],
)  # fmt: skip
def test_a_key_that_is_not_well_formed_refuses_to_start_without_showing_it(text: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_key(text)
    assert not text or text.partition(":")[0] not in str(refused.value)


def test_keys_are_kept_as_digests_and_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = KeyRing(KEYS)
    assert b"secret" not in repr(vars(ring)).encode()
    seen: list[int] = []
    original = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        seen.append(1)
        return original(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    ring.find(f"Bearer {ADMIN}".encode())
    assert len(seen) == len(KEYS), "the first match does not end the search"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_a_public_address_without_keys_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(RequestError, match="without API keys"):
        Server(tmp_path / "data", ServerSettings(host=host, port=0))
    Server(tmp_path / "data", ServerSettings(host=host, port=0, api_keys=KEYS))
    Server(tmp_path / "data", ServerSettings(host=host, port=0, allow_insecure_no_auth=True))


def test_the_data_belongs_to_its_owner_alone(server: RunningServer) -> None:
    with server.talk(key=ADMIN) as http:
        http.write("acme.files", 1)
    paths = [server.directory, *server.directory.rglob("*")]
    assert len(paths) > 5
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
    assert all(re.fullmatch(r"[\w.-]+", path.name) for path in paths)
    assert not any("acme" in str(path.relative_to(server.directory)) for path in paths)


def test_plain_connections_cannot_pretend(server: RunningServer) -> None:
    with RawHttp(server.host, server.port) as http:
        forwarded = {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1"}
        assert http.ask("GET", "/v0/topics", headers=forwarded).status == 401
