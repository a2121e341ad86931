"""One server with a Kafka port for all tests of a worker, and names that no two tests share."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.kafka.broker import Broker, running_broker
from tests.kafka.speaking import Speaker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as found:
        yield found


@pytest.fixture
def speaker(broker: Broker) -> Iterator[Speaker]:
    with Speaker(broker.kafka_port) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """For a topic or a group."""
    module = request.node.path.stem.removeprefix("test_")
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"{module}.{request.node.name}")[:200]
