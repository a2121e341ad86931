"""One server with a Kafka port for all tests of a worker, and names that no two tests share."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import headwater
from tests.kafka.bridges import Cluster
from tests.kafka.broker import Broker, running_broker
from tests.kafka.protocols import Target
from tests.kafka.raw_kafka import RawKafka


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as found:
        yield found


@pytest.fixture
def speaker(broker: Broker) -> Iterator[RawKafka]:
    with RawKafka(broker.kafka_port) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """For a topic or a group."""
    module = request.node.path.stem.removeprefix("test_")
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"{module}.{request.node.name}")[:200]


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def kafka_topic(broker: Broker, admin: AdminClient, name: str) -> Target:
    """A Kafka topic with two partitions; its first is looked at."""
    admin.create_topics([NewTopic(name, 2)])[name].result(20)
    return Target(broker, name, f"kafka:{name}:0")


@pytest.fixture
def native_topic(broker: Broker, name: str) -> Target:
    with headwater.Client(f"http://127.0.0.1:{broker.port}") as client:
        client.create(name)
    return Target(broker, name, name)


@pytest.fixture
def source(broker: Broker) -> Cluster:
    return Cluster(broker.bootstrap)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("second") / "data") as found:
        yield found


@pytest.fixture
def dest(second: Broker) -> Cluster:
    return Cluster(second.bootstrap)
