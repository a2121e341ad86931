"""A server without keys is not used by pages that gave themselves a name which leads to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.server.sites import is_foreign, name_of
from tests.server.running import RunningServer, running, settings
from tests.server.speaking import Browserless

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
    server: RunningServer, http: Browserless
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
