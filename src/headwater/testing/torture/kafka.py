"""Kafka clients: idempotent and plain producers, a group that commits, deletes, a native topic.

librdkafka speaks for all of them. A producer outlives a killed server and sends again by itself;
after a loss of power it is given up, because what it was answered may not be true any more.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.testing.torture.actor import Actor, LedgerCheck, Load
from headwater.testing.torture.http_client import NoReplyError, topic_path
from headwater.testing.torture.kafka_ledger import KafkaLedger, Message, PartitionReading
from headwater.testing.torture.outcome import End
from headwater.testing.torture.reading import read_topic
from headwater.testing.torture.topic_ledger import LedgerWrite, TopicLedger, record_data

ONCE: Final = "k-once"
PLAIN: Final = "k-plain"
NATIVE: Final = "k-native"
PARTITIONS: Final = 3
GROUP: Final = "torture"
PATIENCE_S: Final = 60.0
FLUSH_S: Final = 90.0
QUIET: Final[dict[str, Any]] = {"log_level": 0, "reconnect.backoff.max.ms": 100}


@dataclass(slots=True)
class RoundProducer:
    """A producer of one round."""

    name: str
    producer: Producer
    number: int = 0


class KafkaActor(Actor):
    name = "kafka"

    def __init__(self) -> None:
        self.ledgers = {
            ONCE: KafkaLedger(ONCE, PARTITIONS, is_idempotent=True),
            PLAIN: KafkaLedger(PLAIN, PARTITIONS, is_idempotent=False),
        }
        self.native = TopicLedger(NATIVE)
        self._senders: list[RoundProducer] = []
        self._turns = itertools.count(1)
        self._consumers: list[threading.Thread] = []
        """They outlive the round: leaving a group waits for the server to be back."""

    def prepare(self, load: Load) -> None:
        admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap(load)})
        made = admin.create_topics(
            [NewTopic(name, PARTITIONS, 1) for name in self.ledgers], request_timeout=PATIENCE_S
        )
        for name, done in made.items():
            try:
                done.result(PATIENCE_S)
            except KafkaException as error:
                raise NoReplyError(f"{name} could not be made: {error}") from error
        with load.client() as client:
            client.make(topic_path(NATIVE), {"idempotency_window_ms": 604_800_000})

    def begin(self, load: Load) -> None:
        for name, options in (
            (ONCE, {"enable.idempotence": True}),
            (PLAIN, {"enable.idempotence": False}),
        ):
            sender = self._sender(load, name, options)
            load.begin(f"kafka/{name}", partial(self._produce, load, name, sender))
        sender = self._sender(load, NATIVE, {"enable.idempotence": True})
        load.begin(f"kafka/{NATIVE}", partial(self._produce_native, load, sender))
        for number in range(2):
            consumer = threading.Thread(
                target=self._consume, args=(load, number), name=f"consumer-{number}", daemon=True
            )
            consumer.start()
            self._consumers.append(consumer)
        load.begin("kafka/deletes", partial(self._delete, load))

    def lose_power(self, since: float) -> None:
        """Whatever producers still have under way is unknown; they are not asked again."""
        for sender in self._senders:
            sender.producer.purge()
            sender.producer.poll(0)
        self._senders.clear()
        for ledger in self.ledgers.values():
            ledger.lose_power(since)
        self.native.lose_power(since, since)

    def _sender(self, load: Load, topic: str, options: dict[str, Any]) -> RoundProducer:
        producer = Producer(
            {
                **QUIET,
                **options,
                "bootstrap.servers": bootstrap(load),
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": int(PATIENCE_S * 1_000),
                "queue.buffering.max.messages": 1_000,
            }
        )
        sender = RoundProducer(f"{topic}-{load.round}", producer)
        self._senders.append(sender)
        return sender

    # -- the load

    def _produce(self, load: Load, topic: str, sender: RoundProducer) -> None:
        ledger, random = self.ledgers[topic], load.random("kafka", topic)
        while not load.stop.is_set():
            message = Message(sender.name, sender.number)
            sender.number += 1
            partition = random.randrange(PARTITIONS)
            ledger.send(message, partition)

            def acked(delivered: Delivered, sent: Message = message) -> None:
                offset = delivered.offset() or 0
                ledger.ack(sent, delivered.partition() or 0, offset, time.monotonic())

            self._hand_over(load, sender, topic, message.value, partition, acked)
            load.stop.wait(random.choice((0, 0, 0, 0.01)))

    def _produce_native(self, load: Load, sender: RoundProducer) -> None:
        random = load.random("kafka", NATIVE)
        ledger = self.native
        while not load.stop.is_set():
            turn = next(self._turns)
            write = LedgerWrite(f"{NATIVE}.{turn}", (None,), sender.name, turn, time.monotonic())
            ledger.send(write)

            def acked(delivered: Delivered, sent: LedgerWrite = write) -> None:
                seq = (delivered.offset() or 0) + 1
                ledger.ack(sent.identity, seq, seq, time.monotonic())

            def lost(sent: LedgerWrite = write) -> None:
                ledger.lose(sent.identity, is_ordered=False)

            value = json.dumps(record_data(write.identity, 0)).encode()
            if not self._hand_over(load, sender, NATIVE, value, 0, acked, lost):
                ledger.refuse(write.identity)
            load.stop.wait(random.uniform(0, 0.01))

    @staticmethod
    def _hand_over(
        load: Load,
        sender: RoundProducer,
        topic: str,
        value: bytes,
        partition: int,
        acked: Callable[[Delivered], None],
        lost: Callable[[], None] = lambda: None,
    ) -> bool:
        """To the producer, which says later what became of it. False when it has no room."""

        def note(error: KafkaError | None, delivered: Delivered) -> None:
            if error is None:
                acked(delivered)
            else:
                lost()
            load.tally.add("messages acked" if error is None else "messages unknown")

        try:
            sender.producer.produce(topic, value, partition=partition, on_delivery=note)
        except BufferError:
            sender.producer.poll(0.05)
            return False
        finally:
            sender.producer.poll(0)
        return True

    def _consume(self, load: Load, number: int) -> None:
        """A member of the group: what it read it commits, and then asks for more."""
        random = load.random("kafka", "consumer", number)
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap(load),
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": "roundrobin",
            }
        )
        consumer.subscribe(list(self.ledgers))
        leaves_at = random.uniform(0.5, 8.0)
        began = time.monotonic()
        try:
            while not load.stop.is_set():
                self._poll(load, consumer)
                if number == 1 and time.monotonic() - began > leaves_at:
                    break  # the other one takes its partitions
        finally:
            consumer.close()

    def _poll(self, load: Load, consumer: Consumer) -> None:
        try:
            messages = consumer.consume(100, timeout=0.1)
        except KafkaException:
            return
        read: dict[tuple[str, int], int] = {}
        for message in messages:
            if message.error() is not None:
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if topic is None or partition is None or offset is None:
                continue
            value = message.value()
            self.ledgers[topic].note_read(partition, offset, bytes(value or b""))
            read[topic, partition] = offset + 1
        if not read:
            return
        load.tally.add("messages consumed", len(messages))
        for (topic, partition), offset in read.items():
            self.ledgers[topic].request_commit(partition, offset)
        try:
            delivered = consumer.commit(
                offsets=[TopicPartition(*where, offset) for where, offset in read.items()],
                asynchronous=False,
            )
        except KafkaException:
            return
        for each in delivered or ():
            if each.error is None:
                self.ledgers[each.topic].commit(each.partition, each.offset, time.monotonic())
                load.tally.add("commits acked")

    def _delete(self, load: Load) -> None:
        """Now and then the front of a partition goes."""
        random = load.random("kafka", "deletes")
        admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap(load)})
        ledger = self.ledgers[PLAIN]
        while not load.stop.wait(random.uniform(0.3, 3.0)):
            partition = random.randrange(PARTITIONS)
            offset = ledger.acked_end(partition) - random.randint(50, 500)
            if offset <= 0:
                continue
            ledger.request_delete(partition, offset)
            done = admin.delete_records(
                [TopicPartition(PLAIN, partition, offset)], request_timeout=10.0
            )
            try:
                delivered = next(iter(done.values())).result(20)
            except (KafkaException, TimeoutError):
                continue
            ledger.delete(partition, delivered.low_watermark, time.monotonic())
            load.tally.add("Kafka deletes acked")

    # -- the check

    def check(self, check: LedgerCheck) -> None:
        if check.end is not End.POWER_LOSS:
            for sender in self._senders:
                left = sender.producer.flush(FLUSH_S)
                if left:
                    check.report("kafka", [f"E: {sender.name}: {left} messages have no answer"])
        self._senders.clear()
        for thread in self._consumers:
            thread.join(FLUSH_S)
            if thread.is_alive():
                check.report("kafka", [f"E: {thread.name} did not end"])
        self._consumers.clear()
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap(check.load),
                "group.id": GROUP,
                "enable.auto.commit": False,
            }
        )
        try:
            for ledger in self.ledgers.values():
                readings, committed = self._read(consumer, ledger.topic)
                check.report(ledger.topic, ledger.check(readings, committed, time.monotonic()))
                count = sum(len(each.messages) for each in readings.values())
                check.load.tally.add("messages compared", count)
        finally:
            consumer.close()
        with check.client() as client:
            reading = read_topic(client, NATIVE)
        check.report(NATIVE, self.native.check(reading, check.end))
        check.load.tally.add("messages compared", len(reading.records))

    @staticmethod
    def _read(consumer: Consumer, topic: str) -> tuple[dict[int, PartitionReading], dict[int, int]]:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        try:
            offsets = consumer.committed(partitions, timeout=PATIENCE_S)
            readings = {
                each.partition: PartitionReading(
                    *consumer.get_watermark_offsets(each, timeout=PATIENCE_S)
                )
                for each in partitions
            }
        except KafkaException as error:
            raise NoReplyError(f"{topic}: {error}") from error
        consumer.assign([TopicPartition(topic, each, readings[each].low) for each in readings])
        missing = sum(each.high - each.low for each in readings.values())
        until = time.monotonic() + PATIENCE_S
        while missing > 0 and time.monotonic() < until:
            for message in consumer.consume(min(missing, 5_000), timeout=1.0):
                if message.error() is not None:
                    raise NoReplyError(f"{topic}: {message.error()}")
                partition, offset = message.partition() or 0, message.offset() or 0
                readings[partition].messages[offset] = bytes(message.value() or b"")
                missing -= 1
        consumer.unassign()
        return readings, {each.partition: each.offset for each in offsets if each.offset >= 0}


def bootstrap(load: Load) -> str:
    return f"127.0.0.1:{load.ports.kafka}"
