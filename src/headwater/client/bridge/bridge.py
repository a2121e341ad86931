"""Copy topics from one cluster to another: in order, each record once, from where it ended.

Keeps: a statement is written before what it speaks of is copied, and later ones only after acks;
copies are acked where the count says, or the bridge stops; what lies behind the last statement is
counted and compared with the source before anything more is copied.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headwater.client.bridge.addresses import Cluster
from headwater.client.bridge.ends import AwayError, Reading, Writing, is_end, is_overtaken
from headwater.client.bridge.partition import Crossing
from headwater.client.bridge.positions import FLUSH_S, Places, Positions
from headwater.client.bridge.resuming import Marks, Spot, check_last_copies, resume_place
from headwater.client.bridge.source_topics import (
    LOOK_S,
    SourceTopics,
    TopicChangedError,
    refuse_one_cluster,
)
from headwater.client.bridge.statement import BridgeStoppedError, Place, Statement, Watermarks
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import InvalidRequestError
from headwater.core.units import US_PER_S
from headwater.observe.metrics import Sample

if TYPE_CHECKING:
    from confluent_kafka import Message

POSITIONS_PREFIX: Final = "headwater-bridge."
TAKE_RECORDS: Final = 10_000
TAKE_S: Final = 0.1
STATEMENT_US: Final = 5 * US_PER_S
STATEMENT_RECORDS: Final = 100_000
TELL_US: Final = US_PER_S // 2
LOOK_AT_SOURCE_US = 5 * US_PER_S
"""How often the source is asked for the topics that nothing comes from."""


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
        self._topics = SourceTopics(self._source, settings.source, settings.topics)
        self._positions = Positions(settings, self._dest, self._writing, self._clock)
        self._crossings: dict[Spot, Crossing] = {}
        self._waiting: deque[Message] = deque()
        """Taken from the source, and not given to the producer yet."""
        self._is_confirmed = False
        """The source has said since they were taken that its topics are still the same."""
        self._ends: dict[Spot, int] = {}
        """Where partitions end, as asked while nothing was taken from the source."""
        self._stated_us = 0
        self._told_us = 0
        self._looked_us = self._clock.monotonic_us()
        self._stated_copied = 0
        self._others: Places = {}
        """Places of topics that an earlier run copied, and this one does not."""
        self._other_ids: dict[str, str] = {}

    # -- the whole way

    def run(self) -> Progress:
        """Until told to stop, or caught up if that is wanted. Gives how far it came."""
        try:
            if self._resume():
                targets = {spot: self._source.watermarks(*spot).high for spot in self._crossings}
                while not self._stop.is_set():
                    self._round()
                    if self._settings.until_caught_up and self._is_at(targets):
                        break
                    self._look_at_source()
                self._end()
            return self.progress()
        finally:
            self._source.close()
            self._dest.close()

    def _round(self) -> None:
        if self._waiting:
            self._hear(TAKE_S)
        else:
            self._waiting.extend(self._source.take(TAKE_RECORDS, TAKE_S))
            self._is_confirmed = False
        if self._waiting and self._may_copy():
            self._copy()
        self._hear()
        now = self._clock.monotonic_us()
        copied = self.copied
        if now - self._stated_us >= STATEMENT_US or (
            copied - self._stated_copied >= STATEMENT_RECORDS
        ):
            if copied != self._stated_copied:
                self._state_now_and_then()
            self._stated_us = now
        if now - self._told_us >= TELL_US:
            self._told_us = now
            self._tell(self.progress())

    def _may_copy(self) -> bool:
        """What waits is of the topics that are copied, and it is this bridge that copies them."""
        try:
            if not self._is_confirmed:
                self._topics.confirm({message.topic() or "" for message in self._waiting})
                self._is_confirmed = True
            self._positions.check()
        except AwayError:
            return False
        except TopicChangedError as error:
            self._stop_for(error)
        return True

    def _copy(self) -> None:
        """As much as there is room for."""
        while self._waiting:
            message = self._waiting[0]
            spot = (message.topic() or "", message.partition() or 0)
            if is_end(message):
                self._crossings[spot].ended(message.offset() or 0)
            elif (error := message.error()) is not None:
                self._meet(spot, error)
            else:
                crossing = self._crossings[spot]
                if not self._writing.copy(message, crossing.topic, crossing.acked):
                    return
                crossing.sent(message.offset() or 0)
            self._waiting.popleft()

    def _meet(self, spot: Spot, error: Any) -> None:
        """An error that the source told between the records. Not all are about a partition."""
        if error.retriable():
            return
        crossing = self._crossings.get(spot)
        if crossing is not None and is_overtaken(error):
            self._stop_for(
                BridgeStoppedError(
                    f"{crossing}: the source deleted records before they were copied. Run it "
                    "again with --skip-lost to go on behind the loss"
                )
            )
        self._stop_for(BridgeStoppedError(f"{crossing or 'it'}: the source says: {error.str()}"))

    def _stop_for(self, error: BridgeStoppedError) -> NoReturn:
        """What was read is copied and stated first, as when the bridge is told to stop."""
        try:
            self._end()
        except AwayError as away:
            raise error from away
        raise error

    def _look_at_source(self) -> None:
        if self._clock.monotonic_us() - self._looked_us < LOOK_AT_SOURCE_US:
            return
        try:
            self._topics.look()
            if self._waiting:  # nobody fetches, so nobody hears where the source ends by now
                self._ends = self._source.ends(self._crossings, LOOK_S)
        except AwayError:
            pass  # it is away, and says nothing about them
        except TopicChangedError as error:
            self._stop_for(error)
        self._looked_us = self._clock.monotonic_us()

    def _hear(self, timeout_s: float = 0.0) -> None:
        """What the destination says of each copy tells more than what the producer says of all."""
        try:
            self._writing.look(timeout_s)
        finally:
            self._check()

    def _check(self) -> None:
        failures = [each.failure for each in self._crossings.values() if each.failure is not None]
        failure = self._positions.failure or (failures[0] if failures else None)
        if failure is not None:
            raise failure

    def _is_at(self, targets: dict[Spot, int]) -> bool:
        return all(self._crossings[spot].place.source >= end for spot, end in targets.items())

    def _end(self) -> None:
        try:
            left = self._writing.finish(FLUSH_S)
        finally:
            self._check()
        if left:
            raise AwayError(f"{self._settings.dest} did not answer for {left} copies; run it again")
        self._positions.check()
        self._state(is_clean=True)
        self._positions.flush()

    def _state_now_and_then(self) -> None:
        try:
            self._positions.check()
        except AwayError:
            return
        self._state()

    def _state(self, *, is_clean: bool = False) -> None:
        places: Places = dict(self._others)
        for crossing in self._crossings.values():
            places.setdefault(crossing.topic, {})[str(crossing.partition)] = crossing.place
        ids = {**self._other_ids, **self._topics.known()}
        if self._positions.state(places, ids, is_clean=is_clean):
            self._stated_copied = self.copied

    # -- the beginning

    def _resume(self) -> bool:
        """False where it was told to stop before it knew where to go on."""
        settings = self._settings
        if settings.positions in settings.topics:
            raise InvalidRequestError(
                f"{settings.positions} is where this bridge keeps its position"
            )
        there = self._source.partitions()
        missing = [topic for topic in settings.topics if topic not in there]
        if missing:
            raise InvalidRequestError(f"{settings.source} has no topic {missing[0]!r}")
        wanted = {topic: len(there[topic]) for topic in settings.topics}
        there = self._dest.partitions()
        refuse_one_cluster(settings, self._source, self._dest, settings.topics)
        self._prepare(wanted, there)
        refuse_one_cluster(settings, self._source, self._dest, [settings.positions])
        self._topics.begin(self._positions.last())
        statement = self._positions.take_over(lambda: self._wait_until_settled(wanted))
        if self._stop.is_set():
            return False
        self._take_places(statement, [(t, n) for t, count in wanted.items() for n in range(count)])
        self._positions.check()
        self._state()
        self._positions.flush()
        self._source.begin((*spot, each.place.source) for spot, each in self._crossings.items())
        return True

    def _prepare(self, wanted: dict[str, int], there: dict[str, list[int]]) -> None:
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
        ours = {topic for topic, _ in spots}
        if statement is not None:
            said, ids = statement.places, statement.ids
            self._others = {topic: said[topic] for topic in said if topic not in ours}
            self._other_ids = {topic: ids[topic] for topic in ids if topic not in ours}
            known = {spot: place for spot in spots if (place := statement.place(*spot)) is not None}
        marks: dict[Spot, Marks] = {
            spot: (self._source.watermarks(*spot), self._dest.watermarks(*spot)) for spot in spots
        }
        configs = self._dest.configs(ours)
        timeless = {topic for topic in configs if _sets_times(configs[topic])}
        check_last_copies(self._settings, known, marks, timeless)
        for spot in spots:
            source, dest = marks[spot]
            place = Place(source.low, dest.high)
            if spot in known:
                place = resume_place(
                    self._settings, spot, known[spot], marks[spot], any_time=spot[0] in timeless
                )
            limit = configs.get(spot[0], {}).get("max.message.bytes")
            self._crossings[spot] = Crossing(*spot, place, limit)

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

    def _known_end(self, spot: Spot) -> int:
        return max(self._source.known_end(*spot), self._ends.get(spot, 0))


def _sets_times(config: dict[str, str]) -> bool:
    return config.get("message.timestamp.type") == "LogAppendTime"


def topics_of(text: str) -> tuple[str, ...]:
    """`a,b,c` as names."""
    names: Sequence[str] = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) != len(names):
        raise InvalidRequestError("--topics takes names with commas between, each once")
    return tuple(names)
