"""Members of a group that come and go while records arrive (fault H4): none is passed over."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.kafka.broker import Broker
from tests.kafka.test_clients_confluent import GROUP, PATIENCE_S, admins, options

PARTITIONS = 4


class Member:
    """Reads, notes, commits what it noted, until it is told to leave."""

    def __init__(self, broker: Broker, group: str, topic: str, strategy: str) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self._leave = threading.Event()
        chosen = {"partition.assignment.strategy": strategy, **GROUP}
        self._consumer = Consumer({**options(broker, group_id=group), **chosen})
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        owed = False
        while not self._leave.is_set():
            messages = self._consumer.consume(50, timeout=0.05)
            for message in messages:
                assert message.error() is None, message.error()
                self.seen[message.partition(), message.offset()] += 1  # type: ignore[index]
            owed = owed or bool(messages)
            if owed:
                try:
                    self._consumer.commit(asynchronous=False)
                    owed = False
                except KafkaException:
                    # Its partitions went to somebody else, who reads these again; or a round was
                    # under way and they did not, and then it is asked again.
                    continue
        self._consumer.close()


def storm(broker: Broker, name: str, rounds: int, strategy: str) -> None:
    admin = admins.AdminClient(options(broker))
    admin.create_topics([admins.NewTopic(name, PARTITIONS, 1)])[name].result(PATIENCE_S)
    chance = random.Random(rounds)
    producer = Producer(options(broker, linger_ms=1))
    everybody = [Member(broker, name, name, strategy)]
    members = list(everybody)
    for _ in range(rounds):
        for record in range(100):
            producer.produce(name, b"%d" % record, partition=record % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0
        if len(members) < 3 and (len(members) < 2 or chance.random() < 0.6):
            members.append(Member(broker, name, name, strategy))
            everybody.append(members[-1])
        else:
            members.pop(chance.randrange(len(members))).leave()
    wanted = {
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(rounds * 100 // PARTITIONS)
    }
    # What is seen may yet be seen again, by whoever has the partition when its commit counts.
    judge = Consumer({**options(broker, group_id=name), **GROUP})
    places = [TopicPartition(name, number) for number in range(PARTITIONS)]
    committed: list[int] = []
    pause = threading.Event()
    for _ in range(600):
        committed = [each.offset for each in judge.committed(places, timeout=PATIENCE_S)]
        if committed == [rounds * 100 // PARTITIONS] * PARTITIONS:
            break
        pause.wait(0.05)
    for member in members:
        member.leave()
    judge.close()
    assert committed == [rounds * 100 // PARTITIONS] * PARTITIONS
    assert set().union(*(member.seen for member in everybody)) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_no_record_is_passed_over_while_members_come_and_go(
    broker: Broker, name: str, strategy: str
) -> None:
    storm(broker, name, 25, strategy)
