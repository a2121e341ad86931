"""What callers can do with topics: make, append, read, delete, drop, list.

A change of settings in the log holds all of them. One requested while another is on its way waits
for the result of that one, so two callers that change different settings undo nothing of each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from headwater.api.call_list import DiffCall
from headwater.core import limits
from headwater.core.errors import InvalidRequestError
from headwater.core.records import Record
from headwater.core.results import Appended, Deleted, Diff, Tombstone, TopicState
from headwater.engine.operation import Answered, AsOwner, InFiles, Operation, Woken
from headwater.engine.owner import Change
from headwater.engine.partition import Partition, ReadPlan
from headwater.engine.state.engine_core import EngineCounters
from headwater.engine.state.topic import Router, Topic
from headwater.engine.topics.loader import TagRead, install_tags, load_tags, plan_tags
from headwater.engine.topics.protocols import PartitionSpace, ReadSide, TopicEngine
from headwater.engine.topics.reader import ReadFilter, read_records
from headwater.engine.topics.record_encoding import EncodedRecords, encode_records
from headwater.model.match import TagMatcher, parse_match
from headwater.store.pair import RecordDamage
from headwater.store.segment import SegmentChangedError

P = TypeVar("P")


class Taken(NamedTuple, Generic[P]):
    """What a plan gave: in some form, how many records, and what was found damaged."""

    payload: P
    records: int
    findings: list[RecordDamage]


Take = Callable[[ReadPlan, ReadFilter], Taken[P]]


class ReadResult(NamedTuple, Generic[P]):
    """A read in the form its reader wants. See `Diff` for the fields."""

    payload: P
    records: int
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    records_scanned: int
    cold_segments_read: int

    @property
    def lag(self) -> int:
        return max(self.head_seq - self.next_from_seq, 0)

    @property
    def is_empty(self) -> bool:
        """There is nothing in it but that the reader is at the end."""
        return self.caught_up and not self.records and self.tombstone is None


EMPTY_ROUNDS_MAX = 16
"""A read whose filter keeps nothing reads on this many times before it answers."""


def loaded_partition(space: ReadSide, name: str) -> Operation[Partition]:
    """The partition, with its index in memory."""
    partition: Partition = yield AsOwner(lambda: space.topic(name))
    yield from ensure_loaded(partition)
    return partition


def loaded_topic(engine: TopicEngine, name: str) -> Operation[Topic]:
    """The topic, with its index in memory."""
    topic: Topic = yield AsOwner(lambda: engine.topic(name))
    yield from ensure_loaded(topic)
    return topic


def ensure_loaded(partition: Partition) -> Operation[None]:
    if not partition.loaded:
        installed = yield InFiles(partition.read_index)
        yield AsOwner(installed)


def append_operation(
    engine: TopicEngine,
    name: str,
    records: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    node: str | None,
    idempotency_key: str | None,
    expect_head_seq: int | None,
    create: bool | None,
    settings: Mapping[str, Any] | None,
    disable_backpressure: bool = False,
) -> Operation[Appended]:
    encoded = encode_records([records] if isinstance(records, Mapping) else records, node)
    return (
        yield from append_encoded_operation(
            engine,
            name,
            encoded,
            idempotency_key=idempotency_key,
            expect_head_seq=expect_head_seq,
            create=create,
            settings=settings,
            disable_backpressure=disable_backpressure,
        )
    )


def append_encoded_operation(
    engine: TopicEngine,
    name: str,
    encoded: EncodedRecords,
    *,
    idempotency_key: str | None = None,
    expect_head_seq: int | None = None,
    create: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    disable_backpressure: bool = False,
) -> Operation[Appended]:
    """For records that are checked and encoded already."""
    topic: Topic | None = yield AsOwner(lambda: engine.find(name))
    if topic is not None and not topic.loaded:
        yield from ensure_loaded(topic)
    appended: Appended = yield Answered(
        lambda: engine.append(
            name,
            encoded,
            idempotency_key=idempotency_key,
            expect_head_seq=expect_head_seq,
            create=create,
            settings=settings,
            disable_backpressure=disable_backpressure,
        )
    )
    return appended


def ensure_tags(topic: Topic) -> Operation[None]:
    """The topic's tag index, complete."""
    for _ in range(EMPTY_ROUNDS_MAX):
        if topic.tags_complete:
            return
        reads = yield AsOwner(partial(plan_tags, topic))
        tags = yield InFiles(partial(_tags, topic, reads))
        if tags is not None:
            yield AsOwner(partial(install_tags, topic, reads, tags))
    if not topic.tags_complete:
        raise SegmentChangedError(f"{topic.name!r} is being rewritten; try again")


