"""Topics that are dropped and made again under the same name: nothing of the old one comes back."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from headwater.testing.torture.actor import Actor, LedgerCheck, Load
from headwater.testing.torture.http_client import (
    HttpClient,
    NoReplyError,
    NotSentError,
    topic_path,
)
from headwater.testing.torture.outcome import End, RunOutcome
from headwater.testing.torture.reading import read_topic
from headwater.testing.torture.topic_ledger import LedgerWrite, TopicLedger, TopicReading
from headwater.testing.torture.topics import body_of, send_write

NAMES: Final = tuple(f"d-{number}" for number in range(6))
DROP_SHARE: Final = 0.08
NOT_FOUND: Final = 404


@dataclass(slots=True)
class Generation:
    """The topic from one making to its drop."""

    number: int
    ledger: TopicLedger
    dropped: RunOutcome | None = None
    """None: no client requested it."""
    dropped_at: float = 0.0

    @property
    def is_surely_dropped(self) -> bool:
        return self.dropped is RunOutcome.ACKED

    @property
    def has_acked(self) -> bool:
        return self.ledger.acked_count() > 0


@dataclass(slots=True)
class Name:
    """A name, and the topics that had it and may have it still."""

    name: str
    generations: list[Generation] = field(default_factory=list)
    made: int = 0

    @property
    def now(self) -> Generation:
        if not self.generations or self.generations[-1].is_surely_dropped:
            self.made += 1
            self.generations.append(Generation(self.made, TopicLedger(self.name)))
        return self.generations[-1]

    @property
    def is_usable(self) -> bool:
        return not self.generations or self.generations[-1].dropped is not RunOutcome.UNKNOWN

    def lose_power(self, since: float) -> None:
        for each in self.generations:
            each.ledger.lose_power(since, since)
            if each.is_surely_dropped and each.dropped_at >= since:
                each.dropped = RunOutcome.UNKNOWN

    def compare(self, reading: TopicReading | None, end: End) -> list[str]:
        """What is wrong with the topic as it was read, None for none."""
        left = [each for each in self.generations if not each.is_surely_dropped]
        if reading is None:
            self.generations = []
            lost = [each for each in left if each.has_acked and each.dropped is None]
            return [f"I1: {self.name} is gone, and no client dropped it" for _ in lost]
        numbers = {int(record.key[0].split(".")[1]) for record in reading.records}
        if len(numbers) > 1:
            return [f"I8: {self.name} has records of topics that were dropped: {sorted(numbers)}"]
        number = numbers.pop() if numbers else (left or self.generations)[-1].number
        there = [each for each in left if each.number == number]
        if not there:
            return [f"I8: {self.name} is there, though it was dropped (making {number})"]
        later = [each for each in left if each.number > number and each.has_acked]
        if later and any(each.dropped is None for each in later):
            return [f"I1: {self.name} has records of before it was made again"]
        there[0].dropped = None
        self.generations = there
        return there[0].ledger.check(reading, end)


class DropActor(Actor):
    name = "drops"

    def __init__(self) -> None:
        self.names = {name: Name(name) for name in NAMES}
        self._turns = itertools.count(1)

    def begin(self, load: Load) -> None:
        for number in range(2):
            mine = list(self.names.values())[number::2]  # no other actor touches these
            load.begin_steps(f"drops/{number}", partial(self._step, load, mine), pause_s=0.01)

    def lose_power(self, since: float) -> None:
        for name in self.names.values():
            name.lose_power(since)

    def _step(self, load: Load, mine: list[Name], client: HttpClient, random: Random) -> None:
        usable = [each for each in mine if each.is_usable]
        if not usable:
            load.stop.wait(0.1)
            return
        name = random.choice(usable)
        if name.generations and random.random() < DROP_SHARE:
            self._drop(load, name, client)
            return
        generation = name.now
        turn = next(self._turns)
        tags = (None,) * random.choice((1, 1, 5))
        identity = f"{name.name}.{generation.number}.{turn}"
        write = LedgerWrite(identity, tags, "w", turn, time.monotonic())
        send_write(load, generation.ledger, write, client, body_of(write, random.choice((0, 500))))

    @staticmethod
    def _drop(load: Load, name: Name, client: HttpClient) -> None:
        generation = name.generations[-1]
        before = generation.dropped
        generation.dropped = RunOutcome.UNKNOWN
        try:
            answer = client.request("DELETE", topic_path(name.name))
        except NotSentError:
            generation.dropped = before
            raise
        if answer.is_ok:
            generation.dropped, generation.dropped_at = RunOutcome.ACKED, time.monotonic()
            load.tally.add("drops acked")
        elif answer.is_refusal:
            generation.dropped = before

    def check(self, check: LedgerCheck) -> None:
        with check.client() as client:
            for name in self.names.values():
                reading: TopicReading | None = None
                answer = client.get(topic_path(name.name, "?touch=false"))
                if answer.is_ok:
                    reading = read_topic(client, name.name)
                elif answer.status != NOT_FOUND:
                    raise NoReplyError(f"{name.name}: {answer}")
                if name.generations or reading is not None:
                    check.report(name.name, name.compare(reading, check.end))
                check.load.tally.add("dropped names compared")
