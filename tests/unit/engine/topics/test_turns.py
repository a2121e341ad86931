"""What one turn of the loop brings is one submission for each shard, whatever its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.core.errors import (
    HeadConflictError,
    HeadwaterError,
    OverloadedError,
    PoisonedError,
    TopicExistsIncompatibleError,
    TopicFullError,
)
from headwater.engine.database import Database
from headwater.engine.engine import Engine
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import EncodedRecords, encode_records
from headwater.testing import Fault, FaultDisk, Verb
from headwater.wal.ticket import Ticket
from tests.rig.life import SMALL, Life, new_disk, with_shards


def brought(count: int = 1, **fields: object) -> EncodedRecords:
    return encode_records([{"data": number, **fields} for number in range(count)])


def begin(engine: Engine, **batches: EncodedRecords) -> list[Write | HeadwaterError]:
    return engine.append_turn({engine.topic(name): each for name, each in batches.items()})


def written(engine: Engine, **batches: EncodedRecords) -> list[Write]:
    writes = begin(engine, **batches)
    assert all(isinstance(write, Write) for write in writes)
    return [write for write in writes if isinstance(write, Write)]


@pytest.fixture
def life() -> Iterator[Life]:
    life = Life(new_disk())
    for name in ("a", "b", "c"):
        life.create(name)
    yield life
    life.abandon()


def tickets_of(life: Life) -> list[list[Ticket]]:
    return [list(progress.pending) for progress in life.db.engine.core.shards]


def data(db: Database, topic: str) -> list[object]:
    return [record.data for record in db.diff(topic).records]


def test_a_turn_over_three_topics_is_one_ticket_with_all_writers(life: Life) -> None:
    several = brought(3)
    several.writers = 3
    with life.owner.holding():
        writes = begin(life.db.engine, a=brought(), b=several, c=brought())
        (tickets,) = tickets_of(life)
        assert [ticket.writers for ticket in tickets] == [5]
    assert [isinstance(write, Write) and write.done for write in writes] == [True] * 3
    assert [data(life.db, name) for name in "abc"] == [[0], [0, 1, 2], [0]]


def test_each_shard_gets_one_ticket() -> None:
    life = Life(new_disk(), settings=with_shards(SMALL, 4))
    names = [f"t{number}" for number in range(12)]
    for name in names:
        life.create(name)
    with life.owner.holding():
        begin(life.db.engine, **{name: brought() for name in names})
        used = {life.db.engine.topic(name).shard for name in names}
        assert [len(each) for each in tickets_of(life)] == [int(n in used) for n in range(4)]
    assert all(data(life.db, name) == [0] for name in names)
    life.abandon()


def test_a_topic_that_refuses_keeps_none_of_the_others_from_being_written(life: Life) -> None:
    life.create("full", cap_records=1, discard="reject")
    life.append("full", [{"data": "first"}])
    with life.owner.holding():
        before, refused, behind = begin(life.db.engine, a=brought(), full=brought(), b=brought())
    assert isinstance(refused, TopicFullError)
    assert isinstance(before, Write)
    assert isinstance(behind, Write)
    assert (before.answer().head_seq, behind.answer().head_seq) == (1, 1)
    assert life.db.state("full").next_seq == 2, "it took no seq"


def test_a_topic_that_takes_copies_only_refuses_in_a_turn_too(life: Life) -> None:
    life.db.put_router("r", source="a", dest="copies", guarantee="exactly_once")
    with life.owner.holding():
        (refused,) = begin(life.db.engine, copies=brought())
    assert isinstance(refused, TopicExistsIncompatibleError)


def test_what_a_shard_has_no_room_for_gives_its_seqs_back() -> None:
    settings = with_shards(SMALL, 1)
    settings = SMALL.__class__(wal=WalSettings(shards=1, queue_submissions_max=2))
    life = Life(new_disk(), settings=settings)
    for name in ("a", "b", "c", "d"):
        life.create(name)
    live_bytes = life.db.engine.core.live_bytes
    with life.owner.holding():
        first, second, refused, too = written(
            life.db.engine, a=brought(), b=brought(), c=brought(2), d=brought(3)
        )
        assert isinstance(refused.error, OverloadedError)
        assert isinstance(too.error, OverloadedError)
        assert life.db.engine.core.live_bytes == live_bytes + 2
        assert [life.db.engine.topic(name).log.head_seq for name in "abcd"] == [1, 1, 0, 0]
    assert (first.answer().first_seq, second.answer().first_seq) == (1, 1)
    with life.owner.holding():
        (after,) = written(life.db.engine, c=brought(2))
    assert after.answer().last_seq == 2
    life.abandon()


def test_a_turn_that_finds_no_memory_for_its_tickets_gives_all_its_seqs_back() -> None:
    life = Life(new_disk(), settings=with_shards(SMALL, 4))
    names = [f"t{number}" for number in range(12)]
    for name in names:
        life.create(name)
    core = life.db.engine.core
    live_bytes, submit_to = core.live_bytes, type(core).submit_to
    submitted: list[int] = []

    def runs_out(self: EngineCore, shard: int, ticket: Ticket) -> None:
        if submitted:
            raise MemoryError
        submitted.append(shard)
        submit_to(self, shard, ticket)

    with pytest.MonkeyPatch.context() as patch, life.owner.holding():
        patch.setattr(type(core), "submit_to", runs_out)
        writes = written(life.db.engine, **{name: brought() for name in names})
    errors = [write.error for write in writes if write.error is not None]
    assert errors
    assert all(isinstance(error.__cause__, MemoryError) for error in errors)
    topics = [life.db.engine.topic(name) for name in names]
    assert len({topic.shard for topic in topics}) > 1
    for topic in topics:
        assert topic.log.head_seq == topic.log.visible_seq == int(topic.shard in submitted)
    size = sum(topic.log.bytes for topic in topics)
    assert core.live_bytes == live_bytes + size
    life.abandon()


def test_a_poisoned_log_refuses_every_write_of_a_turn_once() -> None:
    fake = new_disk()
    disk = FaultDisk(fake)
    life = Life(fake, disk)
    for name in ("a", "b"):
        life.create(name)
    disk.add(Fault(Verb.SYNC_DATA))
    answered: list[str] = []
    with life.owner.holding():
        writes = begin(life.db.engine, a=brought(), b=brought(2))
        for write in writes:
            assert isinstance(write, Write)
            write.on_done = lambda done: answered.append(str(type(done.error)))
    assert answered == [str(PoisonedError)] * 2
    after = written(life.db.engine, a=brought(), b=brought())
    assert all(isinstance(each.error, PoisonedError) for each in after)
    assert [life.db.engine.topic(name).log.head_seq for name in "ab"] == [0, 0]
    life.abandon()


def test_writes_of_one_topic_that_were_committed_together_are_published_together(
    life: Life,
) -> None:
    core = life.db.engine.core
    seen: list[tuple[str, int]] = []
    core.on_update = lambda topic: seen.append((topic.name, topic.log.visible_seq))
    with life.owner.holding():
        for _ in range(3):
            begin(life.db.engine, a=brought(2), b=brought())
    assert seen == [("a", 6), ("b", 3)], "one update a topic, not one a write"
    assert len(life.db.engine.topic("a").tail) == 1, "small writes are one chunk for readers"


def test_a_delete_between_two_turns_takes_effect_between_them(life: Life) -> None:
    engine = life.db.engine
    life.append("a", [{"data": "there before"}])
    visible: list[int] = []
    with life.owner.holding():
        begin(engine, a=brought(2), b=brought())
        deleted = engine.topics.delete(engine.topic("a"), 100, None)
        deleted.on_done = lambda _: visible.append(engine.topic("a").log.visible_seq)
        begin(engine, a=brought(1), b=brought())
    assert deleted.answer().deleted == 1
    assert visible == [3], "the first turn is visible by then, the second is not"
    assert [record.seq for record in life.db.diff("a").records] == [2, 3, 4]


def test_an_answer_that_breaks_keeps_no_other_topic_from_being_answered(life: Life) -> None:
    answered: list[str] = []

    def breaks(_: object) -> None:
        raise RuntimeError("a bug in an answer")

    turn_of_the_loop: list[Callable[[], None]] = []
    life.owner.postponed = turn_of_the_loop
    with life.owner.holding():
        first, second = begin(life.db.engine, a=brought(), b=brought())
        assert isinstance(first, Write)
        assert isinstance(second, Write)
        first.on_done = breaks
        second.on_done = lambda _: answered.append("b")
        submit = turn_of_the_loop.pop()
        assert not turn_of_the_loop
        submit()
    (take_effect,) = turn_of_the_loop
    with pytest.raises(RuntimeError, match="a bug in an answer"):
        take_effect()
    assert answered == ["b"]


def test_the_server_is_called_once_for_all_that_became_visible_together(life: Life) -> None:
    calls: list[int] = []
    core = life.db.engine.core
    core.on_published = lambda: calls.append(core.counters.appends)
    with life.owner.holding():
        begin(life.db.engine, a=brought(), b=brought(), c=brought())
    assert calls == [3]


@contextmanager
def one_turn(life: Life) -> Iterator[None]:
    """What is begun inside is submitted at its end, as by a loop; then the log takes its steps."""
    turn: list[Callable[[], None]] = []
    with life.owner.holding():
        life.owner.postponed = turn
        try:
            yield
            while turn:
                turn.pop(0)()
        finally:
            life.owner.postponed = None


def submitted(life: Life) -> list[tuple[Durability, int]]:
    """Class and writers of each ticket that the log has not answered."""
    return [
        (ticket.durability, ticket.writers) for tickets in tickets_of(life) for ticket in tickets
    ]


def test_all_that_comes_in_a_turn_is_one_submission_whoever_brings_it(life: Life) -> None:
    """Lone appends with all that they may ask for, and batches, in the order they came."""
    engine = life.db.engine
    with one_turn(life):
        made = engine.append("new", brought(2), idempotency_key="k")
        again = engine.append("new", brought(2), idempotency_key="k")
        (batch,) = written(engine, a=brought(2))
        expecting = engine.append("a", brought(), expect_head_seq=2)
        with pytest.raises(HeadConflictError):
            engine.append("a", brought(), expect_head_seq=2)
        behind = engine.append("new", brought(), expect_head_seq=2)
        assert submitted(life) == []
        assert not any(each.done for each in (made, again, batch, expecting, behind))
    assert life.db.engine.core.counters.appends == 4
    assert made.answer() == (1, 2, 3, True, False)
    assert again.answer() == (1, 2, 3, True, True)
    assert (batch.answer().last_seq, expecting.answer().first_seq) == (2, 3)
    assert behind.answer() == (3, 3, 3, False, False)
    assert (data(life.db, "new"), data(life.db, "a")) == ([0, 1, 0], [0, 1, 0])


def test_a_turn_has_one_ticket_for_each_class_and_its_topics_stay_in_order(life: Life) -> None:
    """What waits for a sync stands behind what does not, whichever came first."""
    life.create("fast", durability="disk")
    life.append("fast", [{"data": "before"}])
    engine = life.db.engine
    tickets: list[tuple[Durability, int]] = []
    with one_turn(life):
        engine.append("a", brought())
        first = engine.append("fast", brought())
        synced = engine.append("fast", brought(2), synced=True)
        last = engine.append("fast", brought(3))
        engine.core.send_begun()
        tickets = submitted(life)
    reserved = (Durability.FSYNC, 1)  # the ceiling over the seqs that no sync covers
    assert tickets == [reserved, (Durability.DISK, 1), (Durability.FSYNC, 3)]
    assert [each.answer().first_seq for each in (first, synced, last)] == [2, 3, 5]
    assert data(life.db, "fast") == ["before", 0, 0, 1, 0, 1, 2]
    assert life.db.state("fast").count == 7


def test_nothing_overtakes_a_write_that_has_its_seqs(life: Life) -> None:
    engine = life.db.engine
    life.append("a", [{"data": "there before"}])
    visible: list[int] = []
    with one_turn(life):
        write = engine.append("a", brought())
        change = engine.topics.delete(engine.topic("a"), 2, None)
        change.on_done = lambda _: visible.append(engine.topic("a").log.visible_seq)
        assert [writers for _, writers in submitted(life)] == [1, 1]
        engine.append("a", brought())
    assert write.answer().first_seq == 2
    assert visible == [2], "the write before it is visible by then, the one behind it is not"


def test_what_has_no_room_is_refused_from_the_end_and_leaves_no_seqs_behind() -> None:
    wal = WalSettings(shards=1, queue_submissions_max=3)
    life = Life(new_disk(), settings=SMALL.__class__(wal=wal))
    life.create("a")
    engine = life.db.engine
    with one_turn(life):
        writes = [engine.append("a", brought()) for _ in range(5)]
        keyed = engine.append("a", brought(), idempotency_key="k")
    assert [write.error is None for write in writes] == [True] * 3 + [False] * 2
    assert isinstance(keyed.error, OverloadedError)
    assert engine.topic("a").log.head_seq == 3
    assert engine.topic("a").in_flight == engine.topic("a").waiting == 0
    assert life.db.append("a", [{"data": "again"}], idempotency_key="k").first_seq == 4
    life.abandon()


@pytest.mark.parametrize("durability", ["ephemeral", "memory"])
def test_what_waits_for_no_disk_is_seen_in_order_at_the_end_of_the_turn(
    life: Life, durability: str
) -> None:
    calls: list[int] = []
    life.create("memory", durability=durability)
    life.db.engine.core.on_published = lambda: calls.append(life.db.state("memory").count)
    with one_turn(life):
        writes = [life.db.engine.append("memory", brought(2)) for _ in range(3)]
        assert life.db.state("memory").count == 0
    assert [write.answer().first_seq for write in writes] == [1, 3, 5]
    assert data(life.db, "memory") == [0, 1] * 3
    assert calls == [6]
    with one_turn(life):
        life.db.engine.append("a", brought())
    assert calls == [6, 6], "once, by the log"