def _tags(topic: Topic, reads: list[TagRead]) -> list[tuple[bytes, int]] | None:
    """None when a segment was rewritten or dropped between deciding and reading."""
    try:
        return load_tags(topic, reads)
    except SegmentChangedError:
        return None


def delete_operation(
    space: PartitionSpace, name: str, before_seq: int | None, match: object | None
) -> Operation[Deleted]:
    matcher = None if match is None else parse_match(match)
    if before_seq is None and matcher is None:
        raise InvalidRequestError("delete needs before_seq, match or both")
    if before_seq is not None and before_seq < 0:
        raise InvalidRequestError("before_seq must be a whole number, 0 or more")
    return (yield from space.deletion(name, before_seq, matcher))


def deletion_operation(
    engine: TopicEngine, name: str, before_seq: int | None, matcher: TagMatcher | None
) -> Operation[Deleted]:
    topic = yield from loaded_topic(engine, name)
    if matcher is not None:
        yield from ensure_tags(topic)
    for router in topic.outbound:
        # What is deleted here and was copied stays copied.
        yield Answered(partial(engine.routers.flush_copies, router.dest))
    deleted: Deleted = yield Answered(lambda: engine.topics.delete(topic, before_seq, matcher))
    return deleted


def drop_operation(
    engine: TopicEngine, name: str, *, if_empty: bool
) -> Operation[list[str] | None]:
    """Drop a topic. Gives the names of the routers that went with it; None if there was none."""
    topic: Topic | None = yield AsOwner(lambda: engine.find(name))
    if topic is None:
        return None
    outbound: Sequence[Router] = yield AsOwner(lambda: engine.routers.halt(topic))
    try:
        for router in outbound:
            # What was copied stays when its source is gone.
            yield Answered(partial(engine.routers.flush_copies, router.dest))
        removed: list[str] = yield Answered(lambda: engine.topics.drop(topic, if_empty=if_empty))
    except BaseException:
        engine.core.owner.post(lambda: engine.routers.go_on(outbound))
        raise
    return removed


def state_operation(engine: ReadSide, name: str) -> Operation[TopicState]:
    state: TopicState = yield AsOwner(lambda: engine.topic(name).state())
    return state


def topics_operation(engine: ReadSide, prefix: str) -> Operation[list[TopicState]]:
    states: list[TopicState] = yield AsOwner(
        lambda: [each.state() for each in engine.listed(prefix, None)]
    )
    return states


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """A read, checked and clamped."""

    from_seq: int
    limit: int
    bytes_max: int
    wait_us: int
    nodes: frozenset[bytes]
    matcher: TagMatcher | None


def diff_request(
    from_seq: int = 0,
    limit: int = limits.READ_RECORDS_DEFAULT,
    max_batch_bytes: int = limits.READ_BYTES_DEFAULT,
    wait_ms: int = 0,
    node: str | Iterable[str] | None = None,
    match: object | None = None,
) -> DiffRequest:
    if from_seq < 0:
        raise InvalidRequestError("from_seq must be a whole number, 0 or more")
    if limit < 1:
        raise InvalidRequestError(
            f"limit must be 1 or more, not {limit}; leave it out for {limits.READ_RECORDS_DEFAULT}"
        )
    names = [node] if isinstance(node, str) else list(node or ())
    return DiffRequest(
        from_seq,
        min(limit, limits.READ_RECORDS_CLAMP),
        min(max(max_batch_bytes, 1), limits.READ_BYTES_CLAMP),
        min(max(wait_ms, 0), limits.READ_WAIT_MS_CLAMP) * 1_000,
        frozenset(name.encode() for name in names),
        None if match is None else parse_match(match),
    )


def request_of(call: DiffCall) -> DiffRequest:
    return diff_request(
        call.from_seq, call.limit, call.max_batch_bytes, call.wait_ms, call.node, call.match
    )


def diff_operation(engine: ReadSide, name: str, request: DiffRequest) -> Operation[Diff]:
    """What came after a cursor, as records; waits for something if the request says so."""
    result = yield from long_poll_operation(engine, name, request, take_records)
    return as_diff(result)


