"""A story of a Kafka store on a recording disk, and what had been answered at each point of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headwater.config.kafka import KafkaSettings
from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError
from headwater.engine.kafka.group_state import Committed
from headwater.engine.kafka.producers import BATCHES_MAX
from headwater.format.kafka.events import GroupMember, GroupMembership
from headwater.format.kafka.records import BatchProducer
from headwater.recovery.kafka.view import KafkaView
from headwater.testing import CrashKind, CrashPlan, FakeDisk, FaultDisk
from tests.rig.kafka import KAFKA, TELLING_KAFKA, KafkaLife, batch_of

Place = tuple[str, int]
IDEMPOTENT: Place = ("orders", 1)


class Sent(NamedTuple):
    batch: bytes
    base_offset: int
    end_offset: int


@dataclass(frozen=True)
class Known:
    """What had been answered, from this point of the trace on."""

    point: int = 0
    values: dict[Place, tuple[bytes, ...]] = field(default_factory=dict)
    """All that was ever written, by topic and partition."""
    sure: dict[Place, int] = field(default_factory=dict)
    """How many of them no crash may take."""
    starts: dict[Place, int] = field(default_factory=dict)
    offsets: dict[Place, int] = field(default_factory=dict)
    settled: dict[str, GroupMembership] = field(default_factory=dict)
    """Groups with members."""
    dropped: frozenset[str] = frozenset()
    sent: tuple[Sent, ...] = ()
    """What an idempotent producer sent."""


class KafkaStory:
    def __init__(
        self, settings: KafkaSettings = TELLING_KAFKA, disk: FaultDisk | None = None
    ) -> None:
        inner = FakeDisk(["/data"]) if disk is None else disk.inner
        assert isinstance(inner, FakeDisk)
        self.disk = inner
        self.life = KafkaLife(disk or inner, settings)
        self.settings = settings
        self.under_way: Known | None = None
        """What the operation that is under way, or that failed, would have led to."""
        self.moments = [Known(self.disk.point)]
        self._sequence = 0

    def _do(self, work: Callable[[], Any], *, sync: bool = True, **changes: Any) -> None:
        after = replace(self.moments[-1], **changes)
        if sync:
            after = replace(after, sure={place: len(v) for place, v in after.values.items()})
        self.under_way = after
        work()
        self.under_way = None
        self.moments.append(replace(after, point=self.disk.point))

    def create(self, name: str, partitions: int = 1) -> None:
        values, known = dict(self.moments[-1].values), self.moments[-1]
        for index in range(partitions):
            values[name, index] = ()
        self._do(
            lambda: self.life.create(name, partitions),
            values=values,
            dropped=known.dropped - {name},
        )

    def append(self, name: str, index: int, *words: str, sure: bool = True) -> None:
        self.append_together((name, index, words), sure=sure)

    def append_together(self, *parts: tuple[str, int, tuple[str, ...]], sure: bool = True) -> None:
        """One group."""
        values, batches = dict(self.moments[-1].values), []
        sent = self.moments[-1].sent
        for name, index, words in parts:
            base = len(values[name, index])
            values[name, index] += tuple(word.encode() for word in words)
            producer = BatchProducer(9, 0, self._sequence) if (name, index) == IDEMPOTENT else None
            batch = batch_of(*words, producer=producer)
            if producer is not None:
                self._sequence += len(words)
                sent = (*sent, Sent(batch, base, base + len(words)))
            batches.append((name, index, batch))
        durability = Durability.FSYNC if sure else Durability.DISK
        self._do(
            lambda: self.life.append_together(batches, durability),
            sync=sure,
            values=values,
            sent=sent,
        )

    def commit(self, name: str, index: int, offset: int) -> None:
        offsets = {**self.moments[-1].offsets, (name, index): offset}
        store = self.life.store
        self._do(
            lambda: self.life.do(
                lambda: store.commit_offsets(1, "readers", {(name, index): Committed(offset)})
            ),
            offsets=offsets,
        )

    def settle(self, group: str, generation: int, *members: str) -> None:
        """A generation of a group begins; without members it is empty from then on."""
        event, store = settled(group, generation, *members), self.life.store
        known = {name: each for name, each in self.moments[-1].settled.items() if name != group}
        self._do(
            lambda: self.life.do(lambda: store.log_membership(event)),
            settled={**known, group: event} if members else known,
        )

    def forget(self, group: str) -> None:
        known, store = self.moments[-1].settled, self.life.store
        self._do(
            lambda: self.life.do(lambda: store.forget_group(1, group)),
            settled={name: each for name, each in known.items() if name != group},
        )

    def delete(self, name: str, index: int, before: int) -> None:
        starts = {**self.moments[-1].starts, (name, index): before}
        partition = self.life.partition(name, index)
        self._do(
            lambda: self.life.do(lambda: partition.delete_records(before)),
            starts=starts,
        )

    def drop(self, name: str) -> None:
        known, topic = self.moments[-1], self.life.store.topic(1, name)
        assert topic is not None
        self._do(
            lambda: self.life.do(topic.drop),
            values={place: v for place, v in known.values.items() if place[0] != name},
            starts={place: v for place, v in known.starts.items() if place[0] != name},
            offsets={place: v for place, v in known.offsets.items() if place[0] != name},
            dropped=known.dropped | {name},
        )

    def checkpoint(self) -> None:
        self._do(self.life.store.checkpoint)

    def housekeep(self) -> None:
        self._do(self.life.store.housekeep)

    def reopen(self) -> None:
        def work() -> None:
            self.life = self.life.reopen()

        self._do(work)

    def between(self, point: int) -> tuple[Known, Known]:
        """What was answered before the crash, and what the next answer would have said."""
        at = max(i for i, known in enumerate(self.moments) if known.point <= point)
        if at + 1 < len(self.moments):
            return self.moments[at], self.moments[at + 1]
        return self.moments[at], self.under_way or self.moments[at]

    def states(self, plan: CrashPlan) -> Iterator[FakeDisk]:
        seen: set[int] = set()
        begun = self.moments[0].point
        for state in self.disk.crash_states(plan=plan):
            at = max(state.crash_point, begun)
            key = hash((self.between(at)[0].point, *state.files().items()))
            if state.crash_point >= begun and key not in seen:
                seen.add(key)
                yield state

    def judge(self, state: FakeDisk) -> None:
        """Open what a crash left and hold it against what was answered."""
        before, after = self.between(state.crash_point)
        beside = seen_beside(state.clone())
        life = KafkaLife(state, self.settings, self.life.clock)
        found = seen_in(life)
        what = state.label
        ends = {place: start + len(values) for place, (start, values) in found.items()}
        assert beside == ends, f"{what}: who looks beside sees {beside}, the owner {ends}"
        killed = state.crash_kind is CrashKind.KILL
        for place, values in before.values.items():
            if place not in found:
                assert place[0] in after.dropped, f"{what}: topic {place} is gone"
                continue
            start, kept = found[place]
            sure = len(values) if killed else before.sure.get(place, 0)
            if place in after.values and after.values[place][: len(values)] == values:
                end = start + len(kept)
                whole = after.values[place]
                assert end >= sure, f"{what}: {place} lost {end} to {sure}"
                assert tuple(kept) == whole[start:end], f"{what}: {place} has other records"
            allowed = {before.starts.get(place, 0), after.starts.get(place, 0)}
            assert start in allowed, f"{what}: {place} starts at {start}"
        assert set(found) <= set(before.values) | set(after.values), what
        offsets = {key: row.offset for key, row in life.store.committed(1, "readers").items()}
        assert offsets in (before.offsets, after.offsets), f"{what}: offsets {offsets}"
        self._recognises(life, after, what)
        members = settled_in(life)
        assert members in (before.settled, after.settled), f"{what}: members {members}"
        self._goes_on(life, state, found)

    def _recognises(self, life: KafkaLife, known: Known, what: str) -> None:
        """The newest batches of a producer that are there get the answer they had."""
        if IDEMPOTENT not in known.values or life.store.topic(1, IDEMPOTENT[0]) is None:
            return
        end = life.partition(*IDEMPOTENT).high_watermark
        kept = [sent for sent in known.sent if sent.end_offset <= end]
        for sent in kept[-BATCHES_MAX:]:
            again = life.append(IDEMPOTENT[0], sent.batch, IDEMPOTENT[1])
            assert again.base_offset == sent.base_offset, f"{what}: a batch that came again"
        assert life.partition(*IDEMPOTENT).high_watermark == end, f"{what}: stored twice"

    def _goes_on(self, life: KafkaLife, state: FakeDisk, found: Any) -> None:
        """What is written after a crash is there after the next one, and nothing else changed."""
        again = KafkaLife(state.after_kill(), self.settings, self.life.clock)
        assert seen_in(again) == found, f"{state.label}: another recovery finds something else"
        assert settled_in(again) == settled_in(life), (
            f"{state.label}: other members the second time"
        )
        place = next(iter(found), None)
        if place is None:
            return
        life.append(place[0], batch_of("one", "more"), place[1])
        later = KafkaLife(state.after_power_loss(), self.settings, self.life.clock)
        start, kept = found[place]
        expected = {**found, place: (start, [*kept, b"one", b"more"])}
        assert seen_in(later) == expected, f"{state.label}: after one more write and power loss"


def seen_in(life: KafkaLife) -> dict[Place, tuple[int, list[bytes]]]:
    """Everything a client could read: log start and values by topic and partition."""
    return {
        (topic.name, partition.index): (
            partition.log_start_offset,
            life.values(topic.name, partition.index),
        )
        for topic in life.store.topics(1)
        for partition in topic.partitions
    }


def settled(group: str, generation: int, *members: str) -> GroupMembership:
    rows = tuple(
        GroupMember(each, None, "client", "/::1", 10**7, 10**7, (("range", b"r"),), each.encode())
        for each in members
    )
    leader = members[0] if members else ""
    return GroupMembership(1, group, generation, "consumer", "range", leader, rows)


def settled_in(life: KafkaLife) -> dict[str, GroupMembership]:
    """The groups whose members may go on."""
    return {event.group: event for event in life.store.memberships()}


def seen_beside(disk: FakeDisk) -> dict[Place, int]:
    """The ends of all partitions as somebody sees them who only looks."""
    return ends_in(KafkaView(disk, KAFKA))


def ends_in(view: KafkaView) -> dict[Place, int]:
    found = {}
    for topic in view.topics:
        for index, partition in enumerate(topic.partitions):
            batches = view.batches(topic, index)
            end = batches.end_offset if len(batches.offsets) else partition.dropped
            found[topic.name, index] = end
    return found


def told(
    settings: KafkaSettings = TELLING_KAFKA, telling: Callable[[KafkaStory], None] | None = None
) -> KafkaStory:
    """A story from its beginning to one more start; everything a store does unless told what."""
    story = KafkaStory(settings)
    (telling or tell)(story)
    story.reopen()
    return story


def tell(story: KafkaStory) -> None:
    """Everything a store does, on files so small that each of it happens soon."""
    story.create("orders", 2)
    story.append("orders", 0, "a1", "a2")
    story.append("orders", 1, "b1", sure=False)
    story.append("orders", 0, "a3" * 30)
    story.commit("orders", 0, 2)
    story.settle("readers", 1, "m1")
    story.append("orders", 1, "b2", "b3", "b4")
    story.settle("passers", 1, "m2")
    story.checkpoint()
    story.settle("readers", 2, "m1", "m3")
    story.create("clicks")
    story.append("clicks", 0, "c1" * 40, sure=False)
    story.append("clicks", 0, "c2" * 40, sure=False)
    story.append("orders", 1, "b5" * 50)
    story.delete("orders", 0, 2)
    story.append("orders", 0, *(f"a{n}" for n in range(4, 20)))
    story.reopen()
    story.append("clicks", 0, "c3")
    story.settle("readers", 3)
    story.drop("clicks")
    story.append("orders", 1, "b6", "b7")
    story.create("clicks")
    story.append("clicks", 0, "again")
    story.forget("passers")
    story.settle("readers", 1, "m4")
    story.checkpoint()
    story.commit("orders", 1, 3)
    story.delete("orders", 1, 5)
    story.housekeep()
    story.append("orders", 0, "a20")
    story.delete("orders", 0, 19)
    story.housekeep()
    assert story.life.store.counters.segments_deleted
    assert story.life.store.counters.segments_rewritten
    story.append("clicks", 0, "last")


def tell_large(story: KafkaStory) -> None:
    """Groups of several batches and of long records, between all that is not."""

    def group(*marks: str, sure: bool = True) -> None:
        places = (("orders", 1), ("orders", 0), ("clicks", 0))
        parts = [
            (*places[at % 3], tuple(f"{mark}{n}" * 60 for n in range(at % 2 * 8 + 1)))
            for at, mark in enumerate(marks)
        ]
        story.append_together(*parts, sure=sure)

    story.create("orders", 2)
    story.create("clicks")
    group("a", "b", "c")
    group("d", "e", sure=False)
    group("f", "g", "h")
    story.append("orders", 1, "small")
    group("i", "j", sure=False)
    story.append("clicks", 0, "small", sure=False)
    group("k", "l", "m")
    story.commit("orders", 0, 2)
    group("n", "o")
    story.checkpoint()
    group("p", "q", "r")
    group("s", "t")
    story.reopen()
    group("u", "v", "w")
    group("x", "y")
    story.delete("orders", 0, 12)
    story.housekeep()
    group("z", "A")
    group("B", "C", "D", sure=False)
    story.append("orders", 1, "last")


def opens_or_refuses(disk: FakeDisk, settings: KafkaSettings = TELLING_KAFKA) -> KafkaLife | str:
    """The store on a damaged disk, or the message that refuses it."""
    try:
        return KafkaLife(disk, settings)
    except HeadwaterError as error:
        return str(error)


def tell_sealing(story: KafkaStory) -> None:
    """The segment that is written to is ended for its dead, rewritten or gone, again and again."""
    counters = story.life.store.counters
    story.create("orders", 2)
    story.append("orders", 0, "kept")
    for round_ in range(3):
        story.create("clicks")
        story.append("clicks", 0, *(f"c{n}" * 20 for n in range(20)))
        story.append("orders", 1, f"b{round_}" * 20, sure=False)
        story.drop("clicks")
        story.housekeep()
        story.append("orders", 0, f"a{round_}")
    assert counters.segments_rewritten == 3
    story.append("orders", 1, *(f"d{n}" * 20 for n in range(20)))
    story.delete("orders", 1, 23)
    story.delete("orders", 0, 4)
    story.housekeep()
    assert counters.segments_deleted == 4
    story.append("orders", 1, "last")
