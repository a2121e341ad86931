"""Two servers and a bridge between them, as processes of their own: one of them can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.client.bridge.bridge import Bridge
from headwater.client.bridge.settings import BridgeProgress, BridgeSettings
from headwater.client.bridge.settings import Cluster as Address

PATIENCE_S = 60.0


class Cluster:
    """Any Kafka, by its address."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.address = f"kafka://{bootstrap}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def make(self, topic: str, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic(topic, partitions)])[topic].result(PATIENCE_S)

    def write(self, topic: str, first: int, count: int, partitions: int = 1) -> None:
        """Numbered records, over all partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(first, first + count):
            producer.produce(
                topic,
                b"value %d" % number,
                b"key %d" % number,
                number % partitions,
                timestamp=1_700_000_000_000 + number,
                headers=[("n", b"%d" % number)],
            )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, topic: str, partition: int = 0) -> list[Any]:
        """Everything in a partition: key, value, headers, time."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "looking",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        try:
            spot = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(spot, timeout=PATIENCE_S)
            consumer.assign([TopicPartition(topic, partition, low)])
            found: list[Any] = []
            while len(found) < high - low:
                messages = consumer.consume(min(high - low - len(found), 1_000), PATIENCE_S)
                assert messages
                for message in messages:
                    assert message.error() is None, message.error()
                    found.append(
                        (message.key(), message.value(), message.headers(), message.timestamp()[1])
                    )
            return found
        finally:
            consumer.close()


def length(cluster: Cluster, topic: str, partitions: int = 2) -> int:
    """Where its partitions end, added up."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "looking"})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1]
            for n in range(partitions)
        )
    except KafkaException:
        return 0  # not made yet
    finally:
        consumer.close()


def command(source: Cluster, dest: Cluster, topics: str, *more: str) -> list[str]:
    words = ["bridge", "--from", source.address, "--to", dest.address, "--topics", topics, "--json"]
    return [sys.executable, "-m", "headwater", *words, *more]


def bridge(
    source: Cluster, dest: Cluster, topic: str, *, name: str, skip_lost: bool = False
) -> BridgeProgress:
    """Copy everything there is, and end: in this process, which starts faster."""
    settings = BridgeSettings(
        Address(source.address), Address(dest.address), (topic,), name, True, skip_lost, 0.05
    )
    return Bridge(settings, threading.Event()).run()


class Background:
    """A bridge in a thread, until it is told to stop or stops by itself."""

    def __init__(self, settings: BridgeSettings) -> None:
        self.stop = threading.Event()
        self.told: BridgeProgress | None = None
        self.error: Exception | None = None
        self._bridge = Bridge(settings, self.stop, self._report)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _report(self, progress: BridgeProgress) -> None:
        self.told = progress

    def _run(self) -> None:
        try:
            self._bridge.run()
        except Exception as error:
            self.error = error

    @property
    def copied(self) -> int:
        return self._bridge.copied

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, patience_s: float = PATIENCE_S) -> None:
        """For its end."""
        self._thread.join(patience_s)
        assert not self._thread.is_alive()

    def end(self) -> None:
        self.stop.set()
        self.wait()


@contextmanager
def running_bridge(
    source: Cluster, dest: Cluster, topics: str, *more: str
) -> Iterator[subprocess.Popen[str]]:
    words = command(source, dest, topics, "--settle-s", "0.2", *more)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()
