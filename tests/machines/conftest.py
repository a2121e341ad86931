"""One server for all tests of a module, with HTTP and RCPX; machines and instances of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings

ORDER: dict[str, Any] = {
    "states": ["created", "paid", "shipped"],
    "initial": "created",
    "transitions": [
        {"from": "created", "event": "PAY", "to": "paid", "guard": "ctx.amount > 0"},
        {"from": ["created", "paid"], "event": "CANCEL", "to": "created"},
        {"from": "paid", "event": "SHIP", "to": "shipped"},
    ],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory: Path = tmp_path_factory.mktemp("machines") / "data"
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 1.0})
    with running(directory, chosen) as found:
        yield found


@pytest.fixture
def rcpx_port(server: RunningServer) -> int:
    listener = server.app.rcpx
    assert listener is not None
    return listener.port


@pytest.fixture
def http(server: RunningServer) -> Iterator[RawHttp]:
    with server.talk() as connection:
        yield connection


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    made: str = request.node.name
    return re.sub(r"[^A-Za-z0-9._:-]", "-", made)[:200]
