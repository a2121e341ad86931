"""What the server answered Kafka clients about one topic, and whether its partitions agree.

Every message's value says who sent it and which of its messages it is. Of an idempotent producer
each message is there once, in the order it was sent; of a plain one at least once, if it was acked.
Offsets have no holes, an acked message is at its offset, and what a group committed stays.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.testing.torture.topic_ledger import shortened


@dataclass(frozen=True, slots=True)
class Message:
    producer: str
    number: int

    @classmethod
    def read(cls, value: bytes) -> Message | None:
        producer, _, number = value.rpartition(b":")
        return cls(producer.decode(), int(number)) if number.isdigit() else None

    @property
    def value(self) -> bytes:
        return f"{self.producer}:{self.number}".encode()


@dataclass(slots=True)
class PartitionReading:
    low: int
    high: int
    messages: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class _Raised:
    """An offset that only rises: as it was answered, and as it was asked for at most."""

    offset: int = 0
    requested: int = 0
    answers: list[tuple[float, int]] = field(default_factory=list)

    def request(self, offset: int) -> None:
        self.requested = max(self.requested, offset)

    def answer(self, offset: int, at: float) -> None:
        self.answers.append((at, offset))
        self.offset = max(self.offset, offset)

    def lose_power(self, since: float) -> None:
        self.answers = [each for each in self.answers if each[0] < since]
        self.offset = max((offset for _, offset in self.answers), default=0)

    def may_be(self, offset: int) -> bool:
        return self.offset <= offset <= max(self.requested, self.offset)


@dataclass(slots=True)
class _PartitionLedger:
    acked: dict[int, tuple[Message, float]] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    """What consumers saw."""
    high: int = 0
    low: _Raised = field(default_factory=_Raised)
    """By DeleteRecords."""
    committed: _Raised = field(default_factory=_Raised)


class KafkaLedger:
    def __init__(self, topic: str, partitions: int, *, is_idempotent: bool) -> None:
        self.topic = topic
        self.is_idempotent = is_idempotent
        self.partitions = {number: _PartitionLedger() for number in range(partitions)}
        self._sent: dict[Message, int] = {}
        """And to which partition."""
        self._wrong: list[str] = []
        self._lock = threading.Lock()

    def send(self, message: Message, partition: int) -> None:
        with self._lock:
            self._sent[message] = partition

    def ack(self, message: Message, partition: int, offset: int, at: float) -> None:
        with self._lock:
            known = self.partitions[partition].acked.setdefault(offset, (message, at))
            if known[0] != message:
                self._wrong.append(
                    f"I3: {self.topic}/{partition}@{offset} acked for {known[0]} and {message}"
                )

    def note_read(self, partition: int, offset: int, value: bytes) -> None:
        """A consumer got this."""
        with self._lock:
            known = self.partitions[partition].read.setdefault(offset, value)
            if known != value:
                self._wrong.append(
                    f"I1: {self.topic}/{partition}@{offset} read as {known!r}, then as {value!r}"
                )

    def request_commit(self, partition: int, offset: int) -> None:
        with self._lock:
            self.partitions[partition].committed.request(offset)

    def commit(self, partition: int, offset: int, at: float) -> None:
        with self._lock:
            self.partitions[partition].committed.answer(offset, at)

    def request_delete(self, partition: int, offset: int) -> None:
        with self._lock:
            self.partitions[partition].low.request(offset)

    def delete(self, partition: int, low: int, at: float) -> None:
        with self._lock:
            self.partitions[partition].low.answer(low, at)

    def acked_end(self, partition: int) -> int:
        with self._lock:
            return max(self.partitions[partition].acked, default=-1) + 1

    def lose_power(self, since: float) -> None:
        with self._lock:
            for state in self.partitions.values():
                state.acked = {at: each for at, each in state.acked.items() if each[1] < since}
                state.read.clear()
                state.committed.lose_power(since)
                state.low.lose_power(since)
                state.high = 0

    def check(
        self, readings: Mapping[int, PartitionReading], committed: Mapping[int, int], at: float
    ) -> list[str]:
        """`committed`: the group's offsets, without those that were never committed."""
        with self._lock:
            wrong, self._wrong = self._wrong, []
            everywhere: Counter[bytes] = Counter()
            for number, reading in readings.items():
                state = self.partitions[number]
                name = f"{self.topic}/{number}"
                wrong += self._partition_findings(name, number, state, reading)
                wrong += self._commit_findings(name, state.committed, committed.get(number, 0), at)
                everywhere.update(reading.messages.values())
                state.high = reading.high
                state.low.answer(reading.low, at)
            if self.is_idempotent:
                wrong += [
                    f"I2: {value!r} is there {count} times"
                    for value, count in everywhere.items()
                    if count > 1
                ]
        return shortened(wrong)

    def _partition_findings(
        self, name: str, number: int, state: _PartitionLedger, reading: PartitionReading
    ) -> list[str]:
        wrong = []
        offsets = sorted(reading.messages)
        if offsets != list(range(reading.low, reading.high)):
            missing = sorted(set(range(reading.low, reading.high)) - set(offsets))
            wrong.append(f"I6: {name} has no {missing[:10]} of {reading.low} to {reading.high}")
        if reading.high < state.high:
            wrong.append(f"I3: the end of {name} is {reading.high}, it was {state.high}")
        if not state.low.may_be(reading.low):
            wrong.append(
                f"I8: {name} begins at {reading.low}, deleted up to {state.low.offset} "
                f"or {state.low.requested}"
            )
        last: dict[str, int] = {}
        for offset in offsets:
            value = reading.messages[offset]
            message = Message.read(value)
            if message is None or self._sent.get(message) != number:
                wrong.append(f"I1: {name}@{offset} has {value!r}, which no producer sent there")
                continue
            if self.is_idempotent and message.number <= last.get(message.producer, -1):
                wrong.append(f"I2: {name}@{offset}: {message} came after {last[message.producer]}")
            last[message.producer] = message.number
        for offset, (message, _) in state.acked.items():
            if offset >= reading.low and reading.messages.get(offset) != message.value:
                wrong.append(
                    f"I1: {name}@{offset} was acked for {message}, there is "
                    f"{reading.messages.get(offset)!r} (end {reading.high})"
                )
        for offset, value in state.read.items():
            if offset >= reading.low and reading.messages.get(offset) != value:
                wrong.append(
                    f"I1: {name}@{offset} was read as {value!r}, there is "
                    f"{reading.messages.get(offset)!r}"
                )
        return wrong

    @staticmethod
    def _commit_findings(name: str, known: _Raised, committed: int, at: float) -> list[str]:
        wrong = []
        if known.may_be(committed):
            known.offset = committed
        else:
            wrong.append(
                f"commit: {name} is at {committed}; answered {known.offset}, "
                f"requested {known.requested}"
            )
        known.answer(known.offset, at)
        return wrong
