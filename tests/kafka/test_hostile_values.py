"""Requests that are well formed and make no sense: every API, every version, values by chance.

Whatever they ask for, they are answered or hung up on, and no handler fails in a way nobody
thought of.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.codec import request_frame
from tests.kafka.broker import Broker
from tests.kafka.raw_kafka import RawKafka
from tests.unit.wire.kafka.random_values import EVERY_VERSION, fields_of, fill

PATIENCE_S = 0.05
WAITING = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH}
"""These may wait for others, as long as they are told to. Nor is there an answer to acks=0."""
TOPIC = "hostile-values"


@pytest.fixture
def failures(broker: Broker) -> Iterator[list[str]]:
    """What a handler did not think of."""
    endpoint, found = broker.endpoint, list[str]()
    told = endpoint.broken

    def broken(call: Any, error: BaseException) -> None:
        found.append(f"{call.api.name} {call.version}: {error!r}")
        told(call, error)

    endpoint.broken = broken  # type: ignore[method-assign]
    yield found
    endpoint.broken = told  # type: ignore[method-assign]


def sensible(values: Any, chance: random.Random) -> Any:
    """The same with some names that are there, so that more than the first check is met."""
    if isinstance(values, list):
        return [sensible(each, chance) for each in values]
    if not isinstance(values, dict):
        return values
    found = {name: sensible(each, chance) for name, each in values.items()}
    for name in ("name", "topic", "resource_name"):
        if isinstance(found.get(name), str) and chance.random() < 0.6:
            found[name] = TOPIC
    for name in ("partition", "partition_index", "index", "fetch_offset", "offset"):
        if isinstance(found.get(name), int) and chance.random() < 0.6:
            found[name] = chance.randrange(3)
    for name in ("max_wait_ms", "rebalance_timeout_ms", "timeout_ms"):
        if name in found:
            found[name] = chance.choice((-1, 0, 1))
    if "resource_type" in found:
        found["resource_type"] = chance.choice((0, 2, 4, 127))
    return found


def send_by_chance(broker: Broker, rounds: int) -> None:
    with RawKafka(broker.kafka_port) as speaker:
        speaker.ask(ApiKey.CREATE_TOPICS, {"topics": [{"name": TOPIC, "num_partitions": 2}]})
    for api, version in EVERY_VERSION:
        for number in range(rounds):
            chance = random.Random(f"{api} {version} {number}")
            values = fill(fields_of(api, request=True), version, chance)
            if number % 2:
                values = sensible(values, chance)
            with RawKafka(broker.kafka_port) as hostile:
                silent = api in WAITING or values.get("acks") == 0
                hostile.patience(PATIENCE_S if silent else 20.0)
                hostile.send(request_frame(api, version, 1, "by chance", values))
                try:
                    hostile.answer(api, version, 1)
                except ConnectionResetError:
                    pass  # hung up on
                except TimeoutError:
                    assert silent, (api, version)


def test_values_by_chance_fail_no_handler(broker: Broker, failures: list[str]) -> None:
    send_by_chance(broker, 2)
    assert failures == []


@pytest.mark.slow
def test_many_values_by_chance_fail_no_handler(broker: Broker, failures: list[str]) -> None:
    send_by_chance(broker, 20)
    assert failures == []
