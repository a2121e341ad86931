"""One server for all tests of a module, and a fresh connection to it for each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory: Path = tmp_path_factory.mktemp("server") / "data"
    with running(directory, settings(deadlines={"drain_s": 1.0})) as found:
        yield found


@pytest.fixture
def http(server: RunningServer) -> Iterator[RawHttp]:
    with server.talk() as connection:
        yield connection


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    name: str = request.node.name
    return re.sub(r"[^A-Za-z0-9._:-]", "-", name)[:200]
