"""kill -9 under load: what was acked is there, once, in order, and offsets have no holes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from headwater.wire.kafka.apis import ApiKey
from tests.kafka.broker import free_port
from tests.kafka.raw_kafka import RawKafka
from tests.rig.server_process import ServerProcess

PARTITIONS = 3
PATIENCE_S = 60.0


class Load:
    """A producer that goes on through everything, and remembers what was acked."""

    def __init__(self, bootstrap: str, topic: str, *, idempotent: bool) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failed: list[KafkaError] = []
        self.sent = 0
        self.enough = threading.Event()
        self.ack_seen = threading.Event()
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 20,
                "enable.idempotence": idempotent,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": int(PATIENCE_S * 1_000),
                "queue.buffering.max.messages": 2_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def wait_for_acks(self, count: int) -> None:
        """So many more than there are now."""
        wanted = len(self.acked) + count
        while len(self.acked) < wanted:
            self.ack_seen.clear()
            assert self.ack_seen.wait(PATIENCE_S), "nothing is acked any more"

    def finish(self) -> None:
        self.enough.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self.enough.is_set():
            try:
                self._producer.produce(
                    self._topic, b"record %d" % self.sent, partition=self.sent % PARTITIONS,
                    on_delivery=self._note,
                )  # fmt: skip
                self.sent += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        assert self.acked.setdefault((partition, offset), value) == value
        self.ack_seen.set()


def stored(bootstrap: str, topic: str) -> dict[tuple[int, int], bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "log_level": 0})
    found: dict[tuple[int, int], bytes] = {}
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)[1]
            for number in range(PARTITIONS)
        }
        while missing := sum(ends.values()) - len(found):
            messages = consumer.consume(min(missing, 5_000), timeout=PATIENCE_S)
            assert messages, f"only {len(found)} of {ends}"
            for message in messages:
                assert message.error() is None, message.error()
                found[message.partition(), message.offset()] = message.value()  # type: ignore[index,assignment]
    finally:
        consumer.close()
    for number, end in ends.items():
        offsets = sorted(offset for partition, offset in found if partition == number)
        assert offsets == list(range(end)), "offsets have holes"
    return found


def kill_under_load(directory: Path, rounds: int, acks_a_round: int, *, idempotent: bool) -> None:
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    # The last word wins: the rig turns this port off for servers that do not need it.
    with ServerProcess(directory, HEADWATER_KAFKA_PORT=str(port)) as server:
        wait_for_kafka(port)
        with RawKafka(port) as speaker:
            speaker.make_topic("load", PARTITIONS)
        load = Load(bootstrap, "load", idempotent=idempotent)
        for _ in range(rounds):
            load.wait_for_acks(acks_a_round)
            server.restart(kill=True)
        load.wait_for_acks(acks_a_round)
        load.finish()
        wait_for_kafka(port)
        found = stored(bootstrap, "load")
    assert not load.failed, load.failed[:3]
    assert load.acked.items() <= found.items()
    if idempotent:
        assert len(load.acked) == load.sent
        assert sorted(found.values()) == sorted(
            b"record %d" % number for number in range(load.sent)
        )
        in_order(found)


def in_order(found: dict[tuple[int, int], bytes]) -> None:
    for number in range(PARTITIONS):
        numbers = [int(found[key].split()[1]) for key in sorted(found) if key[0] == number]
        assert numbers == sorted(numbers)


def wait_for_kafka(port: int) -> None:
    """The port is bound before anything is recovered; an answer means that it is."""
    with RawKafka(port) as speaker:
        assert speaker.ask(ApiKey.API_VERSIONS)["error_code"] == 0


@pytest.mark.crash
def test_nothing_acked_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    kill_under_load(tmp_path / "data", 1, 500, idempotent=True)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_nothing_acked_is_lost_when_the_server_is_killed_often(
    tmp_path: Path, idempotent: bool
) -> None:
    kill_under_load(tmp_path / "data", 15, 3_000, idempotent=idempotent)
