"""Copy topics from one cluster to another: in order, each record once, from where it ended.

Keeps: a statement is written before what it speaks of is copied, and later ones only after acks;
copies are acked where the count says, or the bridge stops; what lies behind the last statement is
counted and compared with the source before anything more is copied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.client.bridge.addresses import Cluster
from headwater.client.bridge.ends import AwayError, Reading, Writing, is_end, read_range
from headwater.client.bridge.partition import Crossing
from headwater.client.bridge.resuming import Marks, Spot, check_last_copies, resume_place
from headwater.client.bridge.statement import (
    BridgeStoppedError,
    Place,
    Statement,
    Watermarks,
    decode_statement,
    encode_statement,
)
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import InvalidRequestError
from headwater.core.units import US_PER_S
from headwater.observe.metrics import Sample

POSITIONS_PREFIX: Final = "headwater-bridge."
TAKE_RECORDS: Final = 10_000
STATEMENT_US: Final = 5 * US_PER_S
STATEMENT_RECORDS: Final = 100_000
TELL_US: Final = US_PER_S // 2
LOOK_FOR_TOPICS_US = 5 * US_PER_S
"""How often the source is asked whether it still has the topics that nothing comes from."""
LOOK_FOR_TOPICS_S: Final = 2.0
LOOKS: Final = 2
"""A topic is gone when the source answered so many times in a row without it."""
KEPT_STATEMENTS: Final = 1_000
FLUSH_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    source: Cluster
    dest: Cluster
    topics: tuple[str, ...]
    name: str = "default"
    until_caught_up: bool = False
    skip_lost: bool = False
    settle_s: float = 2.0
    """After a crash: how long the destination must stay as it is before it is counted."""

    @property
    def positions(self) -> str:
        return POSITIONS_PREFIX + self.name


@dataclass(frozen=True, slots=True)
class Progress:
    copied: int
    lag: int
    """Records of the source that are not acked by the destination yet."""
    lags: dict[str, int] = field(default_factory=dict)

    def samples(self) -> list[Sample]:
        rows = [Sample("bridge_records_copied", self.copied)]
        for name, lag in self.lags.items():
            topic, _, partition = name.rpartition("/")
            rows.append(Sample("bridge_lag", lag, (topic, partition)))
        return rows


class Bridge:
    def __init__(
        self,
        settings: BridgeSettings,
        stop: threading.Event,
        tell: Callable[[Progress], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._tell = tell
        self._clock = clock or SystemClock()
        self._source = Reading(settings.source)
        self._dest = Reading(settings.dest)
        self._writing = Writing(settings.dest)
        self._crossings: dict[tuple[str, int], Crossing] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._stated_us = 0
        self._told_us = 0
        self._looked_us = self._clock.monotonic_us()
        self._heard: set[str] = set()
        """Topics that records came from since the source was last asked about topics."""
        self._missed: dict[str, int] = {}
        """How many times in a row the source did not name a topic."""
        self._stated_copied = 0
        self._statements = 0
        self._next_statement = 0
        """Where the next statement goes, if nobody else makes any."""
        self._others: dict[str, dict[str, Place]] = {}
        """Places of topics that an earlier run copied, and this one does not."""
        self._failure: BridgeStoppedError | None = None

    # -- the whole way

    def run(self) -> Progress:
        """Until told to stop, or caught up if that is wanted. Gives how far it came."""
        try:
            self._resume()
            targets = {spot: self._source.watermarks(*spot).high for spot in self._crossings}
            while not self._stop.is_set():
                self._round()
                if self._settings.until_caught_up and self._is_at(targets):
                    break
                self._stop_without_a_topic()
            self._end()
        finally:
            self._source.close()
            self._dest.close()
        return self.progress()

    def _round(self) -> None:
        for message in self._source.take(TAKE_RECORDS, 0.1):
            spot = (message.topic() or "", message.partition() or 0)
            if is_end(message):
                self._ends[spot] = message.offset() or 0
            elif (error := message.error()) is not None:
                if not error.retriable():  # not all are about a partition
                    where = "/".join(map(str, spot)) if spot in self._crossings else "it"
                    raise BridgeStoppedError(f"{where}: the source says: {error.str()}")
            else:
                crossing = self._crossings[spot]
                self._heard.add(crossing.topic)
                self._writing.copy(message, crossing.topic, crossing.acked)
                crossing.sent(message.offset() or 0)
        self._writing.look()
        self._check()
        now = self._clock.monotonic_us()
        copied = self.copied
        if now - self._stated_us >= STATEMENT_US or (
            copied - self._stated_copied >= STATEMENT_RECORDS
        ):
            if copied != self._stated_copied:
                self._state()
            self._stated_us = now
        if now - self._told_us >= TELL_US:
            self._told_us = now
            self._tell(self.progress())

    def _stop_without_a_topic(self) -> None:
        """Nobody tells a consumer that a topic was deleted: it only gets nothing more.

        What was read of it is copied and stated first, as when the bridge is told to stop.
        """
        now = self._clock.monotonic_us()
        if now - self._looked_us < LOOK_FOR_TOPICS_US:
            return
        quiet = [topic for topic in self._settings.topics if topic not in self._heard]
        self._heard.clear()
        try:
            there = self._source.partitions(LOOK_FOR_TOPICS_S) if quiet else {}
        except AwayError:
            there = {topic: [] for topic in quiet}  # it is away, and says nothing about them
        self._looked_us = self._clock.monotonic_us()
        self._missed = {
            topic: self._missed.get(topic, 0) + 1 for topic in quiet if topic not in there
        }
        gone = [topic for topic, times in self._missed.items() if times >= LOOKS]
        if gone:
            self._end()
            raise BridgeStoppedError(
                f"{self._settings.source} has no topic {gone[0]!r} any more; what was read of it "
                "is copied. Run it again without that topic, and the others go on"
            )

    def _check(self) -> None:
        failures = [each.failure for each in self._crossings.values() if each.failure is not None]
        failure = self._failure or (failures[0] if failures else None)
        if failure is not None:
            raise failure

    def _is_at(self, targets: dict[tuple[str, int], int]) -> bool:
        """Ends are told by the source: the last offsets of a log need not be records."""
        for spot, target in targets.items():
            crossing = self._crossings[spot]
            if crossing.under_way or max(crossing.place.source, self._ends.get(spot, 0)) < target:
                return False
        return True

    def _end(self) -> None:
        left = self._writing.finish(FLUSH_S)
        self._check()
        if left:
            raise AwayError(f"{self._settings.dest} did not answer for {left} copies; run it again")
        self._state(is_clean=True)
        self._flush_statement()

    # -- statements

    def _state(self, *, is_clean: bool = False) -> None:
        places: dict[str, dict[str, Place]] = dict(self._others)
        for crossing in self._crossings.values():
            places.setdefault(crossing.topic, {})[str(crossing.partition)] = crossing.place
        statement = Statement(str(self._settings.source), places, is_clean)
        self._stated_copied = self.copied
        self._statements += 1
        self._writing.send(
            self._settings.positions, 0, None, encode_statement(statement), self._stated
        )

    def _stated(self, error: object, message: Any) -> None:
        if error is not None:
            self._failure = BridgeStoppedError(f"the position cannot be written: {error}")
            return
        offset, wanted = int(message.offset() or 0), self._next_statement
        self._next_statement += 1
        if offset != wanted:
            self._failure = BridgeStoppedError(
                f"the position went to offset {offset} of {self._settings.positions} instead of "
                f"{wanted}; another bridge has the same --name, and each needs its own"
            )
        elif self._statements % KEPT_STATEMENTS == 0:
            self._writing.forget_before(self._settings.positions, 0, offset)

    def _flush_statement(self) -> None:
        if self._writing.finish(FLUSH_S):
            raise AwayError(f"{self._settings.dest} does not take the bridge's position")
        self._check()

    def _last_statement(self) -> Statement | None:
        topic = self._settings.positions
        marks = self._dest.watermarks(topic, 0)
        self._next_statement = marks.high
        if not marks.high:
            return None
        if marks.high <= marks.low:
            raise BridgeStoppedError(
                f"{self._settings.dest}: what {topic} said was deleted, so nobody knows what was "
                "copied. Copy under another --name, to new topics"
            )
        last = list(read_range(self._settings.dest, topic, 0, marks.high - 1, marks.high))
        if not last:
            raise AwayError(f"{self._settings.dest} does not give the last record of {topic}")
        return decode_statement(last[0].value() or b"", f"topic {topic!r}")

    # -- the beginning

    def _resume(self) -> None:
        settings = self._settings
        there = self._source.partitions()
        missing = [topic for topic in settings.topics if topic not in there]
        if missing:
            raise InvalidRequestError(f"{settings.source} has no topic {missing[0]!r}")
        wanted = {topic: len(there[topic]) for topic in settings.topics}
        self._prepare(wanted)
        statement = self._last_statement()
        if statement is not None and not statement.is_clean:
            self._wait_until_settled(wanted)
            statement = self._last_statement()
        self._take_places(statement, [(t, n) for t, count in wanted.items() for n in range(count)])
        self._state()
        self._flush_statement()
        self._source.begin((*spot, each.place.source) for spot, each in self._crossings.items())

    def _prepare(self, wanted: dict[str, int]) -> None:
        there = self._dest.partitions()
        for topic, count in {self._settings.positions: 1, **wanted}.items():
            if topic not in there:
                is_positions = topic == self._settings.positions
                self._writing.make_topic(topic, count, for_ever=is_positions)
            elif len(there[topic]) < count:
                raise BridgeStoppedError(
                    f"{self._settings.dest}: topic {topic!r} has {len(there[topic])} partitions, "
                    f"the source has {count}; add partitions to it first"
                )

    def _take_places(self, statement: Statement | None, spots: Sequence[Spot]) -> None:
        """Where each partition goes on. What was said of other topics is said again."""
        known: dict[Spot, Place] = {}
        if statement is not None:
            ours = {topic for topic, _ in spots}
            said = statement.places
            self._others = {topic: said[topic] for topic in said if topic not in ours}
            known = {spot: place for spot in spots if (place := statement.place(*spot)) is not None}
        marks: dict[Spot, Marks] = {
            spot: (self._source.watermarks(*spot), self._dest.watermarks(*spot)) for spot in spots
        }
        check_last_copies(self._settings, known, marks)
        for spot in spots:
            source, dest = marks[spot]
            place = Place(source.low, dest.high)
            if spot in known:
                place = resume_place(self._settings, *spot, known[spot], source, dest)
            self._crossings[spot] = Crossing(*spot, place)

    def _wait_until_settled(self, wanted: dict[str, int]) -> None:
        """A bridge that was killed may have had copies under way: count when they have landed."""
        before: list[Watermarks] = []
        while not self._stop.is_set():
            marks = [
                self._dest.watermarks(topic, partition)
                for topic, count in {self._settings.positions: 1, **wanted}.items()
                for partition in range(count)
            ]
            if marks == before:
                return
            before = marks
            self._stop.wait(self._settings.settle_s)

    # -- what is told

    @property
    def copied(self) -> int:
        return sum(crossing.copied for crossing in self._crossings.values())

    def progress(self) -> Progress:
        lags = {}
        for spot, crossing in self._crossings.items():
            lags[str(crossing)] = max(self._known_end(spot) - crossing.place.source, 0)
        return Progress(self.copied, sum(lags.values()), lags)

    def _known_end(self, spot: tuple[str, int]) -> int:
        try:
            return max(self._source.known_end(*spot), self._ends.get(spot, 0))
        except RuntimeError:
            return self._ends.get(spot, 0)  # closed meanwhile


def topics_of(text: str) -> tuple[str, ...]:
    """`a,b,c` as names."""
    names: Sequence[str] = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) != len(names):
        raise InvalidRequestError("--topics takes names with commas between, each once")
    return tuple(names)
