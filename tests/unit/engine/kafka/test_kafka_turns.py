"""What one turn brings to Kafka's log is one submission for each class, whatever its partitions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater.config.kafka import KafkaSettings
from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.core.errors import HeadwaterError, OverloadedError, PoisonedError
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced, Repeated
from headwater.format.kafka.records import BatchProducer
from headwater.testing import FakeDisk, Fault, FaultDisk, Verb
from tests.rig.kafka import SMALL_KAFKA, KafkaLife, batch_of

DISK, FSYNC = Durability.DISK, Durability.FSYNC
Sent = tuple[int, Durability, bytes]


def opened(settings: KafkaSettings = SMALL_KAFKA, disk: FaultDisk | None = None) -> KafkaLife:
    life = KafkaLife(disk, settings=settings)
    life.create("orders", 4)
    return life


def together(life: KafkaLife, sent: Sequence[Sent]) -> list[Pending[Produced]]:
    return life.owner.call(
        lambda: [life.partition("orders", at).append(batch, by) for at, by, batch in sent]
    )


def submissions(life: KafkaLife) -> int:
    assert life.owner.shard is not None
    return life.owner.shard.counters.submissions


def test_batches_of_one_turn_for_several_partitions_are_one_ticket() -> None:
    life = opened()
    before = submissions(life)
    sent = [(at % 4, FSYNC, batch_of(*(f"{at}-{n}" for n in range(1 + at % 3)))) for at in range(9)]
    answers = [pending.answer() for pending in together(life, sent)]
    assert submissions(life) - before == 1
    assert [answer.base_offset for answer in answers] == [0, 0, 0, 0, 1, 2, 3, 1, 3]
    for at in range(4):
        expected = [f"{n}-{one}" for n in range(at, 9, 4) for one in range(1 + n % 3)]
        assert [value.decode() for value in life.values("orders", at)] == expected
    again = life.reopen()
    assert [value.decode() for value in again.values("orders", 1)] == ["1-0", "1-1", "5-0", "5-1",
                                                                      "5-2"]  # fmt: skip
    again.close()


def test_what_waits_for_a_sync_is_a_ticket_behind_what_does_not() -> None:
    life = opened()
    before = submissions(life)
    sent = [
        (1, FSYNC, batch_of("other")),
        (0, DISK, batch_of("first")),
        (0, FSYNC, batch_of("second")),
        (0, DISK, batch_of("third")),
    ]
    pendings = together(life, sent)
    assert [pending.answer().base_offset for pending in pendings] == [0, 0, 1, 2]
    assert submissions(life) - before == 2
    assert life.values("orders", 0) == [b"first", b"second", b"third"]
    again = life.reopen()
    assert again.values("orders", 0) == [b"first", b"second", b"third"]
    again.close()


def test_an_event_of_the_log_overtakes_no_batch_that_has_its_offset() -> None:
    life = opened()

    def begin() -> tuple[Pending[Produced], Pending[bool], list[int]]:
        first = life.partition("orders").append(batch_of("kept", "too"), FSYNC)
        dropped = life.partition("orders").topic.drop()
        return first, dropped, [ticket.frame_count for ticket in life.store.core.pending]

    first, dropped, frames = life.owner.call(begin)
    assert frames == [2, 1]
    assert first.answer().base_offset == 0
    assert dropped.answer()
    life.close()


def test_what_finds_no_room_is_refused_from_the_end_and_comes_again_in_order() -> None:
    life = opened(KafkaSettings(wal=WalSettings(queue_submissions_max=3)))
    producer = [BatchProducer(7, 0, sequence) for sequence in range(5)]
    sent = [(0, FSYNC, batch_of(str(n), producer=each)) for n, each in enumerate(producer)]
    pendings = together(life, sent)
    assert [pending.error is None for pending in pendings] == [True] * 3 + [False] * 2
    assert all(isinstance(pending.error, OverloadedError) for pending in pendings[3:])
    partition = life.partition("orders")
    assert (partition.in_flight, partition.waiting, partition.next_offset) == (0, 0, 3)
    with pytest.raises(HeadwaterError, match="comes next"):
        life.append("orders", sent[4][2])
    assert [life.append("orders", batch).base_offset for _, _, batch in sent[3:]] == [3, 4]
    life.close()


def test_a_batch_that_comes_twice_in_a_turn_is_stored_once() -> None:
    life = opened()
    batch = batch_of("once", producer=BatchProducer(7, 0, 0))
    first, again = together(life, [(0, FSYNC, batch), (0, FSYNC, batch)])
    assert (type(first.answer()), type(again.answer())) == (Produced, Repeated)
    assert life.values("orders") == [b"once"]
    life.close()


def test_a_refused_batch_leaves_the_others_of_its_turn_alone() -> None:
    life = opened()
    life.append("orders", batch_of("first", producer=BatchProducer(7, 0, 0)))
    late = batch_of("late", producer=BatchProducer(7, 0, 2))
    pendings: list[Pending[Produced]] = []

    def begin() -> None:
        pendings.append(life.partition("orders").append(batch_of("before"), FSYNC))
        with pytest.raises(HeadwaterError, match="comes next"):
            life.partition("orders").append(late, FSYNC)
        pendings.append(life.partition("orders").append(batch_of("behind"), FSYNC))

    life.owner.call(begin)
    assert [pending.answer().base_offset for pending in pendings] == [1, 2]
    life.close()


def test_a_failed_sync_is_told_to_every_batch_of_the_turn_once() -> None:
    disk = FaultDisk(FakeDisk(["/data"]))
    life = opened(disk=disk)
    disk.add(Fault(Verb.SYNC_DATA))
    told: list[str] = []

    def begin() -> None:
        for at in range(4):
            pending = life.partition("orders", at).append(batch_of("x"), FSYNC)
            pending.on_done = lambda done: told.append(type(done.error).__name__)

    life.owner.call(begin)
    assert told == [PoisonedError.__name__] * 4
    assert [life.partition("orders", at).high_watermark for at in range(4)] == [0] * 4


def test_an_answer_that_breaks_keeps_no_other_batch_from_being_answered() -> None:
    life = opened()
    told: list[int] = []

    def breaks(_: object) -> None:
        raise RuntimeError("a bug in an answer")

    def begin() -> None:
        first, second = (life.partition("orders", at).append(batch_of("x"), FSYNC) for at in (0, 1))
        first.on_done = breaks
        second.on_done = lambda done: told.append(done.answer().base_offset)

    life.owner.call(begin)
    assert told == [0]
    assert [life.partition("orders", at).in_flight for at in (0, 1)] == [0, 0]
