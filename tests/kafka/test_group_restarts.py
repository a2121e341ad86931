"""Consumers that live through restarts of the server: no commit fails, no record comes again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from headwater.wire.kafka.apis import ApiKey, ErrorCode
from tests.kafka.broker import free_port, running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_clients_confluent import GROUP, PATIENCE_S, QUICK, read
from tests.kafka.test_killed import wait_for_kafka
from tests.kafka.test_server_groups import commit, committed, enter, heartbeat, joined, sync
from tests.rig.server_process import ServerProcess
from tests.server.running_server import eventually

KILLS = pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])


class Restarting:
    """A server on one port, and consumers of a topic on it."""

    def __init__(self, server: ServerProcess, port: int) -> None:
        self._server = server
        self._port = port
        self._bootstrap = {"bootstrap.servers": f"127.0.0.1:{port}", **QUICK}

    def restart(self, *, kill: bool) -> None:
        self._server.restart(kill=kill)
        wait_for_kafka(self._port)

    def make(self, topic: str, partitions: int) -> None:
        with RawKafka(self._port) as speaker:
            speaker.make_topic(topic, partitions)

    def fill(self, topic: str, partitions: int, each: int) -> None:
        producer = Producer(self._bootstrap)
        for number in range(partitions * each):
            producer.produce(topic, b"%d" % number, partition=number % partitions)
        assert producer.flush(PATIENCE_S) == 0

    def consumer(self, topic: str) -> Consumer:
        more = {"group.id": "readers", "reconnect.backoff.max.ms": 100}
        made = Consumer({**self._bootstrap, **GROUP, **more, "queued.min.messages": 1})
        made.subscribe([topic])
        return made

    def generation(self) -> int:
        """By who may say that it is there."""
        with RawKafka(self._port) as speaker:
            members = [member["member_id"] for member in self.group()["members"]]
            (found,) = (
                number
                for number in range(10)
                if all(heartbeat(speaker, "readers", each, number) == 0 for each in members)
            )
            return found

    def group(self) -> dict[str, Any]:
        with RawKafka(self._port) as speaker:
            told = speaker.ask(ApiKey.DESCRIBE_GROUPS, {"groups": ["readers"]})
            found: dict[str, Any] = told["groups"][0]
            return found


@contextmanager
def restarting(directory: Path) -> Iterator[Restarting]:
    port = free_port()
    with ServerProcess(directory, HEADWATER_KAFKA_PORT=str(port)) as server:
        wait_for_kafka(port)
        yield Restarting(server, port)


@KILLS
def test_a_consumer_commits_after_a_restart_and_reads_nothing_twice(
    tmp_path: Path, kill: bool
) -> None:
    with restarting(tmp_path / "data") as rig:
        rig.make("orders", 1)
        rig.fill("orders", 1, 10)
        with closing(rig.consumer("orders")) as consumer:
            offsets = [message.offset() for message in read(consumer, 5)]
            before, generation = rig.group(), rig.generation()
            rig.restart(kill=kill)
            assert rig.group() == before
            assert _committed(consumer) == [5]
            offsets += [message.offset() for message in read(consumer, 5)]
            consumer.commit(asynchronous=False)
            assert (rig.group(), rig.generation()) == (before, generation)
        assert offsets == list(range(10))
        assert rig.group()["group_state"] == "Empty"


@KILLS
def test_two_members_go_on_with_what_each_was_assigned(tmp_path: Path, kill: bool) -> None:
    with restarting(tmp_path / "data") as rig, ExitStack() as stack:
        rig.make("orders", 2)
        pair = [stack.enter_context(closing(rig.consumer("orders"))) for _ in range(2)]
        eventually(lambda: _have_one_each(pair))
        assigned = [_partitions(each) for each in pair]
        rig.fill("orders", 2, 50)
        found = [[_place(message) for message in read(each, 5)] for each in pair]
        before, generation = rig.group(), rig.generation()
        assert len(before["members"]) == 2
        rig.restart(kill=kill)
        for each in pair:
            assert _committed(each) == [5]
        for places, each in zip(found, pair, strict=True):
            places += [_place(message) for message in read(each, 45)]
            each.commit(asynchronous=False)
        assert (rig.group(), rig.generation()) == (before, generation)
        assert [_partitions(each) for each in pair] == assigned
    assert found == [[(number, offset) for offset in range(50)] for (number,) in assigned]


def _place(message: Any) -> tuple[int, int]:
    return message.partition(), message.offset()


def _committed(consumer: Consumer) -> list[int]:
    """Commit what was read, and where that is. Raises what the server says against it."""
    told = consumer.commit(asynchronous=False)
    assert told is not None
    assert [each.error for each in told] == [None] * len(told)
    return [each.offset for each in told]


def _partitions(consumer: Consumer) -> list[int]:
    return [place.partition for place in consumer.assignment()]


def _have_one_each(consumers: list[Consumer]) -> bool:
    for each in consumers:
        assert each.poll(0.05) is None, "there is nothing to read yet"
    return sorted(_partitions(each) for each in consumers) == [[0], [1]]


def test_heartbeats_and_commits_go_on_over_a_restart_on_the_wire(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        speaker.make_topic("orders")
        member = enter(speaker, "workers")
        assert joined(speaker)["generation_id"] == 1
        assert sync(speaker, "workers", member, 1, **{member: b"all"})["error_code"] == 0
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        assert heartbeat(speaker, "workers", member, 1) == 0
        assert commit(speaker, "workers", "orders", 3, member, 1) == 0
        assert committed(speaker, "workers", "orders")[0] == 3
        assert commit(speaker, "workers", "orders", 4, member, 0) == ErrorCode.ILLEGAL_GENERATION
        assert sync(speaker, "workers", member, 1)["assignment"] == b"all"
        values = {"group_id": "workers", "members": [{"member_id": member}]}
        assert speaker.ask(ApiKey.LEAVE_GROUP, values)["error_code"] == 0
    with running_broker(tmp_path / "data") as broker, RawKafka(broker.kafka_port) as speaker:
        assert heartbeat(speaker, "workers", member, 1) == ErrorCode.UNKNOWN_MEMBER_ID
