"""What one turn of the loop brings is one submission for each shard, whatever its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.config.wal import WalSettings
from headwater.core.errors import (
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
    for name in ("a", "b", "c"):
        life.create(name)
    live_bytes = life.db.engine.core.live_bytes
    with life.owner.holding():
        refused = begin(life.db.engine, a=brought(), b=brought(), c=brought())
        assert all(isinstance(each, OverloadedError) for each in refused)
        assert life.db.engine.core.live_bytes == live_bytes
        first, second = begin(life.db.engine, a=brought(), b=brought())
    assert isinstance(first, Write)
    assert isinstance(second, Write)
    assert (first.answer().first_seq, second.answer().first_seq) == (1, 1)
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
        with pytest.raises(MemoryError):
            begin(life.db.engine, **{name: brought() for name in names})
    topics = [life.db.engine.topic(name) for name in names]
    assert len({topic.shard for topic in topics}) > 1
    for topic in topics:
        assert topic.log.head_seq == topic.log.visible_seq == int(topic.shard in submitted)
    written = sum(topic.log.bytes for topic in topics)
    assert core.live_bytes == live_bytes + written
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
    after = begin(life.db.engine, a=brought(), b=brought())
    assert all(isinstance(each, PoisonedError) for each in after)
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
