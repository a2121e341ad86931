"""A server of its own for each test that restarts it, and one for all that only use it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.client import Retry
from tests.rig.server_process import ServerProcess

QUICK = Retry(give_up_after_s=30.0, first_delay_s=0.01, longest_delay_s=0.2)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("shared") / "data") as server:
        yield server


@pytest.fixture
def client(shared: ServerProcess) -> Iterator[headwater.Client]:
    with headwater.Client(shared.url, retry=QUICK, rng=random.Random(1)) as client:
        yield client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server
