"""The partitions of one organisation, with the methods of an engine that the protocols use.

A protocol handler gets the space for a name from `App.space` and then does the same for both kinds.
What a partition cannot do is refused here, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headwater.core.durability import Durability
from headwater.core.errors import (
    FormatError,
    HeadConflictError,
    InvalidRequestError,
    NotAQueueError,
    TopicExistsIncompatibleError,
    TopicNotFoundError,
)
from headwater.core.limits import PARTITION_PREFIX
from headwater.core.results import Appended, Deleted, TopicState
from headwater.engine.engine import Engine
from headwater.engine.kafka.partition import KafkaTopic
from headwater.engine.kafka.partition_topics import (
    PartitionReader,
    PartitionTopic,
    plan_partition,
)
from headwater.engine.partition import Produced
from headwater.engine.pending import Pending
from headwater.engine.routers.definitions import Routers
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.loader import Loaded
from headwater.engine.topics.reader import ReadPlan
from headwater.engine.topics.record_encoding import EncodedRecords, checked_key
from headwater.engine.topics.write import Keyed, Write
from headwater.format.frame import FrameFlag, split_data
from headwater.format.kafka.mapping import to_kafka
from headwater.format.kafka.partition_names import parse_partition_name, partition_name
from headwater.format.kafka.records import NewRecord, encode_batch
from headwater.model.idempotency import IdempotencyWindow
from headwater.model.match import TagMatcher
from headwater.store.checked_reads import RecordDamage

if TYPE_CHECKING:
    from headwater.engine.kafka.store import KafkaStore

_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)


class PartitionList:
    """All partitions by name, for listings with the prefix `kafka:`."""

    def __init__(self, space: PartitionSpace) -> None:
        self._space = space

    def list(self, prefix: str, after: str | None) -> Iterator[Topic]:
        names = sorted(
            name
            for topic in self._space.kafka_topics()
            for name in (partition_name(topic.name, each.index) for each in topic.partitions)
            if name.startswith(prefix) and (after is None or name > after)
        )
        return (topic for name in names if (topic := self._space.find(name)) is not None)


class PartitionSpace:
    """For the owner only, as an engine."""

    def __init__(self, store: KafkaStore, engine: Engine, organisation: int) -> None:
        self._store = store
        self._engine = engine
        self.organisation = organisation
        self.topics = PartitionList(self)
        self.reader = PartitionReader(engine.core, engine.topics)
        self._known: dict[str, PartitionTopic] = {}
        """Those in use: they remember idempotency keys of writes."""

    @property
    def core(self) -> EngineCore:
        return self._engine.core

    @property
    def routers(self) -> Routers:
        return self._engine.routers

    # -- which there are

    def kafka_topics(self) -> Iterator[KafkaTopic]:
        yield from self._store.topics(self.organisation)

    def find(self, name: str) -> PartitionTopic | None:
        spot = parse_partition_name(name)
        topic = None if spot is None else self._store.topic(self.organisation, spot[0])
        if topic is None or spot is None or spot[1] >= len(topic.partitions):
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is None or known.kafka_topic is not topic:
            known = self._known[name] = PartitionTopic(self, topic, topic.partitions[spot[1]])
        return known

    def topic(self, name: str) -> PartitionTopic:
        partition_topic = self.find(name)
        if partition_topic is None:
            raise TopicNotFoundError(self._why_absent(name))
        return partition_topic

    def _why_absent(self, name: str) -> str:
        if name.startswith(PARTITION_PREFIX):
            return f"there is no partition {name!r}; make its topic with a Kafka client"
        return f"there is no topic {name!r}; {self._kafkas_own(name)}, use that name"

    def refuse_new(self, name: str) -> None:
        """A topic of the engine's own shall be made, or changed."""
        if self.find(name) is not None:
            raise InvalidRequestError(
                f"{name!r} is a partition of a Kafka topic; Kafka clients change its settings"
            )
        self.refuse_taken(name)

    def refuse_taken(self, name: str) -> None:
        """One name is one topic: Kafka clients would never see another one of theirs."""
        if not name.startswith(PARTITION_PREFIX):
            raise TopicExistsIncompatibleError(
                f"no topic {name!r} can be made: {self._kafkas_own(name)}; "
                "use that, or take another name",
                detail={"reason": "kafka_topic", "topic": name},
            )

    def _kafkas_own(self, name: str) -> str:
        topic = self._store.topic(self.organisation, name)
        last = 0 if topic is None else len(topic.partitions) - 1
        ends = (partition_name(name, index) for index in sorted({0, last}))
        return f"Kafka clients made {' to '.join(ends)}"

    def load(self, topic: Topic) -> Loaded:
        raise AssertionError(f"{topic.name!r} has nothing to load")

    def state(self, topic: Topic) -> TopicState:
        assert isinstance(topic, PartitionTopic)
        log = topic.log
        return TopicState(
            topic=topic.name,
            type=log.settings.type.value,
            head_seq=log.visible_seq,
            earliest_seq=log.earliest_seq,
            next_seq=log.visible_seq + 1,
            count=log.count,
            bytes=topic.partition.bytes,
            evict_floor=log.evict_floor,
            epoch=log.epoch,
            last_write_ts=None,
            last_read_ts=log.last_read_ts or None,
            config=dict(topic.kafka_topic.configs),
        )

    # -- reading

    def plan(self, topic: Topic, from_seq: int, limit: int, bytes_max: int) -> ReadPlan:
        assert isinstance(topic, PartitionTopic)
        core = self.core
        topic.log.last_read_ts = core.clock.wall_ms()
        core.counters.reads += 1
        plan = plan_partition(self._store.plan_fetch, topic, from_seq, limit, bytes_max)
        core.counters.tombstones += plan.selection.tombstone is not None
        return plan

    def note_damage(self, plan: ReadPlan, findings: Sequence[RecordDamage]) -> bool:
        return False

    # -- writing

    def append(
        self,
        name: str,
        records: EncodedRecords,
        *,
        idempotency_key: str | None = None,
        expect_head_seq: int | None = None,
        create: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> Write:
        """One batch, as durable as a producer with acks=all has it."""
        if create is not False:
            self.refuse_taken(name)
        topic = self.topic(name)
        if settings is not None:
            raise InvalidRequestError("the settings of a Kafka topic are changed by Kafka clients")
        if records.deliver_at is not None:
            raise NotAQueueError(f"{name!r} is a log; deliver_at needs a queue")
        core = self.core
        if core.refusing and not disable_backpressure:
            raise self._engine.pressure_control.refuse()
        now = core.clock.wall_ms()
        key = None if idempotency_key is None else checked_key(idempotency_key)
        if key is not None:
            repeat = _repeat(topic, key, now)
            if repeat is not None:
                return repeat
        next_seq = topic.partition.next_offset
        if expect_head_seq is not None and expect_head_seq != next_seq:
            raise HeadConflictError(
                f"head_seq is {next_seq}, not {expect_head_seq}",
                detail={"head_seq": next_seq, "expect_head_seq": expect_head_seq},
            )
        batch = encode_batch(_new_records(records, now))
        write = Write(topic, next_seq + 1, now)
        pending = self._store.append(topic.partition, batch, Durability.FSYNC)
        if key is not None:
            _remember(topic.keys, write, key)
        _when_done(pending, partial(_complete, write, len(records)))
        return write

    # -- deleting

    def delete(
        self, topic: Topic, before_seq: int | None, matcher: TagMatcher | None
    ) -> Pending[Deleted]:
        assert isinstance(topic, PartitionTopic)
        if matcher is not None or before_seq is None:
            raise InvalidRequestError(
                "records of a Kafka partition are deleted from the front only, with before_seq"
            )
        log = topic.log
        before = log.earliest_seq
        response: Pending[Deleted] = Pending()

        def done(pending: Pending[int]) -> None:
            if pending.error is not None:
                response.fail(pending.error)
                return
            count, size = log.count, topic.partition.bytes
            response.succeed(
                Deleted(log.earliest_seq - before, log.earliest_seq, log.visible_seq, count, size)
            )

        upto = min(max(before_seq - 1, topic.partition.log_start_offset), log.visible_seq)
        _when_done(self._store.delete_records(topic.partition, upto), done)
        return response


def _when_done(pending: Pending[Any], then: Callable[[Pending[Any]], None]) -> None:
    if pending.done:
        then(pending)
    else:
        pending.on_done = then


def _new_records(records: EncodedRecords, now: int) -> Iterator[NewRecord]:
    columns = zip(records.flags, records.nodes, records.tags, records.datas, strict=True)
    for position, (flags, node, tag, joined) in enumerate(columns):
        data, meta = split_data(flags, joined)
        try:
            fields = to_kafka(
                tag if flags & _HAS_TAG else None, node if flags & _HAS_NODE else None, data, meta
            )
        except FormatError as error:
            raise InvalidRequestError(f"record {position}: {error.reason}") from error
        yield NewRecord(now, *fields)


def _complete(write: Write, records: int, pending: Pending[Produced]) -> None:
    """The log has answered."""
    keys = write.topic.keys
    for keyed in write.keys:
        keys.abandon(keyed.key)
    if pending.error is not None:
        write.fail(pending.error)
        return
    first = pending.answer().base_offset + 1
    last = first + records - 1
    for keyed in write.keys:
        keys.remember(keyed.key, first, last, created=False, expires_ts=write.expires_ts)
    write.succeed(Appended(first, last, write.topic.log.visible_seq, False, False))


# -- keys of writes: remembered while the server runs


def _remember(keys: IdempotencyWindow, write: Write, key: bytes) -> None:
    write.keys = [Keyed(key, 0, 0)]  # its offsets are not known before the log answers
    write.expires_ts = write.ts + write.topic.log.settings.idempotency_window_ms
    keys.expire(write.ts)
    keys.begin(key, 0, 0, created=False, expires_ts=write.expires_ts, waiting=write)


def _repeat(topic: PartitionTopic, key: bytes, now: int) -> Write | None:
    known = topic.keys.lookup(key, now)
    if known is None:
        return None
    repeat = Write(topic, known.first_seq, now)
    if isinstance(known.pending, Write):
        known.pending.follow(repeat)
    else:
        head = topic.log.visible_seq
        repeat.result = Appended(known.first_seq, known.last_seq, head, False, deduped=True)
    return repeat
