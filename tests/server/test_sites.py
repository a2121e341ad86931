"""A server without keys is not used by pages that gave themselves a name which leads to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater.server.access.access import is_foreign, name_of
from headwater.server.health import handlers
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings

OWN = (
    "127.0.0.1", "127.0.0.1:4000", "[::1]:4000", "10.1.2.3:80", "localhost:4000", "LOCALHOST",
    "shop.localhost:4000", "headwater", "headwater:4000", "printer.local", "host.docker.internal",
    "db.example.com:4000", "",
)  # fmt: skip
FOREIGN = (
    "evil.example:4000",
    "evil.example",
    "Evil.Example.",
    "127.0.0.1.evil.example:4000",
    "a.b",
)


@pytest.mark.parametrize("host", OWN)
def test_addresses_and_names_of_ones_own_are_not_foreign(host: str) -> None:
    assert not is_foreign(name_of(host.encode()), "db.example.com")


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names_with_a_dot_are(host: str) -> None:
    assert is_foreign(name_of(host.encode()), "db.example.com")


def test_a_name_that_was_made_to_lead_here_is_refused_without_keys(
    server: RunningServer, http: RawHttp
) -> None:
    for host in FOREIGN:
        page = {"host": host, "origin": f"http://{host}"}
        assert http.ask("GET", "/v0/topics", headers=page).code == "forbidden"
        assert http.ask("GET", "/v0/topics", headers={"host": host}).code == "forbidden"
        assert http.ask("PUT", "/v0/topics/evil", {}, page).code == "forbidden"
        with server.talk() as plain:
            wish = {**page, "upgrade": "websocket", "connection": "Upgrade"}
            assert plain.ask("GET", "/v0/ws", headers=wish).code == "forbidden"
        assert http.ask("GET", "/v0/health", headers=page).status == 200, "open to everybody"
    assert http.get("/v0/topics/evil").status == 404
    assert http.ask("GET", "/v0/topics", headers={"host": "localhost:4000"}).status == 200


@pytest.mark.parametrize(
    "chosen", [{"api_keys": ("some-secret",)}, {"allow_insecure_no_auth": True}], ids=str
)
def test_with_keys_or_when_told_so_any_name_will_do(
    tmp_path: Path, chosen: dict[str, object]
) -> None:
    named = {"host": "shop.example"}
    with (
        running(tmp_path / "data", settings(**chosen)) as server,
        server.talk(key="some-secret") as http,
    ):
        assert http.ask("GET", "/v0/topics", headers=named).status == 200


CHROME = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/156.0.0.0"}
HERE, THERE = "http://127.0.0.1:4000", "http://127.0.0.1:3000"
OURS: tuple[dict[str, str], ...] = (
    {},
    {"user-agent": "curl/8.5"},
    {"sec-fetch-mode": "cors", "user-agent": "node"},  # what Node's fetch says of itself
    {**CHROME, "sec-fetch-site": "same-origin"},
    {**CHROME, "sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
    {"origin": HERE},
    {"origin": HERE.upper()},
    {**CHROME, "origin": HERE, "sec-fetch-site": "same-origin"},
    {**CHROME, "referer": f"{HERE}/ui/index.html"},
    {**CHROME, "origin": "https://desk.example", "sec-fetch-site": "cross-site"},
)
OTHERS: tuple[dict[str, str], ...] = (
    {**CHROME, "sec-fetch-site": "cross-site"},
    {**CHROME, "sec-fetch-site": "same-site"},
    {"sec-fetch-site": "same-origin, cross-site"},
    {"sec-fetch-site": ""},
    {"origin": THERE},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "http://evil.example", "referer": f"{HERE}/"},
    {"origin": HERE, "sec-fetch-site": "cross-site"},
    {"origin": THERE, "sec-fetch-site": "same-origin"},
    {"referer": f"{THERE}/page"},
    {"referer": "http://evil.example/127.0.0.1:4000"},
    {"referer": f"http://evil.example@127.0.0.1:3000/{HERE}"},
    {"referer": "about:blank"},
    {"origin": "https://desk.example.evil.example"},
)


@pytest.fixture(scope="module")
def shared_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    chosen = settings(
        allowed_origins=("https://desk.example/",), allowed_hosts=("Desk.example",), rcpx_port=0
    )
    with running(tmp_path_factory.mktemp("sites") / "data", chosen) as found:
        with found.talk() as http:
            http.put("work", type="queue")
        yield found


def tried(server: RunningServer, headers: dict[str, str]) -> set[int]:
    """What reading, writing and an upgrade are answered."""
    found = set()
    named = {"host": "127.0.0.1:4000", **headers}
    for method, path, body in (
        ("GET", "/v0/topics", None),
        ("HEAD", "/v0/status", None),
        ("POST", "/v0/topics/work", {"records": [{"data": 1}]}),
        ("PUT", "/v0/topics/work", {}),
        ("HEAD", "/v0/topics/work/work?node=w", None),
    ):
        with server.talk() as http:
            found.add(http.ask(method, path, body, named).status)
    with server.talk() as http:
        wish = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13",
                "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
        http.send(http.request("GET", "/v0/ws", headers={**named, **wish}))
        found.add(http.head()[0])
    return found


@pytest.mark.parametrize("headers", OURS, ids=str)
def test_our_own_pages_and_programs_that_are_no_browsers_are_let_in(
    shared_sites: RunningServer, headers: dict[str, str]
) -> None:
    assert tried(shared_sites, headers) <= {200, 201, 101}


@pytest.mark.parametrize("headers", OTHERS, ids=str)
def test_pages_of_other_sites_are_refused_whatever_the_method(
    shared_sites: RunningServer, headers: dict[str, str]
) -> None:
    assert tried(shared_sites, headers) == {403}


def test_a_browser_that_tells_nothing_may_look_but_takes_no_jobs(
    shared_sites: RunningServer,
) -> None:
    """Over plain HTTP to an address of the network browsers leave out what they tell otherwise."""
    named = {"host": "192.0.2.1:4000", **CHROME}
    with shared_sites.talk() as http:
        assert http.ask("GET", "/v0/topics", headers=named).status == 200
        assert http.ask("HEAD", "/v0/topics/work/work?node=w", headers=named).status == 403


@pytest.mark.parametrize("host", ["printer.local", "headwater", "intern", "shop.test:80"])
def test_a_name_of_the_network_is_for_programs_and_not_for_browsers(
    shared_sites: RunningServer, host: str
) -> None:
    with shared_sites.talk() as http:
        assert http.ask("GET", "/v0/topics", headers={"host": host}).status == 200
        for told in (CHROME, {"origin": f"http://{host}"}, {"sec-fetch-site": "same-origin"}):
            assert http.ask("GET", "/v0/topics", headers={"host": host, **told}).status == 403


@pytest.mark.parametrize("host", ["desk.example", "desk.example:4000", "DESK.example."])
def test_a_host_in_the_settings_is_let_in(shared_sites: RunningServer, host: str) -> None:
    named = {"host": host, "origin": f"http://{host}", **CHROME}
    with shared_sites.talk() as http:
        assert http.ask("GET", "/v0/topics", headers=named).status == 200


def test_the_same_head_is_looked_at_once(
    shared_sites: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes that come again and again pay nothing for what browsers send."""
    looked: list[object] = []
    check = shared_sites.app.access.sites.check

    def count(headers: Mapping[bytes, bytes], *, takes_proof: bool) -> None:
        looked.append(headers)
        check(headers, takes_proof=takes_proof)

    monkeypatch.setattr(shared_sites.app.access.sites, "check", count)
    for headers in ({}, {"host": "127.0.0.1", "sec-fetch-site": "same-origin"}):
        looked.clear()
        with shared_sites.talk() as http:
            for _ in range(5):
                request = {"records": [{"data": 1}]}
                assert http.ask("POST", "/v0/topics/once", request, headers).status in (200, 201)
        assert len(looked) == 1


def test_readiness_names_nothing_to_a_page_of_another_site(
    shared_sites: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is open to all, and tells which topics are damaged to those who may ask for them."""
    ledger = SimpleNamespace(count=1)
    monkeypatch.setattr(handlers, "ledgers_of", lambda _app: [ledger])
    monkeypatch.setattr(handlers, "damage_seen", lambda _backend, key: key.may_name("orders"))
    with shared_sites.talk() as http:
        assert http.get("/readyz").json["damage"] is True
        for told in ({"host": "evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = http.ask("GET", "/readyz", headers=told)
            assert (answer.status, answer.json["damage"]) == (200, False)


def test_a_form_that_is_posted_to_another_port_does_nothing(shared_sites: RunningServer) -> None:
    rcpx = shared_sites.app.rcpx
    assert rcpx is not None
    hello = '{"type":"request","id":"1","op":"HELLO","params":{"protocol_version":1}}\n'
    with RawHttp("127.0.0.1", rcpx.port) as form:
        form.send(form.request("POST", "/", hello, {"content-type": "text/plain"}))
        assert b"server_name" not in form.rest()