def long_poll_operation(
    engine: ReadSide, name: str, request: DiffRequest, take: Take[P]
) -> Operation[ReadResult[P]]:
    topic = yield from loaded_partition(engine, name)
    result = yield from read_as_operation(engine, topic, request, take)
    if request.wait_us and result.is_empty:
        until = engine.core.clock.monotonic_us() + request.wait_us
        cursor = result.next_from_seq
        yield Woken(topic, until, lambda: topic.visible_seq > cursor or topic.dropped)
        result = yield from read_as_operation(engine, topic, request, take)
    return result


def read_operation(engine: ReadSide, topic: Partition, request: DiffRequest) -> Operation[Diff]:
    """One answer, as records."""
    result = yield from read_as_operation(engine, topic, request, take_records)
    return as_diff(result)


def as_diff(result: ReadResult[list[Record]]) -> Diff:
    return Diff(
        result.payload,
        result.next_from_seq,
        result.head_seq,
        result.earliest_seq,
        result.caught_up,
        result.tombstone,
        result.records_scanned,
        result.cold_segments_read,
    )


def take_records(plan: ReadPlan, keep: ReadFilter) -> Taken[list[Record]]:
    records, findings = read_records(plan, keep)
    return Taken(records, len(records), findings)


def read_as_operation(
    engine: ReadSide, topic: Partition, request: DiffRequest, take: Take[P]
) -> Operation[ReadResult[P]]:
    """One answer in the form that `take` gives it: records, or JSON ready to send.

    Further rounds only while a filter keeps nothing and there is more to see, or while the files
    change between deciding and reading.
    """
    use_nodes = request.nodes if topic.settings.dedupe_node else frozenset()
    keep = ReadFilter(use_nodes, request.matcher)
    cursor, scanned, cold = request.from_seq, 0, 0
    tombstone: Tombstone | None = None
    rounds = 0
    while True:
        rounds += 1
        plan: ReadPlan = yield AsOwner(
            partial(_counted_plan, engine.core.counters, topic, cursor, request)
        )
        work = partial(_taken, take, plan, keep)
        taken: Taken[P] | None = (yield InFiles(work)) if plan.waits_for_files else work()
        stale = taken is None
        if taken is not None and taken.findings:
            stale = yield AsOwner(partial(plan.note_damage, taken.findings))
        if stale and rounds < EMPTY_ROUNDS_MAX:
            continue  # the segment was rewritten or went away in between, or damage is known now
        if taken is None or stale:
            raise SegmentChangedError(f"{topic.name!r} is being rewritten; try again")
        selection = plan.selection
        cursor = selection.next_from_seq
        scanned += selection.records_scanned
        cold += plan.cold_segments
        tombstone = tombstone or selection.tombstone
        has_something = taken.records > 0 or tombstone is not None
        if has_something or selection.caught_up or rounds >= EMPTY_ROUNDS_MAX:
            break
    engine.core.counters.records_read += taken.records
    return ReadResult(
        taken.payload,
        taken.records,
        cursor,
        plan.head_seq,
        plan.earliest_seq,
        selection.caught_up,
        tombstone,
        scanned,
        cold,
    )


def _counted_plan(
    counters: EngineCounters, topic: Partition, cursor: int, request: DiffRequest
) -> ReadPlan:
    plan = topic.plan(cursor, request.limit, request.bytes_max)
    counters.reads += 1
    counters.tombstones += plan.selection.tombstone is not None
    return plan


def _taken(take: Take[P], plan: ReadPlan, keep: ReadFilter) -> Taken[P] | None:
    try:
        return take(plan, keep)
    except SegmentChangedError:
        return None


def create_operation(
    engine: TopicEngine, name: str, settings: Mapping[str, Any]
) -> Operation[TopicState]:
    existing: Topic | None = yield AsOwner(lambda: engine.find(name))
    if existing is not None:
        yield from ensure_loaded(existing)
    create = partial(_create, engine, name, settings)
    outcome: Topic | tuple[TopicState, bool] = yield Answered(create)
    while isinstance(outcome, Topic):
        yield Woken(outcome, None, partial(_may_configure, outcome))
        outcome = yield Answered(create)
    return outcome[0]


def _create(engine: TopicEngine, name: str, settings: Mapping[str, Any]) -> Change:
    """The answer is the topic itself while another caller is changing its settings."""
    topic = engine.find(name)
    if topic is None or _may_configure(topic):
        return engine.topics.create(name, settings)
    change = Change(lambda: topic)
    change.result = topic
    return change


def _may_configure(topic: Topic) -> bool:
    return not topic.configuring
