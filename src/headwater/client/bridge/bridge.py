"""Copy topics from one cluster to another: in order, each record once, from where it ended.

Keeps: a statement is written before what it speaks of is copied, and later ones only after acks;
copies are acked where the count says, or the bridge stops; what lies behind the last statement is
counted and compared with the source before anything more is copied.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headwater.client.bridge.clusters import (
    AwayError,
    ClusterReader,
    ClusterWriter,
    is_end,
    is_overtaken,
)
from headwater.client.bridge.partition import PartitionCopy
from headwater.client.bridge.positions import FLUSH_S, CopyPositions, Positions
from headwater.client.bridge.resume import Marks, Spot, check_last_copies, resume_position
from headwater.client.bridge.settings import BridgeProgress, BridgeSettings
from headwater.client.bridge.source_topics import (
    CHECK_TIMEOUT_S,
    SourceTopics,
    TopicChangedError,
    refuse_one_cluster,
)
from headwater.client.bridge.statement import (
    BridgeStoppedError,
    CopyPosition,
    Statement,
    Watermarks,
)
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import InvalidRequestError
from headwater.core.units import US_PER_S

if TYPE_CHECKING:
    from confluent_kafka import Message

TAKE_RECORDS: Final = 10_000
TAKE_S: Final = 0.1
STATEMENT_US: Final = 5 * US_PER_S
STATEMENT_RECORDS: Final = 100_000
REPORT_US: Final = US_PER_S // 2
SOURCE_CHECK_US = 5 * US_PER_S
"""How often the bridge checks the topics that nothing comes from."""


class Bridge:
    def __init__(
        self,
        settings: BridgeSettings,
        stop: threading.Event,
        report: Callable[[BridgeProgress], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._report = report
        self._clock = clock or SystemClock()
        self._source = ClusterReader(settings.source)
        self._dest = ClusterReader(settings.dest)
        self._writer = ClusterWriter(settings.dest)
        self._topics = SourceTopics(self._source, settings.source, settings.topics)
        self._positions = Positions(settings, self._dest, self._writer, self._clock)
        self._copies: dict[Spot, PartitionCopy] = {}
        self._waiting: deque[Message] = deque()
        """Taken from the source, and not given to the producer yet."""
        self._is_confirmed = False
        """The source has confirmed since they were taken that its topics are still the same."""
        self._ends: dict[Spot, int] = {}
        """Where partitions end, as requested while nothing was taken from the source."""
        self._stated_us = 0
        self._reported_us = 0
        self._source_checked_us = self._clock.monotonic_us()
        self._stated_copied = 0
        self._others: CopyPositions = {}
        """Positions of topics that an earlier run copied, and this one does not."""
        self._other_ids: dict[str, str] = {}

    # -- running

    def run(self) -> BridgeProgress:
        """Until it is stopped, or caught up if that is wanted. Gives how far it came."""
        try:
            if self._resume():
                targets = {spot: self._source.watermarks(*spot).high for spot in self._copies}
                while not self._stop.is_set():
                    self._round()
                    if self._settings.until_caught_up and self._is_at(targets):
                        break
                    self._check_source()
                self._end()
            return self.progress()
        finally:
            self._source.close()
            self._dest.close()

    def _round(self) -> None:
        if self._waiting:
            self._poll_dest(TAKE_S)
        else:
            self._waiting.extend(self._source.take(TAKE_RECORDS, TAKE_S))
            self._is_confirmed = False
        if self._waiting and self._may_copy():
            self._copy()
        self._poll_dest()
        now = self._clock.monotonic_us()
        copied = self.copied
        if now - self._stated_us >= STATEMENT_US or (
            copied - self._stated_copied >= STATEMENT_RECORDS
        ):
            if copied != self._stated_copied:
                self._state_now_and_then()
            self._stated_us = now
        if now - self._reported_us >= REPORT_US:
            self._reported_us = now
            self._report(self.progress())

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
                self._copies[spot].ended(message.offset() or 0)
            elif (error := message.error()) is not None:
                self._meet(spot, error)
            else:
                partition_copy = self._copies[spot]
                if not self._writer.copy(message, partition_copy.topic, partition_copy.acked):
                    return
                partition_copy.sent(message.offset() or 0)
            self._waiting.popleft()

    def _meet(self, spot: Spot, error: Any) -> None:
        """An error that came from the source between records. Not all are about a partition."""
        if error.retriable():
            return
        partition_copy = self._copies.get(spot)
        if partition_copy is not None and is_overtaken(error):
            self._stop_for(
                BridgeStoppedError(
                    f"{partition_copy}: the source deleted records before they were copied. Run it "
                    "again with --skip-lost to go on behind the loss"
                )
            )
        self._stop_for(
            BridgeStoppedError(f"{partition_copy or 'it'}: the source says: {error.str()}")
        )

    def _stop_for(self, error: BridgeStoppedError) -> NoReturn:
        """Copies and states what was read first, as when the bridge is stopped."""
        try:
            self._end()
        except AwayError as away:
            raise error from away
        raise error

    def _check_source(self) -> None:
        if self._clock.monotonic_us() - self._source_checked_us < SOURCE_CHECK_US:
            return
        try:
            self._topics.check()
            if self._waiting:  # nothing is fetched, so no answer says where the source ends
                self._ends = self._source.ends(self._copies, CHECK_TIMEOUT_S)
        except AwayError:
            pass  # it is away, and says nothing about them
        except TopicChangedError as error:
            self._stop_for(error)
        self._source_checked_us = self._clock.monotonic_us()

    def _poll_dest(self, timeout_s: float = 0.0) -> None:
        """The failure of one copy explains more than the error of the producer: it is raised."""
        try:
            self._writer.poll(timeout_s)
        finally:
            self._check()

    def _check(self) -> None:
        failures = [each.failure for each in self._copies.values() if each.failure is not None]
        failure = self._positions.failure or (failures[0] if failures else None)
        if failure is not None:
            raise failure

    def _is_at(self, targets: dict[Spot, int]) -> bool:
        return all(self._copies[spot].position.source >= end for spot, end in targets.items())

    def _end(self) -> None:
        try:
            left = self._writer.finish(FLUSH_S)
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
        positions: CopyPositions = dict(self._others)
        for partition_copy in self._copies.values():
            positions.setdefault(partition_copy.topic, {})[str(partition_copy.partition)] = (
                partition_copy.position
            )
        ids = {**self._other_ids, **self._topics.known()}
        if self._positions.state(positions, ids, is_clean=is_clean):
            self._stated_copied = self.copied

    # -- the beginning

    def _resume(self) -> bool:
        """False where it was stopped before it knew where to go on."""
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
        statement = self._positions.take_over(lambda: self._wait_until_quiet(wanted))
        if self._stop.is_set():
            return False
        self._set_positions(
            statement, [(t, n) for t, count in wanted.items() for n in range(count)]
        )
        self._positions.check()
        self._state()
        self._positions.flush()
        self._source.begin((*spot, each.position.source) for spot, each in self._copies.items())
        return True

    def _prepare(self, wanted: dict[str, int], there: dict[str, list[int]]) -> None:
        for topic, count in {self._settings.positions: 1, **wanted}.items():
            if topic not in there:
                is_positions = topic == self._settings.positions
                self._writer.make_topic(topic, count, for_ever=is_positions)
            elif len(there[topic]) < count:
                raise BridgeStoppedError(
                    f"{self._settings.dest}: topic {topic!r} has {len(there[topic])} partitions, "
                    f"the source has {count}; add partitions to it first"
                )

    def _set_positions(self, statement: Statement | None, spots: Sequence[Spot]) -> None:
        """Where each partition goes on. Positions of other topics are stated again."""
        known: dict[Spot, CopyPosition] = {}
        ours = {topic for topic, _ in spots}
        if statement is not None:
            said, ids = statement.positions, statement.ids
            self._others = {topic: said[topic] for topic in said if topic not in ours}
            self._other_ids = {topic: ids[topic] for topic in ids if topic not in ours}
            known = {
                spot: position
                for spot in spots
                if (position := statement.position(*spot)) is not None
            }
        marks: dict[Spot, Marks] = {
            spot: (self._source.watermarks(*spot), self._dest.watermarks(*spot)) for spot in spots
        }
        configs = self._dest.configs(ours)
        timeless = {topic for topic in configs if _sets_times(configs[topic])}
        check_last_copies(self._settings, known, marks, timeless)
        for spot in spots:
            source, dest = marks[spot]
            position = CopyPosition(source.low, dest.high)
            if spot in known:
                position = resume_position(
                    self._settings, spot, known[spot], marks[spot], any_time=spot[0] in timeless
                )
            limit = configs.get(spot[0], {}).get("max.message.bytes")
            self._copies[spot] = PartitionCopy(*spot, position, limit)

    def _wait_until_quiet(self, wanted: dict[str, int]) -> None:
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

    # -- progress

    @property
    def copied(self) -> int:
        return sum(partition_copy.copied for partition_copy in self._copies.values())

    def progress(self) -> BridgeProgress:
        lags = {}
        for spot, partition_copy in self._copies.items():
            lags[str(partition_copy)] = max(
                self._known_end(spot) - partition_copy.position.source, 0
            )
        return BridgeProgress(self.copied, sum(lags.values()), lags)

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
